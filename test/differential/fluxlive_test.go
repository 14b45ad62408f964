package differential

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/fluxlive"
)

// fluxOwner is the Kustomization whose objects were recorded.
var fluxOwner = apply.Owner{Group: "kustomize.toolkit.fluxcd.io", Namespace: fluxlive.Namespace, Name: fluxlive.Name}

// recording is what the released kustomize-controller applied, and left in a cluster.
type recording struct {
	*testing.T
	recorded *fluxlive.Recording
	cfg      *rest.Config
	writes   atomic.Int64 // requests but dry-runs
}

// TestObjectsThatFluxLeftDoNotChange loads the objects that the released kustomize-controller left in a cluster, with
// their managed fields, and applies their manifests: all of them, and random parts of the set.
func TestObjectsThatFluxLeftDoNotChange(t *testing.T) {
	cfg := testenv.Cluster(t)
	recorded := fluxlive.Read(t, cfg)
	if recorded == nil {
		t.Skip("SLUICE_REALWORLD is not set: set it to the directory with flux-live. " +
			"TestObjectsThatFluxAppliedDoNotChange of internal/cluster/apply has a case for each kind")
	}
	recorded.Load()
	r := &recording{T: t, recorded: recorded, cfg: cfg}
	if len(r.recorded.Declared) != 39 {
		t.Errorf("%d objects were loaded, want 39", len(r.recorded.Declared))
	}
	r.changesNothing("all objects", r.recorded.Declared)
	random := rand.New(rand.NewPCG(36, 39)) //nolint:gosec // it must repeat
	for round := range 10 {
		part := slices.DeleteFunc(slices.Clone(r.recorded.Declared), func(*unstructured.Unstructured) bool {
			return random.Float64() < 0.5
		})
		r.changesNothing(fmt.Sprint("part ", round), part)
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

// changesNothing checks a preview, drift detection and an apply, each of a new process.
func (r *recording) changesNothing(what string, declared []*unstructured.Unstructured) {
	r.Helper()
	request := apply.Request{Owner: fluxOwner, Objects: declared, Native: true}
	for _, o := range r.recorded.Declared {
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
