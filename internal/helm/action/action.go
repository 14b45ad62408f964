// Package action runs Helm's actions on a release: install, upgrade, test, rollback and uninstall.
package action

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	helmaction "helm.sh/helm/v4/pkg/action"
	chartcommon "helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	helmkube "helm.sh/helm/v4/pkg/kube"
	ri "helm.sh/helm/v4/pkg/release"
	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/helm/storage"
)

// Run is what all actions on a release need.
type Run struct {
	Object  *helmv2.HelmRelease
	Name    string // of the release
	Storage *storage.Driver
	// Options of the cluster's client, without those that depend on the action.
	Client       kube.Options
	Capabilities *chartcommon.Capabilities
	// HelmDefaults are those of Helm 3.
	HelmDefaults bool
}

// Chart is the chart of an install or upgrade, whose templates are rendered.
type Chart struct {
	Original *chart.Chart // is stored
	Rendered *chart.Chart // is used
	Values   map[string]any
}

// applyCRDs applies the files in the directories crds of the chart and its enabled dependencies, as the policy says.
func (c Chart) applyCRDs(client *kube.Client, policy string, timeout time.Duration) error {
	crds, err := render.CRDs(c.Original, c.Values)
	if err != nil {
		return err
	}
	return client.ApplyCRDs(crds, policy, timeout)
}

