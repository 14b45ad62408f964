package helmrelease

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/helm/action"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/helm/postrender"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxDiscoveryAge bounds the age of what templates see of the kinds that a cluster serves. Others may install kinds.
const maxDiscoveryAge = time.Minute

// maxRetryDiscoveryAge is the same for a release that failed, perhaps since a kind was missing.
const maxRetryDiscoveryAge = 2 * time.Second

// newAction returns what all actions on the release need.
func (r *run) newAction() (*action.Run, error) {
	checks, err := r.state.health.Expressions(r.obj, r.obj.Spec.HealthCheckExprs)
	if err != nil {
		return nil, err
	}
	ignore, err := rollout.IgnoreRules(nil, r.obj.Spec.DriftDetection)
	if err != nil {
		return nil, err
	}
	capabilities, err := r.capabilities()
	if err != nil {
		return nil, fault.New(meta.ReconciliationFailedReason, "cannot read what the cluster serves").Because(err)
	}
	a := r.newUninstall()
	a.Capabilities, a.Client.Ignore, a.Client.Checks = capabilities, ignore, checks
	return a, nil
}

// newUninstall returns what an uninstall needs. No part of the spec that may be invalid keeps a release from being
// uninstalled.
func (r *run) newUninstall() *action.Run {
	return &action.Run{
		Object: r.obj, Name: r.name, Storage: r.storage.Driver, HelmDefaults: r.Options.Helm3Defaults,
		Capabilities: common.DefaultCapabilities, // not used: nothing is rendered
		Client: kube.Options{
			Target: r.target, Owner: refOf(r.obj), Namespace: r.obj.GetReleaseNamespace(), ReleaseName: r.name,
			Veil: r.veil, MaxDiffs: rollout.MaxDiffs, NoFailFast: r.Options.NoFailFast,
		},
	}
}

// capabilities returns what the templates of the release see as .Capabilities. Callers must not change it.
func (r *run) capabilities() (*common.Capabilities, error) {
	age := maxDiscoveryAge
	if r.obj.Status.Failures > 0 {
		age = maxRetryDiscoveryAge
	}
	r.target.RefreshDiscovery(r.Clock.Now(), age)
	s := r.served.Of(r.target, func() *served { return &served{} }, func(*served) {})
	return s.read(r.target.Cluster.Discovery())
}

// render renders the chart for an action.
func (r *run) render(ctx context.Context, release render.Release, values map[string]any) (action.Chart, error) {
	loaded, result, err := r.renderFiles(ctx, release, values)
	if err != nil {
		return action.Chart{}, err
	}
	return action.Chart{Original: loaded.chart, Rendered: render.Prerendered(loaded.chart, result), Values: values}, nil
}

// postRenderOptions returns what the spec changes in rendered objects.
func (r *run) postRenderOptions() postrender.Options {
	strategy := r.obj.Spec.PostRenderStrategy
	if strategy == "" && r.Options.Helm3Defaults {
		strategy = "nohooks"
	}
	return PostRenderOptions(r.obj, strategy)
}

// renderFiles renders the chart in another process, and changes what it rendered as the spec says.
func (r *run) renderFiles(ctx context.Context, release render.Release,
	values map[string]any) (*loadedChart, *render.Result, error) {
	loaded, result, err := r.renderWith(ctx, release, values, lookupIn(r.target, r.keep))
	return loaded, result, r.withoutSecrets(ctx, release, err)
}

func (r *run) renderWith(ctx context.Context, release render.Release, values map[string]any,
	lookup render.Lookup) (*loadedChart, *render.Result, error) {
	loaded, err := loadChart(ctx, r.tree, r.desired.chart)
	if err != nil {
		return nil, nil, err
	}
	capabilities, err := r.capabilities()
	if err != nil {
		return nil, nil, err
	}
	result, err := r.Renderer.Render(ctx, render.Request{
		Chart: loaded.archive, Release: release, Values: values,
		KubeVersion: capabilities.KubeVersion.Version, KubeMajor: capabilities.KubeVersion.Major,
		KubeMinor: capabilities.KubeVersion.Minor, APIVersions: slices.Clone(capabilities.APIVersions),
		Lookup: lookup, AllowDNS: r.Options.AllowDNS, SkipSchemaValidation: r.skipsSchema(release),
	})
	if err != nil {
		return nil, nil, err
	}
	var texts [][]byte
	for _, f := range result.Files {
		texts = append(texts, []byte(f.Content))
	}
	lease, err := takeManifests(ctx, "the rendered chart", texts...)
	r.keep(lease)
	if err != nil {
		return nil, nil, err
	}
	options := r.postRenderOptions()
	var warnings []string
	options.Warn = func(text string) { warnings = append(warnings, text) }
	result.Files, err = postrender.Change(ctx, result.Files, options)
	if text := strings.Join(rollout.FirstLines(warnings), "\n"); text != "" && text != r.state.chartWarnings {
		r.state.chartWarnings = text
		r.report.Warn(meta.AppliedWithWarningsReason, text)
	}
	return loaded, result, err
}

