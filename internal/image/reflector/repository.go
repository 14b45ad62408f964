// Package reflector reconciles ImageRepositories and ImagePolicies: it scans registries, keeps what it finds,
// and tells which image is the latest. What it keeps can be read over HTTP.
package reflector

import (
	"context"
	"errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"slices"
	"strings"
	"sync"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/registry"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies,verbs=get;list
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies,verbs=watch;create
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories;imagepolicies,verbs=update;patch;delete
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories/status;imagepolicies/status,verbs=get
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories/status;imagepolicies/status,verbs=update
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories/status;imagepolicies/status,verbs=patch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories/finalizers,verbs=get
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagepolicies/finalizers,verbs=get
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories/finalizers,verbs=create
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagepolicies/finalizers,verbs=create
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories/finalizers,verbs=update
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagepolicies/finalizers,verbs=update
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories/finalizers,verbs=patch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagepolicies/finalizers,verbs=patch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagerepositories/finalizers,verbs=delete
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagepolicies/finalizers,verbs=delete
// +kubebuilder:rbac:groups="",resources=namespaces;pods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets;serviceaccounts,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments;statefulsets;daemonsets;replicasets,verbs=get
// +kubebuilder:rbac:groups=batch,resources=jobs;cronjobs,verbs=get

// The kinds, as the kernel knows them.
var (
	RepositoryGroupKind = schema.GroupKind{Group: imagev1.GroupVersion.Group, Kind: imagev1.ImageRepositoryKind}
	PolicyGroupKind     = schema.GroupKind{Group: imagev1.GroupVersion.Group, Kind: imagev1.ImagePolicyKind}
)

// latestTags is how many tags a status names.
const latestTags = 10

// Repositories scans registries, and keeps what it finds.
type Repositories struct {
	Registries *access.Registries
	Store      *store.Store
	Objects    client.Reader // the cache, in which policies are found by [IndexPolicies]
	Edges      *reconcile.Edges
	Clock      clock.PassiveClock

	mu   sync.Mutex
	kept map[types.UID]*keptRepository
}

// keptRepository is what is kept of an object between passes: a login, and where looking at tags anew goes on.
type keptRepository struct {
	*registry.Repository
	key    string // of the access that it was opened with
	cursor int
}

// References implements [reconcile.Step].
func (r *Repositories) References(obj *imagev1.ImageRepository) []reconcile.Ref {
	return accessOf(obj).References()
}

// Reconcile scans the repository. What a scan finds is kept as soon as it is known, however the pass ends.
func (r *Repositories) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*imagev1.ImageRepository]) reconcile.Outcome {
	obj := pass.Object
	if last := obj.Status.LastScanResult; last != nil && obj.Status.ObservedGeneration == obj.Generation {
		pass.CurrentRevision = last.Revision
	}
	repo, err := r.open(ctx, obj)
	if err != nil {
		return reconcile.Failed(err)
	}
	before, found, err := r.scan(ctx, obj, repo)
	if err != nil {
		return reconcile.Failed(err)
	}
	left, cut := r.look(ctx, obj, repo, found)
	revision := found.Identity()
	if held := pass.Admit(revision); held != nil {
		return reconcile.Failed(held)
	}
	if pass.IsHeld() {
		return reconcile.Held(meta.Pending{})
	}
	if err := r.keep(obj, before, found, revision); err != nil {
		return reconcile.Failed(err)
	}
	if cut != nil {
		return reconcile.Failed(cut)
	}
	if left > 0 { // the next pass goes on: other objects get their turn
		r.Edges.Enqueue(refOf(obj))
		return reconcile.Ready(meta.SucceededReason,
			"successful scan: found %d tags. What %d of them point to is yet to be read", found.Len(), left)
	}
	o := reconcile.Ready(meta.SucceededReason, "successful scan: found %d tags", found.Len())
	if before != nil && before.Revision == revision {
		return o.Unchanged()
	}
	return o.WithMetadata("revision", revision)
}

// open returns the object's kept repository, a new one if the access to it is not as it was.
func (r *Repositories) open(ctx context.Context, obj *imagev1.ImageRepository) (*keptRepository, error) {
	name, err := registry.ParseName(obj.Spec.Image, obj.Spec.Insecure)
	if err != nil {
		return nil, err
	}
	a := accessOf(obj)
	a.URL = registry.URL(name)
	reach, key, err := r.Registries.Access(ctx, a)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.kept[obj.UID]; k != nil && k.key == key {
		return k, nil
	}
	repo, err := registry.Open(name, reach)
	if err != nil {
		return nil, err
	}
	if r.kept == nil {
		r.kept = map[types.UID]*keptRepository{}
	}
	r.kept[obj.UID] = &keptRepository{Repository: repo, key: key}
	return r.kept[obj.UID], nil
}

