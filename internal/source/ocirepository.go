package source

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// OCIRepositoryGroupKind identifies the kind to the kernel.
var OCIRepositoryGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.OCIRepositoryKind}

// layerExt is how the store calls a layer that is copied: a .tar.gz, as the layers of charts and of manifests are.
const layerExt = ".tar.gz"

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=ocirepositories,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=ocirepositories/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=ocirepositories/finalizers,verbs=get;create;update;patch;delete

// OCIRepository fetches the kind: it resolves the reference to a digest, verifies who signed it, and stores
// one of its layers.
type OCIRepository struct {
	Registries *access.Registries
	Signatures *access.Signatures
	Store      *artifact.Store

	mu   sync.Mutex
	kept map[types.UID]*keptRepository
}

// keptRepository is what is kept of an object between passes, so that one that did not change costs one request.
type keptRepository struct {
	*oci.Repository
	key      string // of the access that it was opened with
	verified string // the digest, and what is trusted to have signed it
	signer   string // who did
}

// References lists what the repository builds on.
func (o *OCIRepository) References(obj *sourcev1.OCIRepository) []reconcile.Ref {
	names := []*meta.LocalObjectReference{obj.Spec.SecretRef, obj.Spec.CertSecretRef, obj.Spec.ProxySecretRef}
	if v := obj.Spec.Verify; v != nil {
		names = append(names, v.SecretRef, v.TrustedRootSecretRef)
	}
	return access.SecretRefs(obj.Namespace, names...)
}

// Fetch asks what the reference stands for, and verifies it. Only if it is not what the artifact was made of,
// something is pulled.
func (o *OCIRepository) Fetch(ctx context.Context, pass *reconcile.Pass[*sourcev1.OCIRepository]) (*Revision, error) {
	obj := pass.Object
	repo, err := o.open(ctx, obj)
	if err != nil {
		return nil, err
	}
	revision, err := repo.Resolve(ctx, ociReference(obj.Spec.Reference))
	if err != nil {
		return nil, err
	}
	markOutdated(obj, revision.String())
	if err := pass.Admit(revision.String()); err != nil {
		return nil, err
	}
	if err := o.verify(ctx, pass, repo, revision); err != nil {
		return nil, err
	}
	put := func(ctx context.Context, key artifact.Key, current *meta.Artifact) (*meta.Artifact, error) {
		if current.HasRevision(revision.String()) && observed(obj) {
			return current.DeepCopy(), nil // after a restart: it is whole, and what is in it cannot have changed
		}
		return o.store(ctx, obj, key, repo, revision, current)
	}
	return &Revision{Name: revision.String(), Content: access.Fingerprint(obj.Spec.Ignore, obj.Spec.LayerSelector),
		Put: put}, nil
}

// Pin makes the digest of a revision the one that counts.
func (o *OCIRepository) Pin(obj *sourcev1.OCIRepository, revision string) string {
	digest := revision[strings.LastIndex(revision, "@")+1:]
	obj.Spec.Reference = &sourcev1.OCIRepositoryRef{Digest: digest}
	return digest
}

// store pulls the layer that is selected, and stores what is in it or the layer itself.
func (o *OCIRepository) store(ctx context.Context, obj *sourcev1.OCIRepository, key artifact.Key, repo *keptRepository,
	revision oci.Revision, current *meta.Artifact) (*meta.Artifact, error) {
	selector := ptr.Deref(obj.Spec.LayerSelector, sourcev1.OCILayerSelector{})
	image, err := repo.Pull(ctx, revision.Digest)
	if err != nil {
		return nil, In(sourcev1.FetchFailedCondition, err)
	}
	layer, err := image.Layer(selector.MediaType)
	if err != nil {
		return nil, In(sourcev1.FetchFailedCondition, err)
	}
	var a *meta.Artifact
	if selector.Operation == sourcev1.LayerCopy {
		a, err = o.copy(ctx, key, layer, revision, current)
	} else {
		a, err = o.extract(ctx, obj, key, layer, revision, current)
	}
	if err != nil {
		return nil, err
	}
	a.Metadata = image.Annotations
	obj.Status.ObservedIgnore, obj.Status.ObservedLayerSelector = obj.Spec.Ignore, obj.Spec.LayerSelector
	return a, nil
}

