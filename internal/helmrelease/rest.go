package helmrelease

import (
	"context"
	"slices"
	"strings"

	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// atRest returns the outcome of a release that is as declared, after drift was detected and corrected.
func (r *run) atRest(ctx context.Context, o *observed) reconcile.Outcome {
	r.recordDeclared(ctx, o)
	r.dropSuperseded()
	r.retain(ctx, o.last)
	if err := r.correct(ctx, o.last); err != nil {
		return reconcile.Failed(r.destination(r.obj).ExplainMissingAccount(ctx, r.Live, r.obj.Namespace, err))
	}
	r.Clusters.Claims.Report(r.obj, &r.report, r.target, r.obj.Status.Inventory, nil)
	reason, message := helmv2.InstallSucceededReason, "Release is as declared: "+r.describeLast()
	for _, kind := range []string{helmv2.ReleasedCondition, helmv2.TestSuccessCondition} {
		c := apimeta.FindStatusCondition(r.obj.Status.Conditions, kind)
		if c != nil && c.Status == metav1.ConditionTrue {
			reason, message = c.Reason, c.Message
		}
	}
	return reconcile.Ready(reason, "%s", message)
}

// recordDeclared completes the status of a release that an earlier process or another client has released as declared.
func (r *run) recordDeclared(ctx context.Context, o *observed) {
	s := &r.obj.Status
	s.StorageNamespace = r.obj.GetStorageNamespace()
	s.LastAttemptedGeneration = r.obj.Generation
	s.LastAttemptedRevision, s.LastAttemptedRevisionDigest = r.chart.version, r.chart.ociDigest
	s.LastAttemptedConfigDigest = r.configDigest
	s.ObservedPostRenderersDigest, s.ObservedCommonMetadataDigest = r.postRenderersDigest, r.commonMetadataDigest
	r.clearFailures()
	if s.Inventory == nil {
		r.recordInventory(ctx, o.last)
	}
	if c := apimeta.FindStatusCondition(s.Conditions, helmv2.ReleasedCondition); c == nil ||
		c.Status != metav1.ConditionTrue {
		reason := helmv2.InstallSucceededReason
		if o.last.Version > 1 {
			reason = helmv2.UpgradeSucceededReason
		}
		r.recordReleased(reason, "Release is as declared: "+r.describeLast())
	}
}

// correct detects drift of the release's objects, and corrects or reports it as spec.driftDetection says. Without a
// release, which was not read since nothing had drifted, it leaves new drift to the next pass.
func (r *run) correct(ctx context.Context, rel *helmrelease.Release) error {
	owner := rollout.OwnerOf(refOf(r.obj))
	if r.obj.DriftMode() == meta.DriftDisabled {
		r.target.Cluster.Forget(owner) // stops watching for drift
		r.state.checked = ""
		reconcile.Unmark(r.obj, meta.DriftedCondition)
		return nil
	}
	if rel != nil && r.needsCorrection(owner) {
		if err := r.compare(ctx, owner, rel); err != nil {
			return err
		}
	}
	if r.obj.DriftMode() == meta.DriftEnabled {
		r.state.drift.ReportContentions(r.obj, &r.report, r.target.Cluster.Contentions(owner))
	}
	if rel != nil && !apimeta.IsStatusConditionTrue(r.obj.Status.Conditions, meta.DriftedCondition) {
		reconcile.Mark(r.obj, meta.DriftedCondition, metav1.ConditionFalse, helmv2.NoDriftDetectedReason,
			"No drift detected against the cluster state")
	}
	return nil
}

// needsCorrection reports whether the live objects must be compared with the release.
func (r *run) needsCorrection(owner apply.Owner) bool {
	return r.state.checked != r.comparison() || r.pass.Requested || r.needsResync() ||
		r.target.Cluster.Drifted(owner) || len(r.target.Cluster.UnwatchedKinds(owner)) > 0
}

// comparison identifies a comparison of the live objects with the last release.
func (r *run) comparison() string { return r.obj.DriftMode() + " " + r.obj.Status.History[0].Digest }

func (r *run) needsResync() bool { return r.Clock.Since(r.state.lastResync) >= r.Options.Resync }

// compare compares the live objects with the release.
func (r *run) compare(ctx context.Context, owner apply.Owner, rel *helmrelease.Release) error {
	request, err := r.driftRequest(owner, rel)
	if err != nil {
		return err
	}
	drifted, err := r.target.Cluster.DetectDrift(ctx, request)
	if err != nil {
		return r.driftFault(err)
	}
	if request.Resync {
		r.state.lastResync = r.Clock.Now()
	}
	r.state.checked = r.comparison()
	if r.obj.DriftMode() == meta.DriftWarn {
		r.state.drift.ReportDetected(r.obj, &r.report, drifted)
		return nil
	}
	if !slices.ContainsFunc(rollout.Effective(drifted), isVisible) {
		return nil
	}
	r.worked, r.report.Corrected = true, true
	result, err := r.target.Cluster.Apply(ctx, request)
	if result != nil {
		r.report.AddChanges(result.Changes)
	}
	if err != nil {
		r.state.checked = ""
		return r.driftFault(err)
	}
	return nil
}

// isVisible reports whether a change is more than one of field ownership.
func isVisible(c apply.Change) bool { return c.Diff != "" || c.Action != apply.Configured }

func (r *run) driftFault(err error) error {
	return fault.New(meta.ReconciliationFailedReason, "cannot compare the objects of release '%s' with the cluster",
		r.name).Because(r.redact(err))
}

// driftRequest returns the request to apply the objects of a stored release again.
func (r *run) driftRequest(owner apply.Owner, rel *helmrelease.Release) (apply.Request, error) {
	ignore, err := rollout.IgnoreRules(nil, r.obj.Spec.DriftDetection)
	if err != nil {
		return apply.Request{}, err
	}
	objects, err := r.comparable(rel)
	return apply.Request{
		Owner: owner, Objects: objects, Ignore: append(ignore, ignoreLabels(owner, objects)...),
		SameDeclaration: true, KeepOthers: true, MaxDiffs: rollout.MaxDiffs,
		Resync: r.state.checked != r.comparison() || r.pass.Requested || r.needsResync(),
		Veil:   r.veil,
	}, err
}

// ignoreLabels returns rules for objects that another client released. They have the labels that name their owner only
// after the next upgrade; until then, missing labels are not drift.
func ignoreLabels(owner apply.Owner, objects []*unstructured.Unstructured) []apply.Ignored {
	unlabeled := map[apply.Ref]bool{}
	var rule apply.Ignored
	for key := range owner.Labels() {
		rule.Paths = append(rule.Paths, "/metadata/labels/"+strings.ReplaceAll(key, "/", "~1"))
	}
	for _, o := range objects {
		for key, value := range owner.Labels() {
			if o.GetLabels()[key] != value {
				unlabeled[apply.RefOf(o)] = true
			}
		}
	}
	if len(unlabeled) == 0 {
		return nil
	}
	rule.Matches = func(o *unstructured.Unstructured) bool { return unlabeled[apply.RefOf(o)] }
	return []apply.Ignored{rule}
}

// comparable returns the objects of a stored release without those that are excluded from drift detection by
// annotation.
func (r *run) comparable(rel *helmrelease.Release) ([]*unstructured.Unstructured, error) {
	objects, err := r.objectsOf(rel)
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return strings.EqualFold(o.GetAnnotations()[helmv2.DriftDetectionAnnotation], "disabled")
	}), err
}

// objectsOf returns the objects of a stored release as Helm applies them.
func (r *run) objectsOf(rel *helmrelease.Release) ([]*unstructured.Unstructured, error) {
	objects, err := kube.Decode(strings.NewReader(rel.Manifest))
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, o := range objects {
		kube.SetMetadata(o, rel.Name, rel.Namespace)
		gvk := o.GroupVersionKind()
		mapping, err := r.target.Cluster.Mapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err == nil && mapping.Scope.Name() == apimeta.RESTScopeNameNamespace && o.GetNamespace() == "" {
			o.SetNamespace(rel.Namespace)
		}
		out = append(out, o)
	}
	return out, nil
}
