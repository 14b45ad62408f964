package source

import (
	"context"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// HelmRepositoryGroupKind identifies the kind to the kernel.
var HelmRepositoryGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.HelmRepositoryKind}

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmrepositories,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmrepositories,verbs=create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmrepositories/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmrepositories/finalizers,verbs=get;create
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmrepositories/finalizers,verbs=update;patch;delete

// HelmRepository fetches HelmRepositories. The artifact of a repository over HTTP is its index. A repository in an OCI
// registry has no index and no artifact; only its URL and login are checked.
type HelmRepository struct {
	Charts *HelmCharts

	seen sync.Map // name of the object to the seenIndex of its last response
}

// seenIndex is an index that was downloaded before.
type seenIndex struct {
	url, digest string
	validators  helm.Validators
}

// References implements [Fetcher].
func (h *HelmRepository) References(obj *sourcev1.HelmRepository) []reconcile.Ref {
	return access.SecretRefs(obj.Namespace, obj.Spec.SecretRef, obj.Spec.CertSecretRef)
}

// HelmIndexRevision is the digest of an index; the zero value stands for a repository in a registry.
type HelmIndexRevision struct {
	digest     string
	repository *helm.HTTP
	file       *helm.IndexFile // nil if the server reported that the index is the one seen before
}

// String returns the digest, as sha256:<hex>.
func (r *HelmIndexRevision) String() string { return r.digest }

// Close closes the downloaded file, which removes it.
func (r *HelmIndexRevision) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

// Resolve implements [Fetcher]. It downloads the index to a temporary file unless the server reports, by ETag or
// Last-Modified, that it is the one seen before: nothing but its content identifies an index. The file is
// neither parsed nor stored before gates admit its digest, and a closed gate does not make it be downloaded
// again. For a repository in a registry it sends no request.
func (h *HelmRepository) Resolve(ctx context.Context, req Request[*sourcev1.HelmRepository]) (*HelmIndexRevision,
	error) {
	obj := req.Object
	if err := refuseAccessFrom(obj.Spec.AccessFrom); err != nil {
		return nil, err
	}
	if obj.Spec.Type == sourcev1.HelmRepositoryTypeOCI {
		return &HelmIndexRevision{}, nil
	}
	repository, err := h.Charts.http(ctx, obj)
	if err != nil {
		return nil, err
	}
	name := client.ObjectKeyFromObject(obj)
	last, _ := h.seen.Load(name)
	seen, _ := last.(seenIndex)
	if seen.url != obj.Spec.URL {
		seen = seenIndex{}
	}
	file, err := repository.FetchIndex(ctx, seen.validators)
	if err != nil {
		return nil, err
	}
	if file == nil {
		return &HelmIndexRevision{digest: seen.digest, repository: repository}, nil
	}
	h.seen.Store(name, seenIndex{url: obj.Spec.URL, digest: file.Digest, validators: file.Validators})
	return &HelmIndexRevision{digest: file.Digest, repository: repository, file: file}, nil
}

// Fetch implements [Fetcher]. It parses the index, so that an unreadable one never replaces the artifact.
func (h *HelmRepository) Fetch(ctx context.Context, req Request[*sourcev1.HelmRepository], r *HelmIndexRevision) (
	Fetched[*sourcev1.HelmRepository], error) {
	obj := req.Object
	var f Fetched[*sourcev1.HelmRepository]
	if r.repository == nil {
		_, err := h.Charts.openRegistry(ctx, obj, h.Charts.registry(obj).ChartURL("chart"))
		f.HasNoArtifact, f.Message = true, "Helm repository is ready"
		return f, err
	}
	if obj.Status.Artifact.HasRevision(r.digest) {
		return f, nil
	}
	if r.file == nil {
		if err := h.download(ctx, obj, r); err != nil {
			return f, err
		}
	}
	parse := func() (*helm.Index, error) { return r.file.Parse(context.WithoutCancel(ctx), r.repository.Limits) }
	if _, err := h.Charts.Indexes.Get(ctx, r.digest, parse); err != nil {
		return f, err
	}
	if _, err := r.file.Seek(0, io.SeekStart); err != nil {
		return f, In(sourcev1.StorageOperationFailedCondition, err)
	}
	f.File, f.Extension = r.file, ".yaml"
	return f, nil
}

// download downloads an index that was seen in an earlier pass but not stored: a gate was closed, it could not be
// parsed, or the artifact was lost.
func (h *HelmRepository) download(ctx context.Context, obj *sourcev1.HelmRepository, r *HelmIndexRevision) error {
	file, err := r.repository.FetchIndex(ctx, helm.Validators{})
	if err != nil {
		return err
	}
	r.file = file
	if file.Digest != r.digest {
		h.seen.Delete(client.ObjectKeyFromObject(obj))
		return fault.New(sourcev1.IndexationFailedReason, "the index of %s changed while it was fetched",
			fault.RedactURL(obj.Spec.URL)).WithHint("It is retried automatically")
	}
	return nil
}

// Forget implements [Fetcher].
func (h *HelmRepository) Forget(_ context.Context, obj *sourcev1.HelmRepository) error {
	h.seen.Delete(client.ObjectKeyFromObject(obj))
	h.Charts.forget(client.ObjectKeyFromObject(obj))
	return nil
}

// HelmRepositoryChanged reports whether the charts of a repository must be reconciled after a change of the repository.
func HelmRepositoryChanged(before, after *sourcev1.HelmRepository) bool {
	b, a := before.Status.Artifact, after.Status.Artifact
	if before.Generation != after.Generation || (b == nil) != (a == nil) {
		return true
	}
	return a != nil && (b.Revision != a.Revision || b.Digest != a.Digest)
}
