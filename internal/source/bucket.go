package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/bucket"
)

// BucketGroupKind identifies the kind to the kernel.
var BucketGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.BucketKind}

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=buckets,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=buckets/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=buckets/finalizers,verbs=get;create;update;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets;serviceaccounts,verbs=get;list;watch

// Bucket fetches the kind: it lists the bucket, and fetches the objects that are new.
type Bucket struct {
	Access *access.Buckets
	Store  *artifact.Store
	Dir    string // where contents are kept, a directory an object

	mu   sync.Mutex
	kept map[types.UID]*keptBucket
}

// keptBucket is what is kept of one object between passes.
type keptBucket struct {
	cache  *bucket.Cache
	remote bucket.Remote
	key    string // what the remote depends on
}

// References lists what the bucket builds on.
func (b *Bucket) References(obj *sourcev1.Bucket) []reconcile.Ref {
	names := []*meta.LocalObjectReference{obj.Spec.SecretRef, obj.Spec.CertSecretRef, obj.Spec.ProxySecretRef}
	if sts := obj.Spec.STS; sts != nil {
		names = append(names, sts.SecretRef, sts.CertSecretRef)
	}
	return access.SecretRefs(obj.Namespace, names...)
}

// Fetch lists the bucket. Only when its revision is not that of the artifact, objects are fetched: those that changed.
func (b *Bucket) Fetch(ctx context.Context, pass *reconcile.Pass[*sourcev1.Bucket]) (*Revision, error) {
	obj := pass.Object
	if err := refuseAccessFrom(obj.Spec.AccessFrom); err != nil {
		return nil, err
	}
	kept, err := b.open(obj)
	if err != nil {
		return nil, err
	}
	if err := b.connect(ctx, obj, kept); err != nil {
		return nil, err
	}
	listing, err := kept.cache.List(ctx, kept.remote, obj.Spec.Prefix, obj.Spec.Ignore)
	if err != nil {
		kept.remote = nil // who may have changed without a change of what it was made of, such as the region
		return nil, err
	}
	revision := listing.Revision()
	if err := pass.Admit(revision); err != nil {
		return nil, err
	}
	var tree *artifact.Tree
	if !obj.Status.Artifact.HasRevision(revision) {
		if tree, err = kept.cache.Tree(ctx, kept.remote, listing); err != nil {
			return nil, err
		}
	}
	put := func(ctx context.Context, key artifact.Key, current *meta.Artifact) (*meta.Artifact, error) {
		if tree == nil {
			if tree, err = b.again(ctx, kept, listing, current); err != nil {
				return nil, err
			}
		}
		a, err := b.Store.Put(ctx, key, tree, revision, current)
		if err == nil {
			obj.Status.ObservedIgnore = obj.Spec.Ignore
		}
		return a, err
	}
	return &Revision{Name: revision, Put: put}, nil
}

// again returns the tree of the artifact that the object has, after a restart: nothing is fetched for it, even if the
// contents that were kept are lost.
func (b *Bucket) again(ctx context.Context, kept *keptBucket, l *bucket.Listing,
	current *meta.Artifact) (*artifact.Tree, error) {
	if kept.cache.Holds(kept.remote, l) {
		return kept.cache.Tree(ctx, kept.remote, l)
	}
	return b.Store.Tree(*current)
}

// connect makes the way to the bucket anew if what it depends on is not as it was.
func (b *Bucket) connect(ctx context.Context, obj *sourcev1.Bucket, kept *keptBucket) error {
	at, err := b.Access.Resolve(ctx, obj)
	if err != nil {
		return err
	}
	if key := at.Key(); kept.remote == nil || kept.key != key {
		kept.remote, err = b.Access.Remote(ctx, at)
		kept.key = key
	}
	return err
}

func (b *Bucket) open(obj *sourcev1.Bucket) (*keptBucket, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if kept := b.kept[obj.UID]; kept != nil {
		return kept, nil
	}
	cache, err := bucket.Open(b.home(obj))
	if err != nil {
		return nil, err
	}
	if b.kept == nil {
		b.kept = map[types.UID]*keptBucket{}
	}
	kept := &keptBucket{cache: cache}
	b.kept[obj.UID] = kept
	return kept, nil
}

// Forget removes the contents that are kept.
func (b *Bucket) Forget(_ context.Context, obj *sourcev1.Bucket) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var closed error
	if kept := b.kept[obj.UID]; kept != nil {
		closed = kept.cache.Close()
		delete(b.kept, obj.UID)
	}
	return errors.Join(closed, os.RemoveAll(b.home(obj)))
}

func (b *Bucket) home(obj *sourcev1.Bucket) string { return filepath.Join(b.Dir, string(obj.UID)) }
