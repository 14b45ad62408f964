package build

import (
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

func refusal(format string, args ...any) *fault.Fault {
	return fault.New(meta.BuildFailedReason, format, args...)
}

// check looks at a kustomization file before kustomize follows what it names: everything must be a file or a directory of
// this source. So nothing is ever fetched and nothing is ever run, whatever a file says.
func (f *filesystem) check(name string, content []byte) error {
	var k types.Kustomization
	if err := k.Unmarshal(content); err != nil {
		return refusal("%s cannot be read", name).Because(err)
	}
	if len(k.HelmCharts) > 0 || len(k.HelmChartInflationGenerator) > 0 || k.HelmGlobals != nil {
		return refusal("%s inflates Helm charts, which would run a program", name).WithHint("Deliver the chart with a HelmRelease")
	}
	f.schema = f.schema || len(k.OpenAPI) > 0
	dir := path.Dir(path.Join(mount, name))
	for _, named := range namedBy(&k) {
		if err := f.checkNamed(name, dir, named); err != nil {
			return err
		}
	}
	return nil
}

func (f *filesystem) checkNamed(file, dir, named string) error {
	if strings.Contains(named, "\n") {
		return nil // content in place, not a name
	}
	full := path.Join(dir, named)
	if f.Exists(full) {
		return nil
	}
	switch _, err := inside(full); {
	case looksRemote(named):
		return refusal("%s names %q, which is remote", file, fault.RedactURL(named)).
			WithHint("Remote bases are refused: copy it into the repository, or make it a source of its own")
	case err != nil || path.IsAbs(named):
		return refusal("%s names %q, which reaches out of the source", file, named).
			WithHint("A build sees its own repository only: copy it in")
	default:
		return refusal("%s names %q, which is not in the source", file, named).
			WithHint("Correct the path, and check that spec.ignore and .sourceignore do not leave it out")
	}
}

func looksRemote(named string) bool {
	return strings.Contains(named, "://") || strings.Contains(named, "git@") || strings.Contains(named, "?ref=") ||
		strings.HasPrefix(named, "github.com") || strings.HasPrefix(named, "git::")
}

// namedBy lists the files and directories that a kustomization names.
func namedBy(k *types.Kustomization) []string {
	var names []string
	for _, list := range [][]string{k.Resources, k.Components, k.Crds, k.Configurations, k.Generators, k.Transformers, k.Validators, k.Bases} { //nolint:staticcheck // bases are old but in use
		names = append(names, list...)
	}
	for _, p := range k.PatchesStrategicMerge { //nolint:staticcheck // old but in use
		names = append(names, string(p))
	}
	for _, p := range append(k.Patches, k.PatchesJson6902...) { //nolint:staticcheck // old but in use
		names = appendSet(names, p.Path)
	}
	for _, r := range k.Replacements {
		names = appendSet(names, r.Path)
	}
	if p := k.OpenAPI["path"]; p != "" {
		names = append(names, p)
	}
	for _, g := range k.ConfigMapGenerator {
		names = appendSources(names, g.KvPairSources)
	}
	for _, g := range k.SecretGenerator {
		names = appendSources(names, g.KvPairSources)
	}
	return names
}

func appendSet(names []string, name string) []string {
	if name == "" {
		return names
	}
	return append(names, name)
}

func appendSources(names []string, s types.KvPairSources) []string {
	for _, f := range s.FileSources {
		if _, file, ok := strings.Cut(f, "="); ok {
			f = file
		}
		names = append(names, f)
	}
	return appendSet(append(names, s.EnvSources...), s.EnvSource)
}
