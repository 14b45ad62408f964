package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/bucket"
)

// BucketGroupKind identifies the kind to the kernel.
var BucketGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.BucketKind}

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=buckets,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=buckets/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=buckets/finalizers,verbs=get;create;update;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets;serviceaccounts,verbs=get;list;watch

// Bucket fetches Buckets: it lists the bucket, and fetches the objects that have changed.
type Bucket struct {
	Access *access.Buckets
	Store  *artifact.Store
	Dir    string // the directory of the caches; each object has one, named by its UID
	Budget *artifact.Budget

	sessions reconcile.PerObject[bucketSession]
}

// bucketSession is what is kept of one object between passes.
type bucketSession struct {
	cache  *bucket.Cache
	remote bucket.Remote // nil if a new one is needed
	key    string        // of the access that the remote was made with
}

// References implements [Fetcher].
func (b *Bucket) References(obj *sourcev1.Bucket) []reconcile.Ref {
	names := []*meta.LocalObjectReference{obj.Spec.SecretRef, obj.Spec.CertSecretRef, obj.Spec.ProxySecretRef}
	if sts := obj.Spec.STS; sts != nil {
		names = append(names, sts.SecretRef, sts.CertSecretRef)
	}
	return access.SecretRefs(obj.Namespace, names...)
}

// BucketRevision is a listing of a bucket.
type BucketRevision struct {
	name    string
	listing *bucket.Listing
	session *bucketSession
}

// String returns the digest of the listing, as sha256:<hex>.
func (r BucketRevision) String() string { return r.name }

// Resolve implements [Fetcher]. It lists the bucket, and reads the .sourceignore objects that have changed:
// which objects belong to the revision depends on them.
func (b *Bucket) Resolve(ctx context.Context, req Request[*sourcev1.Bucket]) (BucketRevision, error) {
	obj := req.Object
	if err := refuseAccessFrom(obj.Spec.AccessFrom); err != nil {
		return BucketRevision{}, err
	}
	session, err := b.session(obj)
	if err != nil {
		return BucketRevision{}, err
	}
	if err := b.connect(ctx, obj, session); err != nil {
		return BucketRevision{}, err
	}
	listing, err := session.cache.List(ctx, session.remote, obj.Spec.Prefix, obj.Spec.Ignore)
	if err != nil {
		session.remote = nil // the bucket itself may have changed, such as its region
		return BucketRevision{}, err
	}
	return BucketRevision{name: listing.Revision(), listing: listing, session: session}, nil
}

// Fetch implements [Fetcher]. It fetches the objects that the cache lacks.
func (b *Bucket) Fetch(ctx context.Context, req Request[*sourcev1.Bucket], r BucketRevision) (
	f Fetched[*sourcev1.Bucket], err error) {
	obj := req.Object
	if req.IsStored(r.name, "") {
		return f, nil
	}
	f.Observed = bucketObserved{ignore: obj.Spec.Ignore}
	if obj.Status.Artifact.HasRevision(r.name) {
		f.Tree, err = b.storedTree(ctx, obj, r)
		return f, In(sourcev1.StorageOperationFailedCondition, err)
	}
	f.Tree, err = r.session.cache.Tree(ctx, r.session.remote, r.listing)
	return f, err
}

// storedTree returns the tree of the artifact that the object has, after a restart. It fetches nothing, even if the
// cache was lost.
func (b *Bucket) storedTree(ctx context.Context, obj *sourcev1.Bucket, r BucketRevision) (*artifact.Tree, error) {
	if r.session.cache.IsComplete(r.session.remote, r.listing) {
		return r.session.cache.Tree(ctx, r.session.remote, r.listing)
	}
	return b.Store.Tree(artifact.Key{Kind: sourcev1.BucketKind, Namespace: obj.Namespace, Name: obj.Name},
		*obj.Status.Artifact)
}

// bucketObserved is what an artifact was made from.
type bucketObserved struct {
	ignore *string
}

// Record implements [Observed].
func (o bucketObserved) Record(obj *sourcev1.Bucket) { obj.Status.ObservedIgnore = o.ignore }

// connect makes a new remote for the session if the access has changed.
func (b *Bucket) connect(ctx context.Context, obj *sourcev1.Bucket, session *bucketSession) error {
	at, err := b.Access.Resolve(ctx, obj)
	if err != nil {
		return err
	}
	if key := at.Key(); session.remote == nil || session.key != key {
		session.remote, err = b.Access.Remote(ctx, at)
		session.key = key
	}
	return err
}

// session returns the session of the object, and opens its cache the first time.
func (b *Bucket) session(obj *sourcev1.Bucket) (*bucketSession, error) {
	if s := b.sessions.Get(obj.UID); s != nil {
		return s, nil
	}
	cache, err := bucket.Open(b.cacheDir(obj))
	if err != nil {
		return nil, err
	}
	cache.Budget = b.Budget.Of(obj.Namespace, b.cacheDir(obj))
	s := &bucketSession{cache: cache}
	b.sessions.Set(obj.UID, s)
	return s, nil
}

// Forget implements [Fetcher]: it removes the cache.
func (b *Bucket) Forget(_ context.Context, obj *sourcev1.Bucket) error {
	var closeErr error
	if s := b.sessions.Remove(obj.UID); s != nil {
		closeErr = s.cache.Close()
	}
	return errors.Join(closeErr, os.RemoveAll(b.cacheDir(obj)))
}

func (b *Bucket) cacheDir(obj *sourcev1.Bucket) string { return filepath.Join(b.Dir, string(obj.UID)) }
