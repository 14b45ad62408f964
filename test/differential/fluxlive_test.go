package differential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// fluxOwner is the Kustomization whose objects were recorded.
var fluxOwner = apply.Owner{Group: "kustomize.toolkit.fluxcd.io", Namespace: "flux-system", Name: "k"}

// recording is what the released kustomize-controller applied, and what it left in a cluster.
type recording struct {
	*testing.T
	cfg      *rest.Config
	target   *apply.Cluster
	writes   atomic.Int64 // requests that are no dry-runs
	declared []*unstructured.Unstructured
	live     map[string]*unstructured.Unstructured // by key
}

// TestObjectsThatFluxLeftDoNotChange loads the objects that the released kustomize-controller left in a cluster, with
// their managed fields, and applies their manifests: all of them, and random parts of the set.
func TestObjectsThatFluxLeftDoNotChange(t *testing.T) {
	dir := filepath.Join(os.Getenv("SLUICE_REALWORLD"), "flux-live")
	if os.Getenv("SLUICE_REALWORLD") == "" {
		root, err := testenv.Root()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(root, "..", "shared", "realworld", "flux-live")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skip("SLUICE_REALWORLD is not set: set it to the directory with flux-live. " +
			"TestObjectsThatFluxAppliedDoNotChange of internal/apply has a case for each kind")
	}
	r := &recording{T: t, cfg: testenv.Cluster(t), live: map[string]*unstructured.Unstructured{}}
	r.read(dir)
	r.target = r.connect()
	r.Cleanup(r.remove)
	for _, o := range r.declared {
		r.load(r.live[key(o)])
	}
	if len(r.declared) != 39 {
		t.Errorf("%d objects were loaded, want 39", len(r.declared))
	}
	r.changesNothing("all objects", r.declared)
	random := rand.New(rand.NewPCG(36, 39)) //nolint:gosec // it must repeat
	for round := range 10 {
		part := slices.DeleteFunc(slices.Clone(r.declared), func(*unstructured.Unstructured) bool {
			return random.Float64() < 0.5
		})
		r.changesNothing(fmt.Sprint("part ", round), part)
	}
}

func key(o *unstructured.Unstructured) string {
	return o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
}

// read reads the manifests and the live objects.
func (r *recording) read(dir string) {
	r.Helper()
	parse := func(text []byte) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			r.Fatal(err)
		}
		return o
	}
	b, err := os.ReadFile(filepath.Join(dir, "declared.yaml"))
	if err != nil {
		r.Fatal(err)
	}
	for doc := range strings.SplitSeq(string(b), "\n---\n") {
		r.declared = append(r.declared, parse([]byte(doc)))
	}
	files, err := filepath.Glob(filepath.Join(dir, "live", "*.yaml"))
	if err != nil {
		r.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			r.Fatal(err)
		}
		o := parse(b)
		r.live[key(o)] = o
	}
}

// connect returns a cluster as a new process has it. It counts requests that write.
func (r *recording) connect() *apply.Cluster {
	r.Helper()
	cfg := rest.CopyConfig(r.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) {
			isReview := strings.Contains(req.URL.Path, "authorization.k8s.io")
			if req.Method != http.MethodGet && req.URL.Query().Get("dryRun") == "" && !isReview {
				r.writes.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	c, err := apply.NewCluster(cfg, apply.ClusterOptions{})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(c.Close)
	return c
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (r *recording) client(o *unstructured.Unstructured) dynamic.ResourceInterface {
	r.Helper()
	gvk := o.GroupVersionKind()
	var client dynamic.ResourceInterface
	testenv.Eventually(r.T, gvk.Kind+" is served", func() error {
		mapping, err := r.target.Mapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			r.target.Mapper().Reset()
			return err
		}
		client = r.target.Dynamic().Resource(mapping.Resource)
		if o.GetNamespace() != "" {
			client = r.target.Dynamic().Resource(mapping.Resource).Namespace(o.GetNamespace())
		}
		return nil
	})
	return client
}

// load creates an object with the recorded values, then gives it the recorded managed fields.
func (r *recording) load(live *unstructured.Unstructured) {
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
	testenv.Eventually(r.T, key(o)+" is created", func() error {
		_, err := client.Create(r.Context(), o, metav1.CreateOptions{FieldManager: "loader"})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/metadata/managedFields", "value": fields}})
	if err != nil {
		r.Fatal(err)
	}
	loaded, err := client.Patch(r.Context(), o.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		r.Fatalf("%s: %v", key(o), err)
	}
	for _, e := range fields { // the loader must own nothing
		isSame := func(l metav1.ManagedFieldsEntry) bool {
			return l.Manager == e.Manager && l.Operation == e.Operation && l.FieldsV1.String() == e.FieldsV1.String()
		}
		if e.Subresource == "" && !slices.ContainsFunc(loaded.GetManagedFields(), isSame) {
			r.Errorf("%s: the managed fields of %s were not loaded: %v", key(o), e.Manager, loaded.GetManagedFields())
		}
	}
}

// changesNothing checks a preview, drift detection and an apply, each of a new process.
func (r *recording) changesNothing(what string, declared []*unstructured.Unstructured) {
	r.Helper()
	request := apply.Request{Owner: fluxOwner, Objects: declared, Native: true}
	for _, o := range r.declared {
		gvk := o.GroupVersionKind()
		request.Previous = append(request.Previous, apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind,
			Namespace: o.GetNamespace(), Name: o.GetName()}.Entry())
	}
	inventory := request.Previous
	request.Previous = nil // what is not declared is not pruned
	before := r.writes.Load()
	check := func(by string, changes []apply.Change, err error) {
		r.Helper()
		if err != nil {
			r.Errorf("%s: %s: %v", what, by, err)
		}
		if len(changes) != len(declared) {
			r.Errorf("%s: %s: %d results, want %d", what, by, len(changes), len(declared))
		}
		for _, c := range changes {
			if c.Action != apply.Unchanged || c.Diff != "" || len(c.Unknown) > 0 {
				r.Errorf("%s: %s: %s %s\n%s", what, by, c.Ref, c.Action, c.Diff)
			}
		}
	}
	changes, err := r.connect().Diff(r.Context(), request)
	check("diff", changes, err)
	drift := request
	drift.SameDeclaration = true
	changes, err = r.connect().DetectDrift(r.Context(), drift)
	check("drift", changes, err)
	request.Previous = inventory
	target := r.connect()
	result, err := target.Apply(r.Context(), request)
	check("apply", result.Changes, err)
	request.Resync = true
	result, err = target.Apply(r.Context(), request)
	check("resync", result.Changes, err)
	if n := r.writes.Load() - before; n > 0 {
		r.Errorf("%s: %d requests wrote", what, n)
	}
}

// remove deletes what was loaded.
func (r *recording) remove() {
	for _, o := range slices.Backward(r.declared) {
		if o.GetNamespace() != "" {
			continue // it ends with its namespace
		}
		err := r.client(o).Delete(context.Background(), o.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			r.Error(errors.Join(fmt.Errorf("%s is left", key(o)), err))
		}
	}
}
