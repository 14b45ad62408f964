package helmrelease

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/helm/kube"
	"github.com/sluice-gitops/sluice/internal/helm/render"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// dryRun is the release that an install or upgrade would store.
type dryRun struct {
	manifest string
	hooks    []*helmrelease.Hook
	crds     []chart.CRD
}

// dryRun renders the chart as an install or upgrade would.
func (r *run) dryRun(ctx context.Context, o *observed) (*dryRun, error) {
	loaded, result, err := r.renderFiles(ctx, r.nextRelease(o), r.values)
	if err != nil {
		return nil, err
	}
	return r.assemble(ctx, loaded, result)
}

// nextRelease returns what templates see of the release that an install or upgrade would store.
func (r *run) nextRelease(o *observed) render.Release {
	release := render.Release{Name: r.name, Namespace: r.obj.GetReleaseNamespace(), Revision: 1, IsInstall: true}
	if o.last != nil {
		release.Revision, release.IsInstall, release.IsUpgrade = o.last.Version+1, false, true
	}
	return release
}

// assemble returns the release that is made of a rendered chart.
func (r *run) assemble(ctx context.Context, loaded *loadedChart, result *render.Result) (*dryRun, error) {
	files := map[string]string{}
	for _, f := range result.Files {
		if !strings.HasSuffix(f.Name, "NOTES.txt") {
			files[f.Name] = f.Content
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, m := range manifests {
		fmt.Fprintf(&all, "---\n# Source: %s\n%s\n", m.Name, m.Content)
	}
	crds, err := render.CRDs(loaded.chart, r.values)
	if err != nil {
		return nil, err
	}
	lease, err := takeCRDs(ctx, crds)
	if err != nil {
		return nil, err
	}
	r.keep(lease)
	return &dryRun{manifest: all.String(), hooks: hooks, crds: crds}, nil
}

// preview returns what an install or upgrade to the declared release would change.
func (r *run) preview(ctx context.Context) (*rollout.Proposal, error) {
	o, err := r.observe(ctx)
	if err != nil {
		return nil, err
	}
	next, err := r.dryRun(ctx, o)
	if err != nil {
		return nil, r.redact(err)
	}
	objects, err := r.objectsIn(next)
	if err != nil {
		return nil, err
	}
	ignore, err := rollout.IgnoreRules(nil, r.obj.Spec.DriftDetection)
	if err != nil {
		return nil, err
	}
	request := apply.Request{Owner: rollout.OwnerOf(refOf(r.obj)), Objects: objects, MaxDiffs: rollout.MaxDiffs,
		Veil: r.veil, Inspect: true, KeepOthers: true, Ignore: ignore}
	if o.last != nil {
		before, err := r.objectsOf(o.last)
		if err != nil {
			return nil, err
		}
		for _, b := range before {
			request.Previous = append(request.Previous, apply.RefOf(b).Entry())
		}
	}
	planned, err := r.target.Cluster.Diff(ctx, request)
	if err != nil {
		return nil, r.redact(err)
	}
	p := rollout.NewProposal(refOf(r.obj), len(request.Previous), r.chart.version, planned, r.veil)
	others, err := next.others(o.last, r.veil)
	if err != nil {
		return nil, r.redact(err)
	}
	p.Change.Objects = append(p.Change.Objects, others...)
	if err := r.leaveOutRandom(ctx, o, objects, &p.Change); err != nil {
		return nil, err
	}
	p.Change.Identify(r.pass.Seal, r.decision(r.obj))
	return p, nil
}

// objectsIn returns the objects of a dry-run as Helm applies them.
func (r *run) objectsIn(d *dryRun) ([]*unstructured.Unstructured, error) {
	return r.objectsOf(&helmrelease.Release{Name: r.name, Namespace: r.obj.GetReleaseNamespace(), Manifest: d.manifest})
}

// leaveOutRandom leaves random values of Secrets out of the digest of a change: it renders the chart again to find
// them.
func (r *run) leaveOutRandom(ctx context.Context, o *observed, objects []*unstructured.Unstructured,
	change *risk.Change) error {
	if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Secret" }) {
		return nil
	}
	again, err := r.dryRun(ctx, o)
	if err != nil {
		return r.redact(err)
	}
	others, err := r.objectsIn(again)
	if err != nil {
		return err
	}
	change.LeaveOut(redact.Compare(objects, others))
	return nil
}

// others returns the hooks and the definitions in the directory crds that the last release did not have. They are not
// part of the manifest, but an action creates them.
func (d *dryRun) others(last *helmrelease.Release, veil *redact.Veil) ([]risk.Object, error) {
	known := map[string]bool{}
	if last != nil {
		for _, h := range last.Hooks {
			known[h.Manifest] = true
		}
		if last.Chart != nil {
			for _, c := range last.Chart.CRDObjects() {
				known[string(c.File.Data)] = true
			}
		}
	}
	var texts []string
	for _, h := range d.hooks {
		texts = append(texts, h.Manifest)
	}
	for _, c := range d.crds {
		texts = append(texts, string(c.File.Data))
	}
	var out []risk.Object
	for _, text := range texts {
		if known[text] {
			continue
		}
		objects, err := kube.Decode(strings.NewReader(text))
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			out = append(out, risk.NewObject(risk.Created, nil, o, veil))
		}
	}
	return out, nil
}
