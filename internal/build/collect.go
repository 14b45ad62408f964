package build

import (
	"cmp"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"sigs.k8s.io/kustomize/api/types"
	kyaml "sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/build/growth"
)

// addedBytes is the memory for each byte that replacements and vars add.
const addedBytes = 8

// growing collects what replacements and vars may make larger.
type growing struct {
	measure *growth.Measure
	later   []func(*growth.Measure) error // what was read before anything that can grow
	patches map[string]bool               // files of patches
}

func newGrowing() growing { return growing{measure: growth.New(), patches: map[string]bool{}} }

func (g growing) clone() growing {
	return growing{measure: g.measure.Clone(), later: slices.Clone(g.later), patches: g.patches}
}

// collectText collects the objects of a file.
func (f *filesystem) collectText(name string, content []byte) error {
	return f.collected(func(m *growth.Measure) error {
		return allDocuments(content, func(doc *yaml.Node) error {
			if f.growing.patches[name] {
				m.Patch(doc)
			} else {
				m.Object(doc)
			}
			return nil
		})
	})
}

// collected adds something to the measure, as soon as there are replacements or vars, and takes the memory for what
// they may add.
func (f *filesystem) collected(add func(*growth.Measure) error) error {
	g := &f.growing
	current := g.measure.Current()
	g.later = append(g.later, func(m *growth.Measure) error {
		m.Enter(current)
		return add(m)
	})
	if !g.measure.Needed() {
		return nil
	}
	g.measure.Take = f.takeText
	for _, add := range g.later {
		if err := add(g.measure); err != nil {
			return err
		}
	}
	g.later = nil
	b, err := g.measure.Bound()
	switch {
	case err != nil:
		return err
	case b.Nested != "":
		return refusal("replacements write the field %q as a whole, and also a part of its text", b.Nested).
			WithHint("What the text is made of is not known before. Write the parts only, or use a patch")
	case b.Bytes > maxOutput:
		return refusal("replacements and vars may add more than %d MiB to the objects", maxOutput>>20).
			WithHint("Look for long texts that are put into many fields, and for fields that are both a source " +
				"and a target")
	}
	f.added = b.Bytes*addedBytes + b.Values*kustomizeBytes
	if err := f.grow(f.needs()); err != nil {
		return err
	}
	if b.Work > maxWork {
		return refusal("the replacements would take too long: they have too many targets for so many objects").
			WithHint("Give the kind of objects in each 'select', or split the source into several Kustomizations")
	}
	return nil
}

// collect collects the settings of a kustomization in dir.
func (f *filesystem) collect(dir string, k *types.Kustomization) error {
	replacements, err := f.replacements(dir, k.Replacements)
	if err != nil {
		return err
	}
	listed := f.listed(dir, k)
	f.effort.level(dir, listed)
	f.growing.measure.Kustomization(dir, listed, k.Kind == types.ComponentKind,
		k.Vars) //nolint:staticcheck // old but in use
	f.growing.measure.Replacements(replacements)
	if err := f.effort.countFields(replacements); err != nil {
		return err
	}
	for _, p := range k.PatchesStrategicMerge { //nolint:staticcheck // old but in use
		f.growing.patches[path.Join(dir, string(p))] = true
	}
	for _, p := range patchesOf(k) {
		f.growing.patches[path.Join(dir, p.Path)] = true
	}
	return f.collected(func(m *growth.Measure) error {
		m.Setting(k.NamePrefix, true)
		m.Setting(k.NameSuffix, true)
		m.Setting(k.Namespace, false)
		for _, i := range k.Images {
			m.Setting(cmp.Or(i.NewName, i.Name)+":"+i.NewTag+i.TagSuffix+"@"+i.Digest, false)
		}
		for _, g := range k.ConfigMapGenerator {
			f.collectData(m, dir, "ConfigMap", g.GeneratorArgs)
		}
		for _, g := range k.SecretGenerator {
			f.collectData(m, dir, "Secret", g.GeneratorArgs)
		}
		return f.collectShared(m, k)
	})
}

// listed returns the directories that a kustomization in dir lists.
func (f *filesystem) listed(dir string, k *types.Kustomization) []string {
	var dirs []string
	bases := k.Bases //nolint:staticcheck // deprecated but in use
	for _, list := range [][]string{bases, k.Resources, k.Components, k.Generators, k.Transformers, k.Validators} {
		for _, entry := range list {
			if full := path.Join(mount, dir, entry); !strings.Contains(entry, "\n") && f.IsDir(full) {
				if real, _, err := f.CleanedAbs(full); err == nil {
					name, _ := inside(string(real)) // a directory of the tree
					dirs = append(dirs, name)
				}
			}
		}
	}
	return dirs
}

