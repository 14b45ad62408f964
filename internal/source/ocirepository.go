package source

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/oci"
)

// OCIRepositoryGroupKind identifies the kind to the kernel.
var OCIRepositoryGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.OCIRepositoryKind}

// layerExtension is the file name extension of layers that are stored as they are. Layers with manifests and charts are
// .tar.gz archives.
const layerExtension = ".tar.gz"

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=ocirepositories,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=ocirepositories,verbs=create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=ocirepositories/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=ocirepositories/finalizers,verbs=get;create
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=ocirepositories/finalizers,verbs=update;patch;delete

// OCIRepository fetches OCIRepositories: it resolves the reference to a digest, verifies its signature, and pulls one
// layer.
type OCIRepository struct {
	Registries *access.Registries
	Signatures *access.Signatures

	sessions reconcile.PerObject[ociSession]
}

// ociSession is a login to a repository, kept between passes so that a pass without a change costs one request.
type ociSession struct {
	*oci.Repository
	key string // of the access that it was opened with

	verified string // fingerprint of the last verified digest and of what was trusted
	signer   string // of that digest
}

// References implements [Fetcher].
func (o *OCIRepository) References(obj *sourcev1.OCIRepository) []reconcile.Ref {
	names := []*meta.LocalObjectReference{obj.Spec.SecretRef, obj.Spec.CertSecretRef, obj.Spec.ProxySecretRef}
	if v := obj.Spec.Verify; v != nil {
		names = append(names, v.SecretRef, v.TrustedRootSecretRef)
	}
	return access.SecretRefs(obj.Namespace, names...)
}

// OCIRevision is the digest that a reference resolves to.
type OCIRevision struct {
	oci.Revision
	session *ociSession
}

// Resolve implements [Fetcher]. It sends one HEAD request, and before that lists the tags if the reference is
// a range of versions.
func (o *OCIRepository) Resolve(ctx context.Context, req Request[*sourcev1.OCIRepository]) (OCIRevision, error) {
	session, err := o.session(ctx, req.Object)
	if err != nil {
		return OCIRevision{}, err
	}
	revision, err := session.Resolve(ctx, ociReference(req.Object.Spec))
	return OCIRevision{revision, session}, err
}

// Fetch implements [Fetcher]. It verifies the signature of a digest once, and again when the pass is requested, as a
// certificate may have been revoked.
func (o *OCIRepository) Fetch(ctx context.Context, req Request[*sourcev1.OCIRepository], r OCIRevision) (
	Fetched[*sourcev1.OCIRepository], error) {
	obj := req.Object
	f := Fetched[*sourcev1.OCIRepository]{Content: access.Fingerprint(obj.Spec.Ignore, obj.Spec.LayerSelector)}
	if err := o.verify(ctx, req, r, &f); err != nil {
		return f, err
	}
	// After a restart the artifact is complete, and the content of a digest does not change.
	hasArtifact := obj.Status.Artifact.HasRevision(r.String()) && isObserved(obj)
	if req.IsStored(r.String(), f.Content) || hasArtifact {
		return f, nil
	}
	f.Observed = ociObserved{ignore: obj.Spec.Ignore, layerSelector: obj.Spec.LayerSelector}
	return f, o.pull(ctx, obj, r, &f)
}

// pull adds the selected layer to f: its files, or the layer as it is.
func (o *OCIRepository) pull(ctx context.Context, obj *sourcev1.OCIRepository, r OCIRevision,
	f *Fetched[*sourcev1.OCIRepository]) error {
	selector := ptr.Deref(obj.Spec.LayerSelector, sourcev1.OCILayerSelector{})
	image, err := r.session.Pull(ctx, r.Digest)
	if err != nil {
		return err
	}
	layer, err := image.Layer(selector.MediaType)
	if err != nil {
		return err
	}
	f.Metadata = image.Annotations
	if selector.Operation != sourcev1.LayerCopy {
		f.Tree, err = layer.Tree(ctx, obj.Spec.Ignore)
		return err
	}
	blob, err := layer.Open(ctx)
	if err != nil {
		return err
	}
	f.File, f.Extension = blob, layerExtension
	return nil
}

