package helmrelease

import (
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/kubewatch"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
)

// storedWatch finds out whether stored releases have changed since they were read. It watches the metadata of the
// Secrets that hold releases, as one account of one cluster may read them. So an unchanged release is not read again.
type storedWatch struct {
	mu    sync.Mutex
	store *kubewatch.Store[*metav1.PartialObjectMetadata, string, reconcile.Ref]
	looks map[reconcile.Ref]look // the last one of each HelmRelease
}

// look is what a HelmRelease looks at: its newest release and the one that would follow it.
type look struct {
	watch      *kubewatch.Watch[*metav1.PartialObjectMetadata, string, reconcile.Ref]
	last, next types.NamespacedName
}

func newStoredWatch(client kubewatch.Client[*metav1.PartialObjectMetadata]) *storedWatch {
	s := &storedWatch{looks: map[reconcile.Ref]look{}}
	s.store = kubewatch.New(&s.mu, client, kubewatch.Handler[*metav1.PartialObjectMetadata, string, reconcile.Ref]{})
	return s
}

// storedName returns the name of the Secret in which Helm stores a version of a release.
func storedName(namespace, release string, version int) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("sh.helm.release.v1.%s.v%d", release, version)}
}

// version returns the resource version of a stored release, if it is the newest one of its name. It returns "" if that
// is not known: the watch has just begun, is broken or refused, or the release is no longer the newest.
func (s *storedWatch) version(owner reconcile.Ref, namespace, release string, version int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := look{s.watch(namespace), storedName(namespace, release, version), storedName(namespace, release, version+1)}
	if s.looks[owner] != l {
		s.end(owner)
		s.looks[owner] = l
		l.watch.Subscribe(l.last, owner)
		l.watch.Subscribe(l.next, owner)
	}
	if _, replaced := l.watch.Value(l.next); replaced || !l.watch.Live() {
		return ""
	}
	found, _ := l.watch.Value(l.last)
	return found
}

// watch returns the watch of all namespaces or, if the cluster refused that, of one. The caller holds the lock.
func (s *storedWatch) watch(namespace string) *kubewatch.Watch[*metav1.PartialObjectMetadata, string, reconcile.Ref] {
	key := kubewatch.Key{Resource: corev1.SchemeGroupVersion.WithResource("secrets"), LabelSelector: "owner=helm"}
	versionOf := func(o *metav1.PartialObjectMetadata) string { return o.ResourceVersion }
	w := s.store.Watch(key, versionOf)
	if w.Refusal() != nil {
		key.Namespace = namespace
		w = s.store.Watch(key, versionOf)
	}
	return w
}

// forget ends what a HelmRelease looks at.
func (s *storedWatch) forget(owner reconcile.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(owner)
}

// end stops the watch of one namespace after its last use. The caller holds the lock.
func (s *storedWatch) end(owner reconcile.Ref) {
	l, ok := s.looks[owner]
	if !ok {
		return
	}
	delete(s.looks, owner)
	l.watch.Unsubscribe(l.last, owner)
	l.watch.Unsubscribe(l.next, owner)
	if !l.watch.HasSubscribers() && l.watch.Key().Namespace != "" {
		s.store.Remove(l.watch)
	}
}

func (s *storedWatch) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store.Close()
}

// storedWatch returns the watch of the releases in the target, which ends with the target.
func (r *run) storedWatch() *storedWatch {
	return r.stored.Of(r.target, func() *storedWatch {
		return newStoredWatch(kubewatch.Metadata(r.target.Cluster.Metadata()))
	}, (*storedWatch).close)
}

// forgetStored ends what a HelmRelease looks at in a target.
func (c *Controller) forgetStored(t *rollout.Target, owner reconcile.Ref) {
	if w, ok := c.stored.Get(t); ok {
		w.forget(owner)
	}
}

// settled identifies a release that is as declared: what was declared, and what was stored.
type settled struct {
	stored     string // resource version
	release    string // digest of the snapshot
	generation int64
	chart      chartInfo

	config, postRenderers, commonMetadata string
}

// look returns what identifies the release if it is as declared. The field stored is empty if the release must be read.
func (r *run) look() settled {
	if len(r.obj.Status.History) == 0 || r.forced || r.pass.Requested {
		return settled{}
	}
	s := r.obj.Status.History[0]
	return settled{
		stored:  r.storedWatch().version(refOf(r.obj), r.storage.namespace, s.Name, s.Version),
		release: s.Digest, generation: r.obj.Generation, chart: r.chart, config: r.configDigest,
		postRenderers: r.postRenderersDigest, commonMetadata: r.commonMetadataDigest,
	}
}

// isUnchanged reports whether the release was as declared in an earlier pass, and nothing has changed since: neither
// what is declared, nor what is stored, nor a live object.
func (r *run) isUnchanged(now settled) bool {
	if now.stored == "" || now != r.state.settled || r.obj.Status.Inventory == nil ||
		!apimeta.IsStatusConditionTrue(r.obj.Status.Conditions, helmv2.ReleasedCondition) {
		return false
	}
	return r.obj.DriftMode() == meta.DriftDisabled || !r.needsCorrection(rollout.OwnerOf(refOf(r.obj)))
}