// takeReleases takes the memory for parsing what is stored of releases: Helm parses their manifests and hooks.
// Everybody who may create Secrets can store a release.
func (r *run) takeReleases(ctx context.Context, releases ...*helmrelease.Release) error {
	lease, err := takeManifests(ctx, storedRelease, textsOf(releases...)...)
	r.keep(lease)
	return err
}

// storedRelease says what memory is for.
const storedRelease = "the stored release"

// textsOf returns the manifests and hooks of releases.
func textsOf(releases ...*helmrelease.Release) [][]byte {
	var texts [][]byte
	for _, rel := range releases {
		texts = append(texts, []byte(rel.Manifest))
		for _, h := range rel.Hooks {
			texts = append(texts, []byte(h.Manifest))
		}
	}
	return texts
}

// keep keeps memory until the pass ends.
func (r *run) keep(lease *guard.Lease) { r.leases = append(r.leases, lease) }

// takeManifests takes the memory for parsing manifests, and checks their aliases.
func takeManifests(ctx context.Context, work string, texts ...[]byte) (*guard.Lease, error) {
	lease, err := yamlsize.Acquire(ctx, work, texts...)
	if err != nil && !guard.IsMemory(err) {
		err = fault.New(meta.ReconciliationFailedReason, "%s cannot be used", work).Because(err)
	}
	return lease, err
}

// takeCRDs takes the memory for parsing files in the directories crds of a chart.
func takeCRDs(ctx context.Context, crds []chart.CRD) (*guard.Lease, error) {
	var texts [][]byte
	for _, c := range crds {
		texts = append(texts, c.File.Data)
	}
	return takeManifests(ctx, "the definitions of the chart", texts...)
}

// releaseMemory gives back the memory of a pass.
func (r *run) releaseMemory() {
	r.memory.Release()
	for _, lease := range r.leases {
		lease.Release()
	}
}

func (r *run) skipsSchema(release render.Release) bool {
	if release.IsInstall {
		return r.obj.Spec.Install != nil && r.obj.Spec.Install.DisableSchemaValidation
	}
	return r.obj.Spec.Upgrade != nil && r.obj.Spec.Upgrade.DisableSchemaValidation
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ownerOf returns the HelmRelease whose labels the manifest of a release has; empty if it has none.
func ownerOf(rel *helmrelease.Release) types.NamespacedName {
	objects, err := kube.Decode(bytes.NewReader([]byte(rel.Manifest)))
	if err != nil {
		return types.NamespacedName{}
	}
	for _, o := range objects {
		labels := o.GetLabels()
		if name := labels[GroupKind.Group+"/name"]; name != "" {
			return types.NamespacedName{Namespace: labels[GroupKind.Group+"/namespace"], Name: name}
		}
	}
	return types.NamespacedName{}
}

// checkOwner returns an error if another HelmRelease manages the release.
func (r *run) checkOwner(ctx context.Context, rel *helmrelease.Release) error {
	if rel == nil || isRecorded(r.obj, rel) {
		return nil
	}
	owner := ownerOf(rel)
	own := types.NamespacedName{Namespace: r.obj.Namespace, Name: r.obj.Name}
	if owner == (types.NamespacedName{}) || owner == own {
		return nil
	}
	other := &helmv2.HelmRelease{}
	err := r.Controller.Client.Get(ctx, owner, other)
	if err != nil || releaseName(other) != rel.Name || other.GetStorageNamespace() != r.obj.GetStorageNamespace() ||
		len(other.Status.History) == 0 {
		return nil //nolint:nilerr // an owner that cannot be read or has moved on does not hold the release
	}
	return fault.New(meta.ReconciliationFailedReason, "release '%s/%s' is managed by HelmRelease '%s'", rel.Namespace,
		rel.Name, owner).WithHint("Give one of them another spec.releaseName, or delete one").Final()
}

// foreignWait returns how long another client may still work on a pending release.
func (r *run) foreignWait(rel *helmrelease.Release) time.Duration {
	own := types.NamespacedName{Namespace: r.obj.Namespace, Name: r.obj.Name}
	if strings.TrimSpace(rel.Manifest) == "" || ownerOf(rel) == own {
		return 0 // no other process of ours runs: its action was interrupted
	}
	return rel.Info.LastDeployed.Add(r.obj.GetTimeout(nil)).Sub(r.Clock.Now())
}
