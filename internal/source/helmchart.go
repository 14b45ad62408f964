package source

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// HelmChartGroupKind identifies the kind to the kernel.
var HelmChartGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.HelmChartKind}

// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts,verbs=create;update;patch;delete
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts/finalizers,verbs=get;create
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=helmcharts/finalizers,verbs=update;patch;delete

// HelmChart fetches HelmCharts: it pulls a packaged chart from a repository, or packages one from the artifact of
// another source.
type HelmChart struct {
	Objects    client.Reader // a cache
	Secrets    access.Secrets
	Charts     *HelmCharts
	Signatures *access.Signatures
	Artifacts  *artifact.Fetcher
	Clock      clock.PassiveClock
}

// References implements [Fetcher].
func (h *HelmChart) References(obj *sourcev1.HelmChart) []reconcile.Ref {
	source := schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: obj.Spec.SourceRef.Kind}
	refs := []reconcile.Ref{reconcile.RefTo(source, obj.Namespace, obj.Spec.SourceRef.Name)}
	for _, f := range filesOfOthers(obj) {
		refs = append(refs, f.ref(obj.Namespace))
	}
	if v := obj.Spec.Verify; v != nil {
		refs = append(refs, access.SecretRefs(obj.Namespace, v.SecretRef, v.TrustedRootSecretRef)...)
	}
	return refs
}

// HelmChartRevision is a version of a chart, with metadata that distinguishes packages made from it.
type HelmChartRevision struct {
	version  string // with the metadata
	metadata string
	source   string // revision of the artifact that the chart comes from; empty in a registry
	trace    string // what names the trace of that artifact
	content  []string
	files    map[string][]byte // values files of other sources
	chart    chart
}

// String returns the version.
func (r *HelmChartRevision) String() string { return r.version }

// chart is a version of a chart at its origin.
type chart interface {
	// name returns the name of the chart.
	name() string
	// isCurrent reports whether the artifact, which has the right version, is what build would return.
	isCurrent(obj *sourcev1.HelmChart) bool
	// build returns the package. It adds the result of the verification to f.
	build(ctx context.Context, obj *sourcev1.HelmChart, o helm.Options, f *Fetched[*sourcev1.HelmChart]) (
		*helm.Package, error)
}

// Resolve implements [Fetcher]. A chart of a repository over HTTP is resolved by the artifact of the repository, which
// costs no request; in a registry, the digest of one tag is requested, and for a range the list of tags. A
// chart of another source is resolved by reading its Chart.yaml from the artifact of that source.
func (h *HelmChart) Resolve(ctx context.Context, req Request[*sourcev1.HelmChart]) (*HelmChartRevision, error) {
	obj := req.Object
	if err := refuseAccessFrom(obj.Spec.AccessFrom); err != nil {
		return nil, err
	}
	if obj.Spec.SourceRef.Kind == sourcev1.HelmRepositoryKind {
		return h.resolveInRepository(ctx, obj)
	}
	return h.resolveInTree(ctx, obj)
}

// Fetch implements [Fetcher]. It pulls, verifies and packages the chart unless the artifact is current.
func (h *HelmChart) Fetch(ctx context.Context, req Request[*sourcev1.HelmChart], r *HelmChartRevision) (
	Fetched[*sourcev1.HelmChart], error) {
	obj := req.Object
	isPulled := obj.Spec.SourceRef.Kind == sourcev1.HelmRepositoryKind && len(valuesFiles(obj)) == 0
	f := Fetched[*sourcev1.HelmChart]{Reason: sourcev1.ChartPackageSucceededReason}
	content := append(r.content, fmt.Sprint(obj.UID, obj.Generation))
	if p, ok := r.chart.(*pulledChart); ok {
		trusted, err := h.trust(ctx, obj)
		if err != nil {
			return f, unverifiedChart(obj, err, &f)
		}
		p.trusted = trusted
		content = append(content, trusted.key)
	}
	f.Content = strings.Join(content, "\n")
	if isPulled {
		f.Reason = sourcev1.ChartPullSucceededReason
		f.Message = fmt.Sprintf("pulled '%s' chart with version '%s'", r.chart.name(), r)
	}
	if req.IsStored(r.version, f.Content) || obj.Status.Artifact.HasRevision(r.version) && r.chart.isCurrent(obj) {
		if obj.Spec.Verify != nil {
			f.Verification = &Verification{}
		}
		if !isPulled {
			f.Message = packagedMessage(r.chart.name(), r.version, obj.Status.ObservedValuesFiles)
		}
		return f, nil
	}
	p, err := r.chart.build(ctx, obj, h.options(obj, r), &f)
	if err != nil {
		return f, In(chartCondition(err), err)
	}
	f.File, f.Extension = io.NopCloser(bytes.NewReader(p.Data)), ".tgz"
	if r.trace != "" {
		f.Metadata = map[string]string{meta.TraceKey: r.trace}
	}
	f.Observed = chartObserved{name: p.Name, valuesFiles: p.ValuesFiles, source: r.source}
	if !isPulled {
		f.Message = packagedMessage(p.Name, r.version, p.ValuesFiles)
	}
	return f, nil
}

