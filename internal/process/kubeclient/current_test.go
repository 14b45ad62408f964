package kubeclient

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
)

// versions is a cache or an API server that has one GitRepository in a version, or none.
type versions struct {
	client.Client // nil: other methods are not called
	version       string
	revision      string
	reads         int
}

func (v *versions) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return sourcev1.GroupVersion.WithKind(sourcev1.GitRepositoryKind), nil
}

func (v *versions) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	v.reads++
	if v.version == "" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "gitrepositories"}, key.Name)
	}
	o := obj.(*sourcev1.GitRepository)
	o.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: v.version}
	if v.revision != "" { // like a decoder, which keeps what the answer does not have
		o.Status.Artifact = &meta.Artifact{Revision: v.revision}
	}
	return nil
}

// TestMovedObjectsSeeCurrentSources has a replica that was cut off: its cache is older than what the replica before
// worked with, until its watches are connected again.
func TestMovedObjectsSeeCurrentSources(t *testing.T) {
	cache, server := &versions{version: "10", revision: "old"}, &versions{version: "12", revision: "new"}
	c := &currentClient{Client: cache, live: server, ahead: map[string]string{}}
	shards := &shard.Shards{}
	shards.Join("a")
	view := shard.NewView("a")
	shards.Follow(view, view, nil)
	pass := func() (revision string, found bool) {
		t.Helper()
		work, ok := shards.Begin(t.Context(), "Kustomization default/app", "Kustomization default/app")
		if !ok {
			t.Fatal("the object is not this replica's")
		}
		defer work.End()
		var o sourcev1.GitRepository
		err := c.Get(work.Context, client.ObjectKey{Namespace: "default", Name: "app"}, &o)
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if o.Status.Artifact == nil {
			return "", err == nil
		}
		return o.Status.Artifact.Revision, err == nil
	}
	expect := func(name, revision string, found bool, reads int) {
		t.Helper()
		server.reads = 0
		if got, ok := pass(); got != revision || ok != found || server.reads != reads {
			t.Errorf("%s: revision %q, found %t, %d reads of the API server, want %q, %t, %d", name, got, ok,
				server.reads, revision, found, reads)
		}
	}
	expect("first pass", "new", true, 1)
	expect("the cache is still behind", "new", true, 1)
	cache.version = ""
	expect("the cache does not have it yet", "new", true, 1)
	cache.version, server.revision = "10", ""
	expect("the artifact is gone", "", true, 1)
	cache.version, cache.revision = "12", "newer"
	expect("the cache has caught up", "newer", true, 0)
	expect("the cache alone", "newer", true, 0)

	shards.Leave()
	shards.Join("b")
	view = shard.NewView("b")
	shards.Follow(view, view, nil)
	server.version = ""
	expect("first pass, deleted at the server", "", false, 1)
	expect("only the cache has it", "", false, 1)
	cache.version = ""
	expect("nothing has it", "", false, 0)
	cache.version = "13"
	expect("it was created again", "newer", true, 0)
}

// TestRequestedPassesSeeCurrentSources has a user who requests a pass of a Kustomization right after the source has
// reported a new artifact, which the cache does not have yet. No pass goes back to the old artifact.
func TestRequestedPassesSeeCurrentSources(t *testing.T) {
	cache, server := &versions{version: "10", revision: "old"}, &versions{version: "12", revision: "new"}
	c := &currentClient{Client: cache, live: server, ahead: map[string]string{}}
	requested := resourceversion.WithCurrent(t.Context())
	expect := func(ctx context.Context, name, revision string, reads int) {
		t.Helper()
		server.reads = 0
		var o sourcev1.GitRepository
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "app"}, &o); err != nil {
			t.Fatal(err)
		}
		if got := o.Status.Artifact.Revision; got != revision || server.reads != reads {
			t.Errorf("%s: revision %q, %d reads of the API server, want %q, %d", name, got, server.reads, revision,
				reads)
		}
	}
	expect(t.Context(), "a pass that was not requested", "old", 0)
	expect(requested, "a requested pass", "new", 1)
	expect(t.Context(), "the next pass, while the cache is behind", "new", 1)
	cache.version, cache.revision = "12", "new"
	expect(t.Context(), "the cache has caught up", "new", 0)
	expect(requested, "another requested pass", "new", 1)
	if len(c.ahead) != 0 {
		t.Errorf("versions are kept of objects that the cache has: %v", c.ahead)
	}
}
