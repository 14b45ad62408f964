package helmrelease

import (
	"context"
	"errors"

	"k8s.io/utils/ptr"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/helm/digest"
	"github.com/sluice-gitops/sluice/internal/helm/values"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// desired is the declared release.
type desired struct {
	name     string // of the release
	artifact *meta.Artifact
	tree     *artifact.Tree
	chart    chartInfo
	values   map[string]any
	secrets  []string // values of Secrets, which must not appear in messages
	warnings []string // about the values

	configDigest         string
	postRenderersDigest  string
	commonMetadataDigest string
}

// findDesired finds the chart and composes the values, or returns the outcome if that is not possible yet.
func (r *run) findDesired(ctx context.Context) *reconcile.Outcome {
	source, outcome := r.source(ctx, r.obj)
	if outcome != nil {
		return outcome
	}
	kind, _ := sourceKey(r.obj)
	tree, info, err := r.readChart(ctx, kind, source)
	if err != nil {
		return rollout.Stop(err)
	}
	spec := r.obj.Spec
	composed, err := values.Compose(ctx, r.valuesReader(r.obj), r.obj.Namespace, spec.ValuesFrom, spec.Values)
	if errors.Is(err, values.ErrNoArtifact) {
		return ptr.To(reconcile.Waiting(meta.ArtifactFailedReason, "%s", err))
	}
	if err != nil {
		return rollout.Stop(valuesFault(err))
	}
	r.keep(composed.Memory)
	r.desired = &desired{name: releaseName(r.obj), artifact: source.GetArtifact(), tree: tree, chart: info,
		values: composed.Values, secrets: composed.Secrets, warnings: composed.Warnings,
		configDigest: digest.Config(composed.Values)}
	if len(spec.PostRenderers) > 0 {
		r.postRenderersDigest = digest.PostRenderers(spec.PostRenderers)
	}
	if spec.CommonMetadata != nil {
		r.commonMetadataDigest = digest.CommonMetadata(spec.CommonMetadata)
	}
	return nil
}

// valuesFault gives an error of the values its documented reason.
func valuesFault(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) && f.Reason != "" {
		return err
	}
	return fault.New(helmv2.ValuesErrorReason, "cannot compose the values").Because(err)
}
