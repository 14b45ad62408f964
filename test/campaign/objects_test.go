package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// served is a kind in a version that the API server serves.
type served struct {
	schema.GroupVersionKind
	resource string
	stored   string // the version in etcd
	schema   *apiextensionsv1.JSONSchemaProps
	examples []map[string]any
}

// servedKinds returns all kinds and versions of the definitions, with their examples.
func servedKinds(t *testing.T) (kinds []served) {
	t.Helper()
	definitions, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	examples := exampleObjects(t)
	for _, d := range definitions {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, &crd); err != nil {
			t.Fatal(err)
		}
		stored := ""
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				stored = v.Name
			}
		}
		for _, v := range crd.Spec.Versions {
			gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}
			if len(examples[gvk]) == 0 {
				t.Fatalf("api/testdata has no example of %s", gvk)
			}
			kinds = append(kinds, served{gvk, crd.Spec.Names.Plural, stored, v.Schema.OpenAPIV3Schema, examples[gvk]})
		}
	}
	return kinds
}

func exampleObjects(t *testing.T) map[schema.GroupVersionKind][]map[string]any {
	t.Helper()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "api", "testdata", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	found := map[schema.GroupVersionKind][]map[string]any{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		u := &unstructured.Unstructured{}
		if err == nil {
			b, err = yaml.YAMLToJSON(b)
		}
		if err == nil {
			err = u.UnmarshalJSON(b)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[u.GroupVersionKind()] = append(found[u.GroupVersionKind()], u.Object)
	}
	return found
}

// decode reads an object by the Go type of its kind, as controllers do.
func decode(types *runtime.Scheme, k served, o *unstructured.Unstructured) error {
	versions := types.VersionsForGroupKind(k.GroupKind())
	if len(versions) != 1 {
		return fmt.Errorf("%s has %d Go types", k.GroupKind(), len(versions))
	}
	typed, err := types.New(versions[0].WithKind(k.Kind))
	if err != nil {
		return err
	}
	b, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, typed)
}

// TestCampaignObjects generates objects of all kinds and versions. What the API server accepts must decode, and
// the running controllers must survive those that are created. Most are dry runs, one in ten is created.
func TestCampaignObjects(t *testing.T) {
	const short, full, batch, create = 3000, 100_000, 100, 10
	e := begin(t, short/batch, full/batch)
	n := newTenant(t, testenv.NewGit(t))
	kinds, types := servedKinds(t), kubeclient.Scheme()
	objects, err := dynamic.NewForConfig(testenv.Cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, settings{namespace: n.namespace, isAlone: true})
	c.runs()
	var accepted, sent atomic.Int64
	e.each(func(i int, _ *rand.Rand) {
		group := guard.NewGroup("creating objects")
		group.SetLimit(8)
		for j := range batch {
			at := i*batch + j
			random := rand.New(rand.NewPCG(*seed, uint64(at)|1<<40))
			k := kinds[at%len(kinds)]
			o := generate(k, random, n.namespace, fmt.Sprintf("o-%d", at))
			group.Go(func() error {
				sent.Add(1)
				options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
				if at%create == 0 {
					options = metav1.CreateOptions{}
				}
				to := objects.Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Version,
					Resource: k.resource}).Namespace(n.namespace)
				got, err := to.Create(context.Background(), o, options)
				if err != nil {
					return refusal(err)
				}
				accepted.Add(1)
				if err := decode(types, k, got); err != nil {
					return fmt.Errorf("object %d, %s: %w: %v", at, k.GroupVersionKind, err, got.Object["spec"])
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			t.Error(err)
		}
		c.mustLive()
		if i%20 == 19 { // so that the controllers start over with what is there
			c.restart()
			c.runs()
		}
		removeAll(t, objects, kinds, n.namespace, i)
	})
	c.restart()
	c.runs()
	c.mustLive()
	e.note("%d sent, %d accepted and decoded, peak %d MiB", sent.Load(), accepted.Load(), c.peak)
	if accepted.Load() < sent.Load()/10 {
		t.Errorf("only %d of %d objects were accepted", accepted.Load(), sent.Load())
	}
}

// refusal returns an error unless the API server refused an object by its schema.
func refusal(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code < 500 {
		return nil
	}
	return err
}

// removeAll deletes the created objects from time to time.
func removeAll(t *testing.T, objects dynamic.Interface, kinds []served, namespace string, i int) {
	t.Helper()
	const every = 5
	if i%every != every-1 {
		return
	}
	for _, k := range kinds {
		if k.Version != k.stored {
			continue
		}
		err := objects.Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Version, Resource: k.resource}).
			Namespace(namespace).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			t.Error(err)
		}
	}
}