func (o *OCIRepository) copy(ctx context.Context, key artifact.Key, layer *oci.Layer, revision oci.Revision,
	current *meta.Artifact) (*meta.Artifact, error) {
	blob, err := layer.Open(ctx)
	if err != nil {
		return nil, In(sourcev1.FetchFailedCondition, err)
	}
	defer blob.Close() // only read
	a, err := o.Store.PutFile(ctx, key, layerExt, blob, revision.String(), current)
	if blob.Err() != nil {
		return nil, In(sourcev1.FetchFailedCondition, blob.Err())
	}
	return a, err
}

func (o *OCIRepository) extract(ctx context.Context, obj *sourcev1.OCIRepository, key artifact.Key, layer *oci.Layer,
	revision oci.Revision, current *meta.Artifact) (*meta.Artifact, error) {
	tree, err := layer.Tree(ctx, obj.Spec.Ignore)
	if err != nil {
		return nil, In(sourcev1.FetchFailedCondition, err)
	}
	return o.Store.Put(ctx, key, tree, revision.String(), current)
}

// verify checks the signatures that the object asks for.
func (o *OCIRepository) verify(ctx context.Context, pass *reconcile.Pass[*sourcev1.OCIRepository], repo *keptRepository,
	revision oci.Revision) error {
	obj := pass.Object
	if obj.Spec.Verify == nil {
		reconcile.Unmark(obj, sourcev1.SourceVerifiedCondition)
		return nil
	}
	if pass.Requested {
		repo.verified = "" // a certificate may have been revoked
	}
	if err := o.findSigner(ctx, obj, repo, revision); err != nil {
		reconcile.Mark(obj, sourcev1.SourceVerifiedCondition, metav1.ConditionFalse,
			fault.Reason(err, sourcev1.VerificationErrorReason), err.Error())
		return err
	}
	message := fmt.Sprintf("verified the signature of revision '%s' by %s", revision, repo.signer)
	if repo.signer == "" {
		message = "the trust policy asks for no signature"
	}
	reconcile.Mark(obj, sourcev1.SourceVerifiedCondition, metav1.ConditionTrue, meta.SucceededReason, message)
	return nil
}

// findSigner asks the registry only when the digest is another than before, or what is trusted.
func (o *OCIRepository) findSigner(ctx context.Context, obj *sourcev1.OCIRepository, repo *keptRepository,
	revision oci.Revision) error {
	v, key, err := o.Signatures.Verifier(ctx, obj.Namespace, obj.Spec.Verify)
	if err != nil {
		return err
	}
	wanted := access.Fingerprint(key, revision.Digest)
	if repo.verified == wanted {
		return nil
	}
	repo.verified = ""
	if repo.signer, err = v.Verify(ctx, repo.At(revision.Digest), repo.Options()...); err != nil {
		return err
	}
	repo.verified = wanted
	return nil
}

// open returns the object's kept repository, a new one if the access to it is not as it was.
func (o *OCIRepository) open(ctx context.Context, obj *sourcev1.OCIRepository) (*keptRepository, error) {
	to, key, err := o.Registries.Access(ctx, access.Registry{
		Namespace: obj.Namespace, URL: obj.Spec.URL, Insecure: obj.Spec.Insecure, Provider: obj.Spec.Provider,
		Secret: obj.Spec.SecretRef, Cert: obj.Spec.CertSecretRef, Proxy: obj.Spec.ProxySecretRef,
		ServiceAccount: obj.Spec.ServiceAccountName,
	})
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := o.kept[obj.UID]; k != nil && k.key == key {
		return k, nil
	}
	repo, err := oci.Open(obj.Spec.URL, to)
	if err != nil {
		return nil, err
	}
	if o.kept == nil {
		o.kept = map[types.UID]*keptRepository{}
	}
	o.kept[obj.UID] = &keptRepository{Repository: repo, key: key}
	return o.kept[obj.UID], nil
}

// Forget closes nothing: a repository is a login.
func (o *OCIRepository) Forget(_ context.Context, obj *sourcev1.OCIRepository) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.kept, obj.UID)
	return nil
}

// observed tells that the artifact was made by the rules that the object has.
func observed(obj *sourcev1.OCIRepository) bool {
	return reflect.DeepEqual(obj.Status.ObservedIgnore, obj.Spec.Ignore) &&
		reflect.DeepEqual(obj.Status.ObservedLayerSelector, obj.Spec.LayerSelector)
}

// ociReference translates the API's reference.
func ociReference(ref *sourcev1.OCIRepositoryRef) oci.Reference {
	if ref == nil {
		return oci.Reference{}
	}
	return oci.Reference{Digest: ref.Digest, SemVer: ref.SemVer, SemverFilter: ref.SemverFilter, Tag: ref.Tag}
}
