package source

import (
	"context"
	"errors"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// HelmRepositoryGroupKind identifies the kind to the kernel.
var HelmRepositoryGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.HelmRepositoryKind}

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmrepositories,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmrepositories/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmrepositories/finalizers,verbs=get;create;update;patch;delete

// HelmRepository is the domain step of the kind. One over HTTP keeps its index as artifact; one in a registry
// has nothing to fetch, and is checked only.
type HelmRepository struct {
	Keeper[*sourcev1.HelmRepository]
	charts *HelmCharts
}

// NewHelmRepository returns the step, whose charts are looked for by way of charts.
func NewHelmRepository(store *artifact.Store, charts *HelmCharts) *HelmRepository {
	return &HelmRepository{
		Keeper: Keeper[*sourcev1.HelmRepository]{Kind: HelmRepositoryGroupKind, Store: store,
			Fetcher: &helmIndex{Store: store, Charts: charts}},
		charts: charts,
	}
}

// Reconcile implements [reconcile.Step].
func (h *HelmRepository) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*sourcev1.HelmRepository]) reconcile.Outcome {
	if pass.Object.Spec.Type != sourcev1.HelmRepositoryTypeOCI {
		return h.Keeper.Reconcile(ctx, pass)
	}
	obj := pass.Object
	if err := pass.Admit(""); err != nil {
		return reconcile.Failed(err)
	}
	if err := h.withoutArtifact(ctx, obj); err != nil {
		return failed(obj, sourcev1.StorageOperationFailedCondition, err)
	}
	if err := h.check(ctx, obj); err != nil {
		return failed(obj, sourcev1.FetchFailedCondition, err)
	}
	reconcile.Unmark(obj, sourcev1.FetchFailedCondition)
	return reconcile.Ready(meta.SucceededReason, "Helm repository is ready")
}

func (h *HelmRepository) check(ctx context.Context, obj *sourcev1.HelmRepository) error {
	if err := refuseAccessFrom(obj.Spec.AccessFrom); err != nil {
		return err
	}
	_, err := h.charts.openRegistry(ctx, obj, h.charts.registry(obj).ChartURL("chart"))
	return err
}

// withoutArtifact removes what is left of a repository that was one over HTTP before.
func (h *HelmRepository) withoutArtifact(ctx context.Context, obj *sourcev1.HelmRepository) error {
	if obj.Status.Artifact == nil {
		return nil
	}
	if err := h.Finalize(ctx, obj); err != nil {
		return err
	}
	obj.SetArtifact(nil)
	for _, c := range []string{sourcev1.ArtifactInStorageCondition, sourcev1.ArtifactOutdatedCondition,
		sourcev1.StorageOperationFailedCondition} {
		reconcile.Unmark(obj, c)
	}
	return nil
}

// HelmRepositoryMoved tells whether a change of a repository is one that its charts act on.
func HelmRepositoryMoved(before, after *sourcev1.HelmRepository) bool {
	b, a := before.Status.Artifact, after.Status.Artifact
	if before.Generation != after.Generation || (b == nil) != (a == nil) {
		return true
	}
	return a != nil && (b.Revision != a.Revision || b.Digest != a.Digest)
}

// helmIndex fetches the index of a repository over HTTP, once for each digest.
type helmIndex struct {
	Store  *artifact.Store
	Charts *HelmCharts

	seen sync.Map // from the object's name to what the server said of the index last: seenIndex
}

type seenIndex struct {
	url, digest string
	validators  helm.Validators
}

// References lists what the repository builds on.
func (h *helmIndex) References(obj *sourcev1.HelmRepository) []reconcile.Ref {
	return access.SecretRefs(obj.Namespace, obj.Spec.SecretRef, obj.Spec.CertSecretRef)
}

// Fetch asks for the index, and reads the new one: what cannot be read never takes the place of the artifact.
func (h *helmIndex) Fetch(ctx context.Context, pass *reconcile.Pass[*sourcev1.HelmRepository]) (*Revision, error) {
	obj := pass.Object
	if err := refuseAccessFrom(obj.Spec.AccessFrom); err != nil {
		return nil, err
	}
	repository, err := h.Charts.http(ctx, obj)
	if err != nil {
		return nil, err
	}
	name := client.ObjectKeyFromObject(obj)
	validators, held := h.known(name, pass)
	file, err := repository.FetchIndex(ctx, validators)
	if err != nil {
		return nil, err
	}
	if file == nil && held != nil {
		return nil, held
	}
	if file == nil {
		return h.unchanged(name, obj), nil
	}
	context.AfterFunc(ctx, func() { _ = file.Close() }) // with the pass; it was read
	if _, err := h.Charts.Indexes.Get(ctx, file.Digest,
		func() (*helm.Index, error) { return file.Parse(repository.Limits) }); err != nil {
		return nil, err
	}
	h.seen.Store(name, seenIndex{obj.Spec.URL, file.Digest, file.Validators})
	put := func(ctx context.Context, key artifact.Key, current *meta.Artifact) (*meta.Artifact, error) {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		return h.Store.PutFile(ctx, key, ".yaml", file, file.Digest, current)
	}
	return &Revision{Name: file.Digest, Put: put}, nil
}

// known returns what was said of the index that is stored; or of the one that gates hold back, with the error
// that says so, which is not fetched over and over either.
func (h *helmIndex) known(name types.NamespacedName, pass *reconcile.Pass[*sourcev1.HelmRepository]) (helm.Validators,
	error) {
	last, _ := h.seen.Load(name)
	seen, ok := last.(seenIndex)
	if !ok || seen.url != pass.Object.Spec.URL {
		return helm.Validators{}, nil
	}
	if pass.Object.Status.Artifact.HasRevision(seen.digest) {
		return seen.validators, nil
	}
	if err := pass.Admit(seen.digest); err != nil {
		return seen.validators, err
	}
	return helm.Validators{}, nil
}

// unchanged is the revision that is stored already.
func (h *helmIndex) unchanged(name types.NamespacedName, obj *sourcev1.HelmRepository) *Revision {
	return &Revision{Name: obj.Status.Artifact.Revision,
		Put: func(context.Context, artifact.Key, *meta.Artifact) (*meta.Artifact, error) {
			h.seen.Delete(name)
			return nil, errors.New("the index has to be fetched anew")
		}}
}

// Forget forgets what the server said.
func (h *helmIndex) Forget(_ context.Context, obj *sourcev1.HelmRepository) error {
	h.seen.Delete(client.ObjectKeyFromObject(obj))
	h.Charts.forget(client.ObjectKeyFromObject(obj))
	return nil
}