// begin returns the configuration and the client of an action.
func (r *Run) begin(ctx context.Context, change func(*kube.Options)) (*helmaction.Configuration, *kube.Client, error) {
	o := r.Client
	o.Legacy = r.waitStrategy() == helmkube.LegacyStrategy
	change(&o)
	client, err := kube.New(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	cfg := helmaction.NewConfiguration(helmaction.ConfigurationSetLogger(slog.DiscardHandler))
	cfg.KubeClient, cfg.Releases = client.Guarded(), r.Storage.Storage(r.Object.GetMaxHistory())
	cfg.Capabilities = r.Capabilities
	return cfg, client, nil
}

// waitStrategy returns the strategy of the spec; legacy if none is set and the defaults are those of Helm 3.
func (r *Run) waitStrategy() helmkube.WaitStrategy {
	w := r.Object.Spec.WaitStrategy
	if w != nil && w.Name == helmv2.WaitStrategyLegacy || w == nil && r.HelmDefaults {
		return helmkube.LegacyStrategy
	}
	return helmkube.StatusWatcherStrategy
}

// Install installs the release. Replace allows the name of an uninstalled release whose history was kept.
func (r *Run) Install(ctx context.Context, c Chart, replace bool) (*kube.Client, error) {
	spec := r.Object.Spec.Install
	if spec == nil {
		spec = &helmv2.Install{}
	}
	timeout := r.Object.GetTimeout(spec.Timeout)
	serverSide := !r.HelmDefaults
	if spec.ServerSideApply != nil {
		serverSide = *spec.ServerSideApply
	}
	cfg, client, err := r.begin(ctx, func(o *kube.Options) {
		o.ServerSide, o.NoWait, o.Timeout = serverSide, spec.DisableWait, timeout
		o.Defer = r.deferral(true, hookUnless(spec.DisableHooks, release.HookPostInstall))
	})
	if err != nil {
		return nil, err
	}
	if err := c.applyCRDs(client, installCRDs(spec), timeout); err != nil {
		return client, err
	}
	i := helmaction.NewInstall(cfg)
	i.ReleaseName, i.Namespace, i.Timeout = r.Name, r.Object.GetReleaseNamespace(), timeout
	i.CreateNamespace, i.Replace, i.SkipCRDs = spec.CreateNamespace, spec.Replace || replace, true
	i.ServerSideApply, i.ForceConflicts = serverSide, serverSide
	i.TakeOwnership = !spec.DisableTakeOwnership
	i.WaitStrategy, i.WaitForJobs = r.waitStrategy(), !spec.DisableWaitForJobs
	i.DisableHooks, i.DisableOpenAPIValidation = spec.DisableHooks, spec.DisableOpenAPIValidation
	i.SkipSchemaValidation = true // the values were validated when the chart was rendered
	r.Storage.Replace(c.Rendered, c.Original)
	_, err = i.Run(c.Rendered, c.Values)
	return client, waited(client, err)
}

func installCRDs(spec *helmv2.Install) string {
	switch {
	case spec.CRDs != "":
		return spec.CRDs
	case spec.SkipCRDs:
		return helmv2.CRDsSkip
	default:
		return helmv2.CRDsCreate
	}
}

// Upgrade upgrades the release with a history, newest first.
func (r *Run) Upgrade(ctx context.Context, c Chart, history []*release.Release) (*kube.Client, error) {
	spec := r.Object.Spec.Upgrade
	if spec == nil {
		spec = &helmv2.Upgrade{}
	}
	timeout := r.Object.GetTimeout(spec.Timeout)
	serverSide := usesServerSide(spec.ServerSideApply, history[0])
	cfg, client, err := r.begin(ctx, func(o *kube.Options) {
		o.ServerSide, o.NoWait, o.Force, o.Timeout = serverSide, spec.DisableWait, spec.Force, timeout
		o.Abandoned, o.Stored = abandoned(history), manifestsOf(history)
		o.Defer = r.deferral(!spec.CleanupOnFail, hookUnless(spec.DisableHooks, release.HookPostUpgrade))
	})
	if err != nil {
		return nil, err
	}
	policy := spec.CRDs
	if policy == "" {
		policy = helmv2.CRDsSkip
	}
	if err := c.applyCRDs(client, policy, timeout); err != nil {
		return client, err
	}
	u := helmaction.NewUpgrade(cfg)
	u.Namespace, u.Timeout, u.MaxHistory = r.Object.GetReleaseNamespace(), timeout, r.Object.GetMaxHistory()
	u.ServerSideApply, u.ForceConflicts = strconv.FormatBool(serverSide), serverSide
	u.ForceReplace = spec.Force && !serverSide
	u.TakeOwnership, u.CleanupOnFail = !spec.DisableTakeOwnership, spec.CleanupOnFail
	u.WaitStrategy, u.WaitForJobs = r.waitStrategy(), !spec.DisableWaitForJobs
	u.DisableHooks, u.DisableOpenAPIValidation = spec.DisableHooks, spec.DisableOpenAPIValidation
	u.ResetValues = true // values of the last release were merged when the chart was rendered
	u.SkipCRDs, u.SkipSchemaValidation = true, true
	r.Storage.Replace(c.Rendered, c.Original)
	_, err = u.Run(r.Name, c.Rendered, c.Values)
	return client, waited(client, err)
}

// abandoned returns the manifests of the failed releases that are newer than the deployed one. Helm compares only with
// the deployed one, and would leave their objects in the cluster.
func abandoned(history []*release.Release) []string {
	var manifests []string
	for _, rel := range history {
		if rel.Info.Status != common.StatusFailed {
			return manifests
		}
		manifests = append(manifests, rel.Manifest)
	}
	return manifests
}

// manifestsOf returns the manifests of releases.
func manifestsOf(history []*release.Release) []string {
	var manifests []string
	for _, rel := range history {
		manifests = append(manifests, rel.Manifest)
	}
	return manifests
}

// usesServerSide reports whether objects are applied server-side: as the spec says, or else as the last release did.
func usesServerSide(option string, last *release.Release) bool {
	switch option {
	case helmv2.ServerSideApplyEnabled:
		return true
	case helmv2.ServerSideApplyDisabled:
		return false
	default:
		return last != nil && last.ApplyMethod == string(release.ApplyMethodServerSideApply)
	}
}

// Test runs the tests of the last release.
func (r *Run) Test(ctx context.Context) (*kube.Client, error) {
	spec := r.Object.Spec.Test
	cfg, client, err := r.begin(ctx, func(o *kube.Options) { o.ServerSide = true })
	if err != nil {
		return nil, err
	}
	t := helmaction.NewReleaseTesting(cfg)
	t.Namespace, t.Timeout = r.Object.GetReleaseNamespace(), r.Object.GetTimeout(spec.Timeout)
	for _, f := range spec.Filters {
		key := helmaction.IncludeNameFilter
		if f.Exclude {
			key = helmaction.ExcludeNameFilter
		}
		t.Filters[key] = append(t.Filters[key], f.Name)
	}
	_, shutdown, err := t.Run(r.Name)
	if shutdown == nil {
		return client, err
	}
	if shutdownErr := shutdown(); err == nil { // it returns the error of the test again
		err = shutdownErr
	}
	return client, err
}

// Rollback rolls the release back from the last one.
func (r *Run) Rollback(ctx context.Context, last, to *release.Release) (*kube.Client, error) {
	spec := r.Object.Spec.Rollback
	if spec == nil {
		spec = &helmv2.Rollback{}
	}
	serverSide, timeout := usesServerSide(spec.ServerSideApply, to), r.Object.GetTimeout(spec.Timeout)
	cfg, client, err := r.begin(ctx, func(o *kube.Options) {
		o.ServerSide, o.NoWait, o.Force, o.Timeout = serverSide, spec.DisableWait, spec.Force, timeout
		o.Stored = []string{last.Manifest}
	})
	if err != nil {
		return nil, err
	}
	b := helmaction.NewRollback(cfg)
	b.Version, b.Timeout, b.MaxHistory = to.Version, timeout, r.Object.GetMaxHistory()
	b.ServerSideApply, b.ForceConflicts = strconv.FormatBool(serverSide), serverSide
	b.ForceReplace = spec.Force && !serverSide
	b.WaitStrategy, b.WaitForJobs = r.waitStrategy(), !spec.DisableWaitForJobs
	b.DisableHooks, b.CleanupOnFail = spec.DisableHooks, spec.CleanupOnFail
	return client, b.Run(r.Name)
}

// Uninstall uninstalls the release. KeepHistory keeps its stored revisions even if the spec does not ask for it. Helm
// refuses to uninstall a release again whose history is kept.
func (r *Run) Uninstall(ctx context.Context, keepHistory bool) (*kube.Client, error) {
	spec := r.Object.Spec.Uninstall
	if spec == nil {
		spec = &helmv2.Uninstall{}
	}
	cfg, client, err := r.begin(ctx, func(o *kube.Options) {
		o.ServerSide, o.NoWait, o.IsRemoval = true, spec.DisableWait, true
	})
	if err != nil {
		return nil, err
	}
	u := helmaction.NewUninstall(cfg)
	u.Timeout, u.DisableHooks = r.Object.GetTimeout(spec.Timeout), spec.DisableHooks
	u.KeepHistory = spec.KeepHistory || keepHistory
	u.WaitStrategy, u.DeletionPropagation = r.waitStrategy(), spec.DeletionPropagation
	_, err = u.Run(r.Name)
	if errors.Is(err, driver.ErrReleaseNotFound) {
		return client, nil
	}
	return client, client.WithProblems(err)
}

// Interrupt marks a release as failed whose action was interrupted, such as by a crash of the process that ran it.
func (r *Run) Interrupt(rel *release.Release) error {
	was := rel.Info.Status
	rel.SetStatus("failed", fmt.Sprintf("interrupted while it was %s", was))
	var stored ri.Releaser = rel
	return r.Storage.Storage(0).Update(stored)
}
