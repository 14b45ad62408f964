package build

import (
	"errors"
	"io/fs"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// check validates a kustomization file before kustomize follows its references. Wherever a file or a base is expected,
// kustomize would download what looks like a URL and run git for what looks like a repository, and it has no option to
// disable that. Therefore every reference must be a file or a directory in this source, and must not look remote even
// if it exists locally.
func (f *filesystem) check(name string, k *types.Kustomization) error {
	if err := checkType(name, k.TypeMeta); err != nil {
		return err
	}
	if err := f.checkSingle(path.Dir(name)); err != nil {
		return err
	}
	if len(k.HelmCharts) > 0 || len(k.HelmChartInflationGenerator) > 0 || k.HelmGlobals != nil {
		return inflatesHelm(name)
	}
	if len(k.OpenAPI) > 0 {
		f.schema = true
	}
	f.extent.add(k)
	if err := f.weighTexts(name, k); err != nil {
		return err
	}
	if err := checkAffixes(name, k); err != nil {
		return err
	}
	dir := path.Dir(name)
	f.leaveEncrypted(k, dir)
	var problems []error
	for _, named := range namedBy(k) {
		problems = append(problems, f.checkNamed(name, dir, named))
	}
	if err := join(problems); err != nil {
		return err
	}
	f.noteResources(dir, k.Resources)
	for _, list := range [][]string{k.Generators, k.Transformers, k.Validators} {
		for _, entry := range list {
			if err := f.checkPlugin(name, dir, entry); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteResources records the files that must contain objects.
func (f *filesystem) noteResources(dir string, resources []string) {
	for _, r := range resources {
		if name := path.Join(dir, r); f.trace.kind(f.tree, name) == kindFile {
			f.resources.add(name)
		}
	}
}

// maxAffix is the number of bytes of a prefix, a suffix or a namespace: those of a name.
const maxAffix = 253

// checkAffixes refuses settings that make names longer than names can be.
func checkAffixes(name string, k *types.Kustomization) error {
	for what, value := range map[string]string{"namePrefix": k.NamePrefix, "nameSuffix": k.NameSuffix,
		"namespace": k.Namespace} {
		if len(value) > maxAffix {
			return refusal("%s has a %s of %d bytes; names have up to %d", name, what, len(value), maxAffix)
		}
	}
	return nil
}

func inflatesHelm(name string) error {
	return refusal("%s inflates Helm charts, which would run a program", name).
		WithHint("Deliver the chart with a HelmRelease")
}

// checkNamed checks one reference in a kustomization file in dir.
func (f *filesystem) checkNamed(file, dir, named string) error {
	if isRemote(named) {
		return remote(file, named)
	}
	if strings.Contains(named, "\n") || inPlace(named) {
		return nil // content, not a name
	}
	full := path.Join(mount, dir, named)
	if path.IsAbs(named) {
		full = path.Clean(named)
	}
	inTree, err := inside(full)
	if err != nil || path.IsAbs(named) || leavesBase(dir, inTree) {
		return refusal("%s names %q, which reaches out of the source", file, named).
			WithHint("A build sees its own repository only: copy it in")
	}
	if f.Exists(full) {
		return nil
	}
	if _, err := f.tree.Stat(inTree); errors.Is(err, fs.ErrInvalid) {
		return refusal("%s names %q, which is a symlink that leads out of the source", file, named).
			WithHint("Keep everything that a build reads inside the repository")
	}
	return refusal("%s names %q, which is not in the source", file, named).
		WithHint("Correct the path, and check that spec.ignore and .sourceignore do not leave it out. Artifacts have " +
			"no symlinks")
}

// inPlace reports whether the text is a YAML object instead of a file name.
func inPlace(text string) bool {
	found := false
	err := documents([]byte(text), func(doc *yaml.Node) error {
		found = found || doc.Kind == yaml.MappingNode
		return nil
	})
	return found && err == nil
}

func remote(file, named string) error {
	if strings.Contains(named, "://") {
		named = fault.RedactURL(named)
	}
	return refusal("%s names %q, which is remote", file, named).
		WithHint("Copy it into the repository, or create a separate source for it. Manifests and git repositories at " +
			"http:// and https:// URLs without credentials are fetched with the controller flag " +
			"--no-remote-bases=false. If it is a local directory, write ./ before it")
}

var loginAt = regexp.MustCompile(`^[a-z][a-z0-9-]*@[^/]*[:/]`)

// isRemote reports whether kustomize may treat the name as a URL or a repository. If in doubt, it returns true.
func isRemote(named string) bool {
	if u, err := url.Parse(named); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		return true
	}
	lower := strings.TrimPrefix(strings.ToLower(named), "git::")
	for _, prefix := range []string{"http://", "https://", "ssh://", "file://", "git@", "github.com/", "github.com:"} {
		if strings.HasPrefix(lower, prefix) {
			return true
		}
	}
	return loginAt.MatchString(lower)
}

// namedBy returns the files and directories that a kustomization refers to, except for plugin configurations.
func namedBy(k *types.Kustomization) []string {
	var names []string
	bases := k.Bases //nolint:staticcheck // deprecated but in use
	for _, list := range [][]string{k.Resources, k.Components, k.Crds, k.Configurations, bases} {
		names = append(names, list...)
	}
	for _, p := range k.PatchesStrategicMerge { //nolint:staticcheck // old but in use
		names = append(names, string(p))
	}
	for _, p := range patchesOf(k) {
		names = appendSet(names, p.Path)
	}
	for _, r := range k.Replacements {
		names = appendSet(names, r.Path)
	}
	names = appendSet(names, k.OpenAPI["path"])
	for _, g := range k.ConfigMapGenerator {
		names = appendSources(names, g.KvPairSources)
	}
	for _, g := range k.SecretGenerator {
		names = appendSources(names, g.KvPairSources)
	}
	return names
}

// patchesOf returns the patches of a kustomization, without those that are only merged.
func patchesOf(k *types.Kustomization) []types.Patch {
	return slices.Concat(k.Patches, k.PatchesJson6902) //nolint:staticcheck // old but in use
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

// checkPlugin checks the configuration of a generator, a transformer or a validator: inline YAML, a file, or
// a directory of such files. Only plugins built into kustomize are allowed. They may load files by URL too,
// so their configuration is checked.
func (f *filesystem) checkPlugin(file, dir, entry string) error {
	if isRemote(entry) {
		return remote(file, entry)
	}
	if inPlace(entry) {
		return f.checkPluginConfig(file, []byte(entry))
	}
	if err := f.checkNamed(file, dir, entry); err != nil {
		return err
	}
	name := path.Join(dir, entry)
	if !f.IsDir(path.Join(mount, name)) {
		b, err := f.ReadFile(path.Join(mount, name))
		if err != nil {
			return explainRead(name, err)
		}
		return f.checkPluginConfig(name, b)
	}
	return f.checkPluginDir(name)
}

// checkPluginDir checks a directory of plugin configurations. Its kustomization may only list them: a configuration
// that patches change cannot be checked before it is used.
func (f *filesystem) checkPluginDir(dir string) error {
	if f.plugins[dir] {
		return nil // already checked; kustomize reports cycles
	}
	f.plugins[dir] = true
	k, file, err := f.kustomization(dir, parseKustomization)
	if err != nil || file == "" {
		return err // kustomize refuses a base without a kustomization
	}
	k.FixKustomization()
	if !onlyLists(k) {
		return refusal("%s lists configurations of transformers or generators, and must do nothing else", file).
			WithHint("Keep only resources in it, and write the complete configurations into files")
	}
	dir = path.Dir(file)
	for _, r := range k.Resources {
		if err := f.checkPlugin(file, dir, r); err != nil {
			return err
		}
	}
	return nil
}

// inert is the set of fields of plugin configurations whose values are plain text and are never loaded as files.
var inert = map[string]bool{"metadata": true, "annotations": true, "labels": true, "literals": true, "value": true}

func (f *filesystem) checkPluginConfig(file string, content []byte) error {
	var refused error
	err := documents(content, func(doc *yaml.Node) error {
		var head types.TypeMeta
		if err := yamlsize.Decode(doc, &head); err != nil {
			return err
		}
		switch {
		case head.APIVersion != konfig.BuiltinPluginApiVersion:
			refused = refusal("%s configures the plugin %s, which is not built into kustomize and would run a program",
				file, head.Kind).
				WithHint("Only plugins of apiVersion: builtin are allowed")
		case strings.HasPrefix(head.Kind, "HelmChart"):
			refused = inflatesHelm(file)
		default:
			refused = (&pluginConfig{file, map[*yaml.Node]bool{}}).check(doc)
		}
		if refused != nil {
			return refused
		}
		return nil
	})
	if refused != nil {
		return refused
	}
	if err != nil {
		return syntaxError(file, content, err)
	}
	return nil
}

// pluginConfig is a plugin configuration that is being checked.
type pluginConfig struct {
	file string
	seen map[*yaml.Node]bool // targets of aliases that were checked
}

// check refuses every string that kustomize may load as a URL.
func (p *pluginConfig) check(n *yaml.Node) error {
	switch n.Kind {
	case yaml.AliasNode:
		if p.seen[n.Alias] {
			return nil
		}
		p.seen[n.Alias] = true
		return p.check(n.Alias)
	case yaml.ScalarNode:
		_, value, _ := strings.Cut(n.Value, "=") // a generator's key=file
		for _, text := range []string{n.Value, value} {
			if isRemote(text) {
				return remote(p.file, text)
			}
		}
		if n.ShortTag() == "!!binary" {
			return refusal("%s, line %d, holds binary data", p.file, n.Line).WithHint("Write it as text")
		}
		return nil
	}
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && inert[n.Content[i-1].Value] {
			continue
		}
		if err := p.check(c); err != nil {
			return err
		}
	}
	return nil
}
