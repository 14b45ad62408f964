package kustomization_test

import (
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/kustomization"
	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// passWaits is how long a pass waits for deletions that finalizers hold. It has to be longer than a request takes.
const passWaits = 2 * time.Second

// steps runs the passes of Kustomizations, with the helpers of a harness. What these wait for is there at once.
type steps struct {
	*harness
	system *system.Steps

	// due are the Kustomizations that edges have enqueued, and informers see what passes write.
	due       workqueue.TypedRateLimitingInterface[ctrl.Request]
	informers *informertest.FakeInformers
	seen      map[string]*kustomizev1.Kustomization // what the informers saw last
}

// newSteps creates a namespace without controllers. The controller is that of package manager, except that
// bases at URLs are refused.
func newSteps(t *testing.T, configure ...func(*options.Options)) *steps {
	t.Helper()
	s := system.NewSteps(t, configure...)
	s.Clusters.Remote = s.RemoteClusters()
	o := s.Options()
	c := &kustomization.Controller{
		Client: s.Client, Cache: s.Client, Live: s.Client, Artifacts: s.Artifacts, Applied: s.Applied,
		Promotable: s.Promotable, Clusters: s.Clusters, Events: s, Clock: o.GetClock(),
		Removal: rollout.Removal{Reader: s.Client, Namespace: o.RuntimeNamespace},
		Options: manager.KustomizationOptions(o),
	}
	c.Options.Decryption.Reader = s.Client
	informers := s.Informers()
	if err := c.ObserveDependencies(t.Context(), informers); err != nil {
		t.Fatal(err)
	}
	system.RunsPassesOf(s, reconcile.Kind[*kustomizev1.Kustomization]{GroupKind: kustomization.GroupKind,
		New: func() *kustomizev1.Kustomization { return &kustomizev1.Kustomization{} }, Step: c,
		GateBehavior: reconcile.HoldsSync})
	due := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	t.Cleanup(due.ShutDown)
	s.Kernel.Edges.SetQueue(kustomization.GroupKind, due)
	return &steps{harness: &harness{s.System}, system: s, due: due, informers: informers,
		seen: map[string]*kustomizev1.Kustomization{}}
}

// Commit is [system.Steps.Commit].
func (s *steps) Commit(name string, files map[string]string) string {
	s.Helper()
	return s.system.Commit(name, files)
}

// Pass runs one pass of a Kustomization, and lets the informers see what it wrote.
func (s *steps) Pass(name string) {
	s.Helper()
	s.system.Pass(name)
	k := &kustomizev1.Kustomization{}
	informer, err := s.informers.FakeInformerFor(s.Context(), k)
	if err != nil {
		s.Fatal(err)
	}
	before := s.seen[name]
	switch err := s.Get(k, name); {
	case apierrors.IsNotFound(err) && before == nil:
	case apierrors.IsNotFound(err):
		delete(s.seen, name)
		informer.Delete(before)
	case err != nil:
		s.Fatal(err)
	case before == nil:
		s.seen[name] = k
		informer.Add(k)
	default:
		s.seen[name] = k
		informer.Update(before, k)
	}
}

// follow runs the passes of the Kustomizations that edges have enqueued, until there are none.
func (s *steps) follow() {
	s.Helper()
	for s.due.Len() > 0 {
		request, _ := s.due.Get()
		s.due.Done(request)
		s.Pass(request.Name)
	}
}

// rollOut changes a GitRepository, and runs the passes of all Kustomizations that this causes.
func (s *steps) rollOut(name string, files map[string]string) string {
	s.Helper()
	commit := s.Commit(name, files)
	s.system.Kernel.Edges.NotifyDependents(reconcile.RefTo(
		schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.GitRepositoryKind}, s.Namespace, name))
	s.follow()
	return commit
}

// HasEvent is [system.Steps.HasEvent].
func (s *steps) HasEvent(name, reason string, texts ...string) int {
	s.Helper()
	return s.system.HasEvent(name, reason, texts...)
}

// countEvents returns how many events about an object contain a text.
func (s *steps) countEvents(name, text string) (n int) {
	for _, e := range s.system.EventsAbout(name) {
		if strings.Contains(e.Note, text) {
			n++
		}
	}
	return n
}

// apply creates a Kustomization of a path in a GitRepository, and runs its first pass.
func (s *steps) apply(name, source, path string, change ...func(*kustomizev1.Kustomization)) {
	s.Helper()
	s.Kustomization(name, source, path, change...)
	s.Pass(name)
}

// patch changes a Kustomization, and runs a pass.
func (s *steps) patch(name, patch string) {
	s.Helper()
	s.Patch(&kustomizev1.Kustomization{}, name, patch)
	s.Pass(name)
}

// request requests a pass of a Kustomization by annotation, and runs it.
func (s *steps) request(name string) {
	s.Helper()
	s.Requested(&kustomizev1.Kustomization{}, name, s.Pass)
}

// removes deletes a Kustomization, and runs the pass that finalizes it.
func (s *steps) removes(name string) {
	s.Helper()
	s.remove(&kustomizev1.Kustomization{}, name)
	s.Pass(name)
}

// may creates a service account with these permissions, and waits until the API server knows of them.
func (s *steps) may(account string, rules ...rbacv1.PolicyRule) {
	s.Helper()
	s.harness.may(account, rules...)
	for _, r := range rules {
		testenv.AwaitRight(s, authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + s.Namespace + ":" + account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: s.Namespace, Group: r.APIGroups[0],
				Resource: r.Resources[0], Verb: r.Verbs[0]}}, true)
	}
}
