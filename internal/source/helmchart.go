package source

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/access"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/helm"
)

// HelmChartGroupKind identifies the kind to the kernel.
var HelmChartGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.HelmChartKind}

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts/finalizers,verbs=get;create;update;patch;delete

// HelmChart fetches the kind: a packaged chart of a repository, or one that it packages from the artifact of
// another source.
type HelmChart struct {
	Objects    client.Reader // the cache
	Secrets    access.Secrets
	Charts     *HelmCharts
	Signatures *access.Signatures
	Store      *artifact.Store
	Artifacts  *artifact.Fetcher
	Clock      clock.PassiveClock
}

// References lists what the chart builds on.
func (h *HelmChart) References(obj *sourcev1.HelmChart) []reconcile.Ref {
	source := schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: obj.Spec.SourceRef.Kind}
	refs := []reconcile.Ref{reconcile.RefTo(source, obj.Namespace, obj.Spec.SourceRef.Name)}
	if v := obj.Spec.Verify; v != nil {
		refs = append(refs, access.SecretRefs(obj.Namespace, v.SecretRef, v.TrustedRootSecretRef)...)
	}
	return refs
}

// Fetch finds the chart that counts. It is pulled, verified and packaged when it is not the one at hand.
func (h *HelmChart) Fetch(ctx context.Context, pass *reconcile.Pass[*sourcev1.HelmChart]) (*Revision, error) {
	obj := pass.Object
	if err := refuseAccessFrom(obj.Spec.AccessFrom); err != nil {
		return nil, err
	}
	if obj.Spec.SourceRef.Kind == sourcev1.HelmRepositoryKind {
		return h.fromRepository(ctx, obj)
	}
	return h.fromTree(ctx, obj)
}

// Pin makes the version of a revision the one that counts. Only a repository offers versions that it had.
func (h *HelmChart) Pin(obj *sourcev1.HelmChart, revision string) string {
	if obj.Spec.SourceRef.Kind != sourcev1.HelmRepositoryKind || len(obj.GetValuesFiles()) > 0 {
		return ""
	}
	obj.Spec.Version = revision
	return revision
}

// source reads the object that the chart comes from.
func (h *HelmChart) source(ctx context.Context, obj *sourcev1.HelmChart, into Object) error {
	ref := obj.Spec.SourceRef
	err := h.Objects.Get(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: ref.Name}, into)
	if apierrors.IsNotFound(err) {
		return fault.New(sourcev1.SourceUnavailableReason, "%s '%s/%s' not found", ref.Kind, obj.Namespace, ref.Name).
			WithHint("Create it, or correct spec.sourceRef")
	}
	return err
}

func (h *HelmChart) fromRepository(ctx context.Context, obj *sourcev1.HelmChart) (*Revision, error) {
	var source sourcev1.HelmRepository
	if err := h.source(ctx, obj, &source); err != nil {
		return nil, err
	}
	repository, err := h.Charts.Open(ctx, &source)
	if err != nil {
		return nil, err
	}
	offer, err := repository.Find(ctx, obj.Spec.Chart, obj.Spec.Version)
	if err != nil {
		return nil, err
	}
	trusted, err := h.trust(ctx, obj)
	if err != nil {
		return nil, unverified(obj, err)
	}
	from := ""
	if source.Status.Artifact != nil {
		from = source.Status.Artifact.Revision
	}
	return h.revision(obj, built{
		name: offer.Chart(), version: offer.Version, from: from, metadata: valuesMetadata(obj),
		content: []string{offer.Digest, offer.URL, trusted.key},
		pulled:  len(obj.GetValuesFiles()) == 0,
		build: func(ctx context.Context, o helm.Options) (*helm.Package, error) {
			data, err := repository.Pull(ctx, offer)
			if err != nil {
				return nil, err
			}
			if err := h.verify(ctx, obj, trusted, repository, offer, data); err != nil {
				return nil, err
			}
			return helm.Repackage(offer, data, o)
		},
		same: func(current *meta.Artifact) bool { // the package itself, as anybody can see by its digest
			return obj.Spec.Verify == nil && len(obj.GetValuesFiles()) == 0 && current.Digest == offer.Digest
		},
	})
}