// ociObserved is what an artifact was made from.
type ociObserved struct {
	ignore        *string
	layerSelector *sourcev1.OCILayerSelector
}

// Record implements [Observed].
func (o ociObserved) Record(obj *sourcev1.OCIRepository) {
	obj.Status.ObservedIgnore, obj.Status.ObservedLayerSelector = o.ignore, o.layerSelector
}

// isObserved reports whether the artifact was made with the object's current spec.
func isObserved(obj *sourcev1.OCIRepository) bool {
	return reflect.DeepEqual(obj.Status.ObservedIgnore, obj.Spec.Ignore) &&
		reflect.DeepEqual(obj.Status.ObservedLayerSelector, obj.Spec.LayerSelector)
}

// Pin implements pinner: it pins the digest of a revision.
func (o *OCIRepository) Pin(obj *sourcev1.OCIRepository, revision string) string {
	digest := revision[strings.LastIndex(revision, "@")+1:]
	obj.Spec.Reference = &sourcev1.OCIRepositoryRef{Digest: digest}
	return digest
}

// verify verifies the signature if the object asks for it, and adds the result to f.
func (o *OCIRepository) verify(ctx context.Context, req Request[*sourcev1.OCIRepository], r OCIRevision,
	f *Fetched[*sourcev1.OCIRepository]) error {
	if req.Object.Spec.Verify == nil {
		return nil
	}
	if req.IsRequested {
		r.session.verified = ""
	}
	if err := o.findSigner(ctx, req.Object, r); err != nil {
		f.Verification = unverified(err)
		return err
	}
	f.Verification = verified("", "the trust policy requires no signature")
	if r.session.signer != "" {
		f.Verification = verified(r.session.signer,
			fmt.Sprintf("verified the signature of revision '%s' by %s", r, r.session.signer))
	}
	return nil
}

// findSigner sets the signer of the session. It sends requests only if the digest or what is trusted has changed.
func (o *OCIRepository) findSigner(ctx context.Context, obj *sourcev1.OCIRepository, r OCIRevision) error {
	verifier, key, err := o.Signatures.Verifier(ctx, obj.Namespace, obj.Spec.Verify)
	if err != nil {
		return err
	}
	session, wanted := r.session, access.Fingerprint(key, r.Digest)
	if session.verified == wanted {
		return nil
	}
	session.verified = ""
	if session.signer, err = verifier.Verify(ctx, session.At(r.Digest), session.Options()...); err != nil {
		return err
	}
	session.verified = wanted
	return nil
}

// session returns the session of the object, a new one if its access has changed.
func (o *OCIRepository) session(ctx context.Context, obj *sourcev1.OCIRepository) (*ociSession, error) {
	granted, key, err := o.Registries.Access(ctx, access.Registry{
		Namespace: obj.Namespace, URL: obj.Spec.URL, Insecure: obj.Spec.Insecure, Provider: obj.Spec.Provider,
		Secret: obj.Spec.SecretRef, Cert: obj.Spec.CertSecretRef, Proxy: obj.Spec.ProxySecretRef,
		ServiceAccount: obj.Spec.ServiceAccountName,
	})
	if err != nil {
		return nil, err
	}
	if s := o.sessions.Get(obj.UID); s != nil && s.key == key {
		return s, nil
	}
	repository, err := oci.Open(obj.Spec.URL, granted)
	if err != nil {
		return nil, err
	}
	session := &ociSession{Repository: repository, key: key}
	o.sessions.Set(obj.UID, session)
	return session, nil
}

// Forget implements [Fetcher].
func (o *OCIRepository) Forget(_ context.Context, obj *sourcev1.OCIRepository) error {
	o.sessions.Remove(obj.UID)
	return nil
}

// ociReference translates the reference of the API; none is the default tag.
func ociReference(spec sourcev1.OCIRepositorySpec) oci.Reference {
	ref := ptr.Deref(spec.Reference, sourcev1.OCIRepositoryRef{})
	return oci.Reference{Digest: ref.Digest, SemVer: ref.SemVer, SemverFilter: ref.SemverFilter, Tag: ref.Tag,
		Layer: ptr.Deref(spec.LayerSelector, sourcev1.OCILayerSelector{}).MediaType}
}