// collectShared collects what a kustomization merges into all objects.
func (f *filesystem) collectShared(m *growth.Measure, k *types.Kustomization) error {
	retyped := slices.ContainsFunc(patchesOf(k),
		func(p types.Patch) bool { return p.Options != nil && p.Options.AllowKindChange })
	shared := map[string]any{"allowKindChange": retyped, "options": k.GeneratorOptions, "pairs": k.Labels,
		"labels":      k.CommonLabels, //nolint:staticcheck // old but in use
		"annotations": k.CommonAnnotations}
	maps.DeleteFunc(shared, func(_ string, v any) bool { return reflect.ValueOf(v).IsZero() })
	b, err := kyaml.Marshal(shared)
	if err != nil {
		return err
	}
	return documents(b, func(doc *yaml.Node) error { m.Patch(doc); return nil })
}

// collectData collects what a generator puts into an object. Kustomize reads the files later, and reports errors.
func (f *filesystem) collectData(m *growth.Measure, dir, kind string, from types.GeneratorArgs) {
	m.Generated(kind, from.Name)
	for _, l := range from.LiteralSources {
		key, value, _ := strings.Cut(l, "=")
		m.Data(key, value)
	}
	for _, file := range from.FileSources {
		key, name, ok := strings.Cut(file, "=")
		if !ok {
			key, name = path.Base(file), file
		}
		content, _ := f.tree.ReadFile(path.Join(dir, name))
		m.Data(key, string(content))
	}
	for _, file := range appendSet(slices.Clone(from.EnvSources), from.EnvSource) {
		content, _ := f.tree.ReadFile(path.Join(dir, file))
		for line := range strings.Lines(string(content)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			m.Data(key, value)
		}
	}
}

// replacements returns the replacements of a list, with those of its files.
func (f *filesystem) replacements(dir string, list []types.ReplacementField) ([]types.Replacement, error) {
	var all []types.Replacement
	for _, r := range list {
		if r.Path == "" {
			all = append(all, r.Replacement)
			continue
		}
		name := path.Join(dir, r.Path)
		content, err := f.ReadFile(path.Join(mount, name))
		if err != nil {
			return nil, explainRead(name, err)
		}
		var several []types.Replacement
		if kyaml.Unmarshal(content, &several) != nil {
			var one types.Replacement
			if err := kyaml.Unmarshal(content, &one); err != nil {
				return nil, syntaxError(name, content, err)
			}
			several = []types.Replacement{one}
		}
		all = append(all, several...)
	}
	return all, nil
}

// plugin is the part of the configurations of generators and transformers that says what they add.
type plugin struct {
	types.TypeMeta      `yaml:",inline"`
	types.KvPairSources `yaml:",inline"`
	Metadata            types.ObjectMeta
	Path                string
	Paths               []string
	Patch, Patches      string
	JSONOp              string `yaml:"jsonOp"`
	Target              *types.Selector
	Replacements        []types.ReplacementField `yaml:"replacements"`
	Labels              map[string]string        `yaml:"labels"`
	Annotations         map[string]string        `yaml:"annotations"`
	FieldSpecs          []types.FieldSpec        `yaml:"fieldSpecs"`
}

// collectPlugin collects a configuration of a generator or a transformer of the kustomization in dir.
func (f *filesystem) collectPlugin(file, dir string, doc *yaml.Node) error {
	var p plugin
	_ = doc.Decode(&p)             // kustomize reports errors
	f.growing.patches[file] = true // its texts are patches
	f.effort.visits++
	for _, name := range append(p.Paths, p.Path) {
		f.growing.patches[path.Join(dir, name)] = true
		if name != "" {
			if err := f.countPatch(dir, types.Patch{Path: name, Target: p.Target}); err != nil {
				return err
			}
		}
	}
	for _, text := range []string{p.Patch, p.Patches, p.JSONOp} {
		if err := f.countPatch(dir, types.Patch{Patch: text, Target: p.Target}); err != nil {
			return err
		}
		if err := f.weighText(file, []byte(text)); err != nil {
			return err
		}
	}
	fields := defaultFields
	for _, s := range p.FieldSpecs {
		fields++
		f.patched += strings.Count(s.Path, "/") + 1
	}
	f.patched += (len(p.Labels) + len(p.Annotations)) * fields
	replacements, err := f.replacements(dir, p.Replacements)
	if err != nil {
		return err
	}
	f.growing.measure.Replacements(replacements)
	if err := f.effort.countFields(replacements); err != nil {
		return err
	}
	return f.collected(func(m *growth.Measure) error {
		if strings.HasSuffix(p.Kind, "Generator") {
			f.collectData(m, dir, strings.TrimSuffix(p.Kind, "Generator"),
				types.GeneratorArgs{Name: p.Metadata.Name, KvPairSources: p.KvPairSources})
		}
		m.Setting(longest(doc), strings.Contains(p.Kind, "fix"))
		m.Patch(doc)
		return nil
	})
}

// longest returns the longest text in a value.
func longest(n *yaml.Node) string {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	text := n.Value
	for _, c := range n.Content {
		if below := longest(c); len(below) > len(text) {
			text = below
		}
	}
	return text
}