// valuesFiles returns the files whose values replace those of the chart. The values.yaml of the chart alone replaces
// nothing: the chart keeps its content and its version.
func valuesFiles(obj *sourcev1.HelmChart) []string {
	files := obj.GetValuesFiles()
	if len(files) == 1 && obj.Spec.SourceRef.Kind == sourcev1.HelmRepositoryKind &&
		path.Clean(files[0]) == "values.yaml" {
		return nil
	}
	return files
}

// options returns how the object wants its chart packaged.
func (h *HelmChart) options(obj *sourcev1.HelmChart, r *HelmChartRevision) helm.Options {
	return helm.Options{
		Metadata: r.metadata, ValuesFiles: valuesFiles(obj), Files: r.files,
		IgnoreMissing: obj.Spec.IgnoreMissingValuesFiles, Limits: h.Charts.Limits,
		Repository: func(ctx context.Context, url string) (helm.Repository, error) {
			return h.Charts.Dependency(ctx, obj.Namespace, url)
		},
	}
}

// chartObserved is what an artifact was made from.
type chartObserved struct {
	name        string
	valuesFiles []string
	source      string
}

// Record implements [Observed].
func (o chartObserved) Record(obj *sourcev1.HelmChart) {
	obj.Status.ObservedChartName, obj.Status.ObservedValuesFiles = o.name, o.valuesFiles
	obj.Status.ObservedSourceArtifactRevision = o.source
}

// Pin implements pinner: it pins the version of a chart from a repository. Other sources no longer have the files of an
// earlier version.
func (h *HelmChart) Pin(obj *sourcev1.HelmChart, revision string) string {
	if obj.Spec.SourceRef.Kind != sourcev1.HelmRepositoryKind || len(valuesFiles(obj)) > 0 {
		return ""
	}
	obj.Spec.Version = revision
	return revision
}

// readSource reads the object that the chart comes from.
func (h *HelmChart) readSource(ctx context.Context, obj *sourcev1.HelmChart, into Object) error {
	ref := obj.Spec.SourceRef
	err := h.Objects.Get(ctx, types.NamespacedName{Namespace: obj.Namespace, Name: ref.Name}, into)
	if apierrors.IsNotFound(err) {
		return fault.New(sourcev1.SourceUnavailableReason, "%s '%s/%s' not found", ref.Kind, obj.Namespace, ref.Name).
			WithHint("Create it, or correct spec.sourceRef")
	}
	return err
}

// noArtifactHint is the hint if an object has no artifact that another one needs.
const noArtifactHint = "See its conditions. This object continues when it has an artifact"

// noArtifact is the error of a source that has no artifact yet.
func noArtifact(kind, namespace, name string) error {
	return fault.New(sourcev1.NoSourceArtifactReason, "%s '%s/%s' has no artifact yet", kind, namespace, name).
		WithHint(noArtifactHint)
}

// packagedMessage is the message of the condition Ready of a chart that was packaged.
func packagedMessage(name, version string, valuesFiles []string) string {
	message := fmt.Sprintf("packaged '%s' chart with version '%s'", name, version)
	if len(valuesFiles) > 0 {
		message += fmt.Sprintf(" and merged values files [%s]", strings.Join(valuesFiles, ", "))
	}
	return message
}

// chartCondition returns the condition of an error: building a chart failed, or fetching it.
func chartCondition(err error) string {
	switch fault.Reason(err, "") {
	case sourcev1.ValuesFilesErrorReason, sourcev1.DependencyBuildErrorReason, sourcev1.ChartPackageErrorReason,
		sourcev1.ChartVerificationErrorReason:
		return sourcev1.BuildFailedCondition
	}
	return sourcev1.FetchFailedCondition
}

// Forget implements [Fetcher]: the fetcher keeps nothing.
func (h *HelmChart) Forget(context.Context, *sourcev1.HelmChart) error { return nil }