// scan lists the tags. It returns what was known before, if that is of the same image, and what is known now.
func (r *Repositories) scan(ctx context.Context, obj *imagev1.ImageRepository, repo *keptRepository) (before,
	now *store.Repository, err error) {
	excluded, err := registry.CompileExclusions(obj.Spec.ExclusionList)
	if err != nil {
		return nil, nil, err
	}
	image := repo.Name()
	before, err = r.Store.Load(keyOf(obj))
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && before.Image != image:
		before = nil
	case err != nil:
		return nil, nil, unstored(err)
	}
	scan, err := repo.Scan(ctx, before, excluded)
	if err != nil {
		return nil, nil, err
	}
	return before, &store.Repository{Image: image, Excluded: obj.Spec.ExclusionList, Scanned: r.Clock.Now().UTC(),
		Pages: scan.Pages}, nil
}

// keep stores what was found if it is not what was there, tells it in the status, and wakes the policies.
func (r *Repositories) keep(obj *imagev1.ImageRepository, before, found *store.Repository, revision string) error {
	if before == nil || !same(before, found, revision) {
		if err := r.Store.Put(keyOf(obj), found); err != nil {
			return unstored(err)
		}
	}
	obj.Status.CanonicalImageName = found.Image
	obj.Status.ObservedExclusionList = found.Excluded
	obj.Status.LastScanResult = &imagev1.ScanResult{
		Revision: revision, TagCount: found.Len(), ScanTime: meta.TimeOf(found.Scanned), LatestTags: latest(found),
	}
	tagsMetric.WithLabelValues(obj.Namespace, obj.Name).Set(float64(found.Len()))
	if before == nil || before.Revision != revision {
		r.Edges.NotifyDependents(refOf(obj))
	}
	return nil
}

// same tells whether nothing is to be written: neither tags nor what is to be asked to have them again.
func same(before, found *store.Repository, revision string) bool {
	return before.Revision == revision && slices.Equal(before.Excluded, found.Excluded) &&
		slices.EqualFunc(before.Pages, found.Pages,
			func(a, b store.Page) bool { return a.URL == b.URL && a.ETag == b.ETag && a.Sum == b.Sum })
}

// latest returns the last tags in reverse alphabetical order.
func latest(r *store.Repository) []string {
	var last []string
	for t := range r.Tags() {
		at, _ := slices.BinarySearchFunc(last, t.Name,
			func(have, name string) int { return strings.Compare(name, have) })
		if at < latestTags {
			last = slices.Insert(last, at, t.Name)
			last = last[:min(len(last), latestTags)]
		}
	}
	return last
}

// Finalize forgets what was found.
func (r *Repositories) Finalize(_ context.Context, obj *imagev1.ImageRepository) error {
	r.mu.Lock()
	delete(r.kept, obj.UID)
	r.mu.Unlock()
	tagsMetric.DeleteLabelValues(obj.Namespace, obj.Name)
	return r.Store.Remove(keyOf(obj))
}

// RepositoryMoved tells whether a change of a repository is one that policies are to look at.
func RepositoryMoved(before, after *imagev1.ImageRepository) bool {
	return before.Generation != after.Generation || revisionOf(before) != revisionOf(after)
}

func revisionOf(r *imagev1.ImageRepository) string {
	if r.Status.LastScanResult == nil {
		return ""
	}
	return r.Status.LastScanResult.Revision
}

func accessOf(obj *imagev1.ImageRepository) access.Registry {
	return access.Registry{
		Namespace: obj.Namespace, Insecure: obj.Spec.Insecure, Provider: obj.Spec.Provider,
		Secret: obj.Spec.SecretRef, Cert: obj.Spec.CertSecretRef, Proxy: obj.Spec.ProxySecretRef,
		ServiceAccount: obj.Spec.ServiceAccountName,
	}
}

func keyOf(obj *imagev1.ImageRepository) store.Key {
	return store.Key{Namespace: obj.Namespace, Name: obj.Name}
}

func refOf(obj *imagev1.ImageRepository) reconcile.Ref {
	return reconcile.RefTo(RepositoryGroupKind, obj.Namespace, obj.Name)
}

func unstored(err error) error {
	return fault.New(meta.StorageOperationFailedReason, "what is known of tags cannot be read or written").Because(err).
		WithHint("Check the space in --storage-path, and who may write there")
}
