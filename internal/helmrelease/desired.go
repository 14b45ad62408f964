package helmrelease

import (
	"context"
	"errors"

	"k8s.io/utils/ptr"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/helm/digest"
	"github.com/sluice-gitops/sluice/internal/helm/values"
	"github.com/sluice-gitops/sluice/internal/reconcile"
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

	valuesMemory *guard.Lease // of the values and secrets

	configDigest         string
	postRenderersDigest  string
	commonMetadataDigest string
}

// desired finds the chart and composes the values, or returns the outcome if that is not possible yet.
func (c *Controller) desired(ctx context.Context, obj *helmv2.HelmRelease) (*desired, *reconcile.Outcome) {
	source, outcome := c.source(ctx, obj)
	if outcome != nil {
		return nil, outcome
	}
	kind, _ := sourceKey(obj)
	tree, info, err := c.readChart(ctx, kind, source)
	if err != nil {
		return nil, ptr.To(reconcile.Failed(err))
	}
	d := &desired{name: releaseName(obj), artifact: source.GetArtifact(), tree: tree, chart: info}
	composed, err := values.Compose(ctx, c.valuesReader(obj), obj.Namespace, obj.Spec.ValuesFrom, obj.Spec.Values)
	if errors.Is(err, values.ErrNoArtifact) {
		return nil, ptr.To(reconcile.Waiting(meta.ArtifactFailedReason, "%s", err))
	}
	if err != nil {
		return nil, ptr.To(reconcile.Failed(valuesFault(err)))
	}
	d.values, d.secrets, d.valuesMemory = composed.Values, composed.Secrets, composed.Memory
	d.warnings = composed.Warnings
	d.configDigest = digest.Config(d.values)
	if len(obj.Spec.PostRenderers) > 0 {
		d.postRenderersDigest = digest.PostRenderers(obj.Spec.PostRenderers)
	}
	if obj.Spec.CommonMetadata != nil {
		d.commonMetadataDigest = digest.CommonMetadata(obj.Spec.CommonMetadata)
	}
	return d, nil
}

// valuesFault gives an error of the values its documented reason.
func valuesFault(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) && f.Reason != "" {
		return err
	}
	return fault.New(helmv2.ValuesErrorReason, "cannot compose the values").Because(err)
}
