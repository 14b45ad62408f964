// Package reflector has the controllers of ImageRepositories, which scan registries and store the tags, and
// of ImagePolicies, which choose the latest image. The tags can be read over HTTP.
package reflector

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/registry"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/text/fault"
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

// The kinds of this package.
var (
	RepositoryGroupKind = schema.GroupKind{Group: imagev1.GroupVersion.Group, Kind: imagev1.ImageRepositoryKind}
	PolicyGroupKind     = schema.GroupKind{Group: imagev1.GroupVersion.Group, Kind: imagev1.ImagePolicyKind}
)

// latestTags is how many tags a status lists.
const latestTags = 10

// Repositories is the domain step of ImageRepositories: it scans registries and stores the tags.
type Repositories struct {
	Registries *access.Registries
	Store      *store.Store
	Objects    client.Reader // the cache, with the index of [IndexPolicies]
	Edges      *reconcile.Edges
	Clock      clock.PassiveClock

	open reconcile.PerObject[openRepository]
}

// openRepository is the state of an object between passes.
type openRepository struct {
	*registry.Repository
	key    string // identifies the access that it was opened with
	cursor int    // index of the known tag that was read again last
}

// References implements [reconcile.Step].
func (r *Repositories) References(obj *imagev1.ImageRepository) []reconcile.Ref {
	return accessOf(obj).References()
}

// Reconcile implements [reconcile.Step]: it scans the repository. Tags are stored even if not all details
// could be read.
func (r *Repositories) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*imagev1.ImageRepository]) reconcile.Outcome {
	obj := pass.Object
	if last := obj.Status.LastScanResult; last != nil && obj.Status.ObservedGeneration == obj.Generation {
		pass.CurrentRevision = last.Revision
	}
	repo, err := r.repository(ctx, obj)
	if err != nil {
		return reconcile.Failed(err)
	}
	before, found, err := r.scan(ctx, obj, repo)
	if err != nil {
		return reconcile.Failed(err)
	}
	lease, err := guard.BudgetOf(ctx).Acquire(ctx, "reading the tags of an image repository", found.Memory())
	if err != nil {
		return reconcile.Failed(err)
	}
	guard.HoldWhile(lease, found)
	left, incomplete := r.readDetails(ctx, obj, repo, found, lease)
	lease.Shrink(found.Memory())
	revision := found.Identity()
	if held := pass.Admit(revision); held != nil {
		return reconcile.Failed(held)
	}
	if pass.IsHeld() {
		return reconcile.Held(meta.Pending{})
	}
	if err := r.store(obj, before, found, revision); err != nil {
		return reconcile.Failed(err)
	}
	if incomplete != nil {
		return reconcile.Failed(incomplete)
	}
	if left > 0 { // the next pass continues, so that other objects are not delayed
		r.Edges.Enqueue(refOf(obj))
		return reconcile.Ready(meta.SucceededReason,
			"successful scan: found %d tags; the details of %d are still to be read", found.Len(), left)
	}
	o := reconcile.Ready(meta.SucceededReason, "successful scan: found %d tags", found.Len())
	if before != nil && before.Revision == revision {
		return o.Unchanged()
	}
	return o.WithMetadata("revision", revision)
}

// repository returns the open repository of an object. It opens a new one if the access changed.
func (r *Repositories) repository(ctx context.Context, obj *imagev1.ImageRepository) (*openRepository, error) {
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
	if opened := r.open.Get(obj.UID); opened != nil && opened.key == key {
		return opened, nil
	}
	repo, err := registry.Open(name, reach)
	if err != nil {
		return nil, err
	}
	opened := &openRepository{Repository: repo, key: key}
	r.open.Set(obj.UID, opened)
	return opened, nil
}

// scan lists the tags. It returns the stored result of the same image, nil if there is none, and the new result.
func (r *Repositories) scan(ctx context.Context, obj *imagev1.ImageRepository, repo *openRepository) (before,
	now *store.Repository, err error) {
	excluded, err := registry.CompileExclusions(obj.Spec.ExclusionList)
	if err != nil {
		return nil, nil, err
	}
	image := repo.Name()
	before, err = r.Store.Load(ctx, keyOf(obj))
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && before.Image != image:
		before = nil
	case guard.IsMemory(err):
		return nil, nil, err
	case err != nil:
		return nil, nil, storeFault(err)
	}
	scan, err := repo.Scan(ctx, before, excluded)
	if err != nil {
		return nil, nil, err
	}
	return before, &store.Repository{Image: image, Excluded: obj.Spec.ExclusionList, Scanned: r.Clock.Now().UTC(),
		Pages: scan.Pages}, nil
}

// store stores the tags if they changed, updates the status, and enqueues the policies.
func (r *Repositories) store(obj *imagev1.ImageRepository, before, found *store.Repository, revision string) error {
	if before == nil || !isStored(before, found, revision) {
		err := r.Store.Put(keyOf(obj), found)
		if fault.As(err) != nil {
			return err
		}
		if err != nil {
			return storeFault(err)
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

// isStored reports whether the stored result equals the found one, including the data to revalidate pages.
func isStored(before, found *store.Repository, revision string) bool {
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

// Finalize implements [reconcile.Step]: it deletes the stored tags.
func (r *Repositories) Finalize(_ context.Context, obj *imagev1.ImageRepository) error {
	r.open.Remove(obj.UID)
	tagsMetric.DeleteLabelValues(obj.Namespace, obj.Name)
	return r.Store.Remove(keyOf(obj))
}

// Leave implements [reconcile.Leaver].
func (r *Repositories) Leave(obj *imagev1.ImageRepository) {
	if err := r.Finalize(context.Background(), obj); err != nil {
		log.Log.Error(err, "cannot remove the tags of a repository of another process", "namespace", obj.Namespace,
			"name", obj.Name)
	}
}

// RepositoryChanged reports whether policies must be enqueued after a change of a repository.
func RepositoryChanged(before, after *imagev1.ImageRepository) bool {
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

func storeFault(err error) error {
	return fault.New(meta.StorageOperationFailedReason, "cannot read or write the stored tags").Because(err).
		WithHint("Check the free space and the permissions of --storage-path")
}
