// Package fluxlive has what the released kustomize-controller of Flux applied and left in a cluster: manifests of 39
// kinds, and the live objects with their managed fields. The data is not part of the project.
package fluxlive

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// The Kustomization whose objects were recorded.
const (
	Namespace = "flux-system"
	Name      = "k"
)

// Recording is what was recorded.
type Recording struct {
	Manifests string // of all objects
	Declared  []*unstructured.Unstructured

	testing.TB
	live    map[string]*unstructured.Unstructured // by key
	mapper  meta.ResettableRESTMapper
	dynamic dynamic.Interface
}

// Read returns the recording below $SLUICE_REALWORLD or ../shared/realworld; nil if there is none.
func Read(tb testing.TB, cfg *rest.Config) *Recording {
	tb.Helper()
	dir := os.Getenv("SLUICE_REALWORLD")
	if dir == "" {
		root, err := testenv.Root()
		if err != nil {
			tb.Fatal(err)
		}
		dir = filepath.Join(root, "..", "shared", "realworld")
	}
	dir = filepath.Join(dir, "flux-live")
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	r := &Recording{TB: tb, live: map[string]*unstructured.Unstructured{}}
	r.Manifests = string(r.read(filepath.Join(dir, "declared.yaml")))
	for doc := range strings.SplitSeq(r.Manifests, "\n---\n") {
		r.Declared = append(r.Declared, r.parse([]byte(doc)))
	}
	files, err := filepath.Glob(filepath.Join(dir, "live", "*.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, file := range files {
		o := r.parse(r.read(file))
		r.live[Key(o)] = o
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	r.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	if r.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		tb.Fatal(err)
	}
	return r
}

func (r *Recording) read(file string) []byte {
	r.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		r.Fatal(err)
	}
	return b
}

func (r *Recording) parse(text []byte) *unstructured.Unstructured {
	r.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &o.Object); err != nil {
		r.Fatal(err)
	}
	return o
}

// Key returns Kind/namespace/name.
func Key(o *unstructured.Unstructured) string {
	return o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
}

// Load creates the objects with the recorded values, then gives them the recorded managed fields. They are deleted at
// the end of the test.
func (r *Recording) Load() {
	r.Helper()
	r.Cleanup(r.remove)
	for _, o := range r.Declared {
		r.load(r.live[Key(o)])
	}
}

func (r *Recording) client(o *unstructured.Unstructured) dynamic.ResourceInterface {
	r.Helper()
	gvk := o.GroupVersionKind()
	var client dynamic.ResourceInterface
	testenv.Eventually(r, gvk.Kind+" is served", func() error {
		mapping, err := r.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			r.mapper.Reset()
			return err
		}
		client = r.dynamic.Resource(mapping.Resource)
		if o.GetNamespace() != "" {
			client = r.dynamic.Resource(mapping.Resource).Namespace(o.GetNamespace())
		}
		return nil
	})
	return client
}

// load creates an object with the recorded values, then gives it the recorded managed fields.
func (r *Recording) load(live *unstructured.Unstructured) {
	r.Helper()
	o := live.DeepCopy()
	fields := o.GetManagedFields()
	o.SetManagedFields(nil)
	o.SetCreationTimestamp(metav1.Time{})
	delete(o.Object, "status")
	if o.GetKind() == "Job" { // the labels have the uid of the object
		unstructured.RemoveNestedField(o.Object, "spec", "selector")
		unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata")
	}
	if ip, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP"); ip != "None" {
		unstructured.RemoveNestedField(o.Object, "spec", "clusterIP")
		unstructured.RemoveNestedField(o.Object, "spec", "clusterIPs")
	}
	client := r.client(o)
	testenv.Eventually(r, Key(o)+" is created", func() error {
		_, err := client.Create(context.Background(), o, metav1.CreateOptions{FieldManager: "loader"})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/metadata/managedFields", "value": fields}})
	if err != nil {
		r.Fatal(err)
	}
	loaded, err := client.Patch(context.Background(), o.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		r.Fatalf("%s: %v", Key(o), err)
	}
	for _, e := range fields { // the loader must own nothing
		isSame := func(l metav1.ManagedFieldsEntry) bool {
			return l.Manager == e.Manager && l.Operation == e.Operation && l.FieldsV1.String() == e.FieldsV1.String()
		}
		if e.Subresource == "" && !slices.ContainsFunc(loaded.GetManagedFields(), isSame) {
			r.Errorf("%s: the managed fields of %s were not loaded: %v", Key(o), e.Manager, loaded.GetManagedFields())
		}
	}
}

// remove deletes what was loaded.
func (r *Recording) remove() {
	for _, o := range slices.Backward(r.Declared) {
		if o.GetNamespace() != "" {
			continue // it ends with its namespace
		}
		err := r.client(o).Delete(context.Background(), o.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			r.Error(Key(o) + " is left: " + err.Error())
		}
	}
}