func (h *HelmChart) fromTree(ctx context.Context, obj *sourcev1.HelmChart) (*Revision, error) {
	var source Object = &sourcev1.GitRepository{}
	if obj.Spec.SourceRef.Kind == sourcev1.BucketKind {
		source = &sourcev1.Bucket{}
	}
	if err := h.source(ctx, obj, source); err != nil {
		return nil, err
	}
	a := source.GetArtifact()
	if a == nil {
		return nil, fault.New(sourcev1.NoSourceArtifactReason, "%s '%s/%s' has no artifact", obj.Spec.SourceRef.Kind,
			obj.Namespace, source.GetName()).
			WithHint("It goes on as soon as there is one: see the conditions of the source")
	}
	tree, err := h.Artifacts.Fetch(ctx, *a)
	if err != nil {
		return nil, err
	}
	name, version, err := helm.Describe(tree, obj.Spec.Chart, h.Charts.Limits)
	if err != nil {
		return nil, err
	}
	metadata, content := valuesMetadata(obj), []string(nil)
	byRevision := obj.Spec.ReconcileStrategy == sourcev1.ReconcileStrategyRevision
	if byRevision {
		metadata = strings.Join(slices.DeleteFunc([]string{short(a.Revision), metadata},
			func(s string) bool { return s == "" }), ".")
		content = []string{a.Revision, a.Digest}
	}
	wasReady := reconcile.IsReady(obj)
	return h.revision(obj, built{
		name: name, version: version, from: a.Revision, metadata: metadata, content: content,
		build: func(ctx context.Context, o helm.Options) (*helm.Package, error) {
			return helm.BuildTree(ctx, tree, obj.Spec.Chart, o)
		},
		// By version, what was packaged of this version stands, though the source has moved on.
		same: func(*meta.Artifact) bool { return !byRevision && wasReady },
	})
}

// built says how the artifact of a chart is made.
type built struct {
	name, version string
	from          string // the revision of the source
	metadata      string // of the version
	content       []string
	pulled        bool // it stays as it was pulled
	build         func(context.Context, helm.Options) (*helm.Package, error)
	// whether the artifact of this version at hand is what would be built
	same func(current *meta.Artifact) bool
}

func (h *HelmChart) revision(obj *sourcev1.HelmChart, b built) (*Revision, error) {
	version, err := helm.WithMetadata(b.version, b.metadata)
	if err != nil {
		return nil, In(sourcev1.BuildFailedCondition, err)
	}
	r := &Revision{
		Name:    version,
		Content: strings.Join(append(b.content, fmt.Sprint(obj.UID, obj.Generation)), "\n"),
		Reason:  sourcev1.ChartPackageSucceededReason,
		Message: packagedMessage(b.name, version, obj.Status.ObservedValuesFiles),
	}
	if b.pulled {
		r.Reason, r.Message = sourcev1.ChartPullSucceededReason,
			fmt.Sprintf("pulled '%s' chart with version '%s'", b.name, version)
	}
	r.Put = func(ctx context.Context, key artifact.Key, current *meta.Artifact) (*meta.Artifact, error) {
		if current.HasRevision(version) && b.same(current) {
			return current, nil
		}
		p, err := b.build(ctx, helm.Options{
			Metadata: b.metadata, ValuesFiles: obj.GetValuesFiles(), IgnoreMissing: obj.Spec.IgnoreMissingValuesFiles,
			Limits: h.Charts.Limits,
			Repository: func(ctx context.Context, at string) (helm.Repository, error) {
				return h.Charts.Dependency(ctx, obj.Namespace, at)
			},
		})
		if err != nil {
			return nil, In(chartCondition(err), err)
		}
		a, err := h.Store.PutFile(ctx, key, ".tgz", bytes.NewReader(p.Data), version, current)
		if err != nil {
			return nil, err
		}
		obj.Status.ObservedChartName, obj.Status.ObservedValuesFiles = p.Name, p.ValuesFiles
		obj.Status.ObservedSourceArtifactRevision = b.from
		if !b.pulled {
			r.Message = packagedMessage(p.Name, version, p.ValuesFiles)
		}
		return a, nil
	}
	return r, nil
}

func packagedMessage(name, version string, valuesFiles []string) string {
	message := fmt.Sprintf("packaged '%s' chart with version '%s'", name, version)
	if len(valuesFiles) > 0 {
		message += fmt.Sprintf(" and merged values files [%s]", strings.Join(valuesFiles, ", "))
	}
	return message
}

// valuesMetadata makes another version of a chart whose values are merged, each time that the declaration changes.
func valuesMetadata(obj *sourcev1.HelmChart) string {
	if len(obj.GetValuesFiles()) == 0 {
		return ""
	}
	return fmt.Sprint(obj.Generation)
}

// short is the first 12 characters of a revision's digest.
func short(revision string) string {
	digest := revision[strings.LastIndexByte(revision, ':')+1:]
	return digest[:min(len(digest), 12)]
}

// chartCondition tells failures to build a chart from failures to get it.
func chartCondition(err error) string {
	switch fault.Reason(err, "") {
	case sourcev1.ValuesFilesErrorReason, sourcev1.DependencyBuildErrorReason, sourcev1.ChartPackageErrorReason,
		sourcev1.ChartVerificationErrorReason:
		return sourcev1.BuildFailedCondition
	}
	return sourcev1.FetchFailedCondition
}

// Forget implements [Fetcher]: nothing is kept beside the artifact.
func (h *HelmChart) Forget(context.Context, *sourcev1.HelmChart) error { return nil }
