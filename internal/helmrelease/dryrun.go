package helmrelease

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"

	"github.com/sluice-gitops/sluice/internal/helm/render"
)

// dryRun returns the manifest of the release that an install or upgrade would store.
func (r *run) dryRun(ctx context.Context, o *observed) (string, error) {
	release := render.Release{Name: r.name, Namespace: r.obj.GetReleaseNamespace(), Revision: 1, IsInstall: true}
	if o.last != nil {
		release.Revision, release.IsInstall, release.IsUpgrade = o.last.Version+1, false, true
	}
	_, result, err := r.renderFiles(ctx, release, r.values)
	if err != nil {
		return "", err
	}
	a, err := r.newAction()
	if err != nil {
		return "", err
	}
	files := map[string]string{}
	for _, f := range result.Files {
		if !strings.HasSuffix(f.Name, "NOTES.txt") {
			files[f.Name] = f.Content
		}
	}
	_, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return "", err
	}
	var all bytes.Buffer
	for _, m := range manifests {
		fmt.Fprintf(&all, "---\n# Source: %s\n%s\n", m.Name, m.Content)
	}
	if a.PostRenderer == nil {
		return all.String(), nil
	}
	rendered, err := a.PostRenderer.Run(&all)
	if err != nil {
		return "", err
	}
	return rendered.String(), nil
}
