package system

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"maps"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/credentials/seal"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// retried is how long a check in a test of passes may fail. Only the test itself changes objects, so that a check fails
// again, unless a busy API server did not answer.
const retried = 10 * time.Second

// Steps is a namespace without controllers, in which a test runs the passes of one kind itself. What it reads and
// applies is on the API server; sources have the artifacts that the test gives them. So a test starts nothing, and
// waits for nothing.
type Steps struct {
	*System
	Kernel     *reconcile.Kernel
	Store      *artifact.Store
	Artifacts  *artifact.Fetcher
	Applied    *artifact.AppliedStore
	Promotable *artifact.PromotableStore
	Clusters   *rollout.Clusters

	passes  ctrlreconcile.Reconciler
	files   map[string]map[string]string // of the GitRepositories
	commits int

	mu     sync.Mutex
	events []eventsv1.Event
}

// NewSteps creates a namespace of the test. [RunsPassesOf] says which kind it is for.
func NewSteps(t *testing.T, configure ...func(*options.Options)) *Steps {
	t.Helper()
	s := &Steps{System: prepare(t, configure...), files: map[string]map[string]string{}}
	s.within = retried
	o, cfg := s.Options(), testenv.Cluster(t)
	store, err := artifact.OpenStore(filepath.Join(t.TempDir(), "artifacts"), "127.0.0.1:1",
		artifact.Retention{TTL: o.RetentionTTL, Count: o.RetentionCount})
	if err != nil {
		t.Fatal(err)
	}
	s.Store = store
	s.Artifacts = &artifact.Fetcher{Store: store, WithoutLinks: !o.FollowsSymlinks()}
	s.Applied = artifact.NewAppliedStore(filepath.Join(t.TempDir(), "applied"), s.Artifacts)
	s.Promotable = artifact.NewPromotableStore(filepath.Join(t.TempDir(), "promotable"), s.Artifacts)
	s.Kernel = &reconcile.Kernel{Client: s.Client, Edges: reconcile.NewEdges(), Events: s, Clock: o.GetClock(),
		Retry: o.Retry, Seals: seal.New(make([]byte, seal.Size)), Live: s.Client}
	reviewer, err := accessreview.New(cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	dependencies, err := rollout.NewDependencyWatch(cfg, s.Kernel.Edges, reviewer)
	if err != nil {
		t.Fatal(err)
	}
	s.Clusters = &rollout.Clusters{Config: cfg, Edges: s.Kernel.Edges, Dependencies: dependencies,
		Claims: &rollout.Claims{Edges: s.Kernel.Edges}, Apply: o.ApplyOptions()}
	t.Cleanup(func() {
		s.Clusters.Close()
		dependencies.Close()
	})
	return s
}

// RunsPassesOf sets the kind whose passes [Steps.Pass] runs.
func RunsPassesOf[T reconcile.Object](s *Steps, kind reconcile.Kind[T]) {
	s.passes = reconcile.NewPasses(s.Kernel, kind)
}

// Informers is a cache whose informers see nothing, for controllers that observe what others change.
func (s *Steps) Informers() *informertest.FakeInformers {
	return &informertest.FakeInformers{Scheme: kubeclient.Scheme()}
}

// Pass runs one pass of an object. Like the controllers, it runs the pass again if the API server took too long to
// write the status, as it may on a machine under load.
func (s *Steps) Pass(name string) ctrl.Result {
	s.Helper()
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: s.Namespace, Name: name}}
	result, err := s.passes.Reconcile(s.Context(), request)
	for errors.Is(err, context.DeadlineExceeded) && s.Context().Err() == nil {
		result, err = s.passes.Reconcile(s.Context(), request)
	}
	if err != nil {
		s.Fatalf("pass of %s: %v", name, err)
	}
	return result
}

// Commit writes files to a GitRepository, which is created if there is none, as [testenv.Git.Commit] does to a git
// repository: an empty content deletes. It returns the name of the commit.
func (s *Steps) Commit(name string, files map[string]string) string {
	s.Helper()
	all := s.files[name]
	if all == nil {
		all = map[string]string{}
		s.files[name] = all
		s.GitRepository(name, func(g *sourcev1.GitRepository) { g.Spec.URL = "https://git.invalid/" + name })
	}
	maps.Copy(all, files)
	maps.DeleteFunc(all, func(_, content string) bool { return content == testenv.Delete })
	s.commits++
	sum := sha1.Sum([]byte(name + strconv.Itoa(s.commits)))
	commit := hex.EncodeToString(sum[:])
	g := &sourcev1.GitRepository{}
	if err := s.Get(g, name); err != nil {
		s.Fatal(err)
	}
	s.put(g, artifact.FromMap(all), "main@sha1:"+commit)
	return commit
}

// put gives a source an artifact.
func (s *Steps) put(obj source.Object, tree *artifact.Tree, revision string) {
	s.Helper()
	gvk, err := s.Client.GroupVersionKindFor(obj)
	if err != nil {
		s.Fatal(err)
	}
	key := artifact.Key{Kind: gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	a, err := s.Store.Put(s.Context(), key, tree, revision, obj.GetArtifact())
	if err != nil {
		s.Fatal(err)
	}
	s.setArtifact(obj, a)
}

func (s *Steps) setArtifact(obj source.Object, a *meta.Artifact) {
	s.Helper()
	base := obj.DeepCopyObject().(client.Object)
	obj.SetArtifact(a)
	status := obj.CommonStatus()
	status.ObservedGeneration = obj.GetGeneration()
	status.Conditions = []metav1.Condition{{Type: reconcile.TypeReady, Status: metav1.ConditionTrue,
		Reason: meta.SucceededReason, Message: "stored artifact", LastTransitionTime: metav1.Now(),
		ObservedGeneration: obj.GetGeneration()}}
	if err := s.Client.Status().Patch(s.Context(), obj, client.MergeFrom(base)); err != nil {
		s.Fatal(err)
	}
}
