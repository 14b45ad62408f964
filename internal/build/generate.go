package build

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"sigs.k8s.io/kustomize/api/types"
)

// generate lists the manifests below dir for a directory that has no kustomization file: every YAML file, and every
// directory that has one of its own. All files must hold Kubernetes objects, as documented, and no object twice; all that
// is wrong is told at once.
func (f *filesystem) generate(dir string) (*types.Kustomization, error) {
	g := &generator{filesystem: f, dir: dir, declared: map[identity]string{}, out: &types.Kustomization{}}
	if err := g.scan(dir); err != nil {
		return nil, err
	}
	return g.out, join(g.problems)
}

type generator struct {
	*filesystem
	dir      string
	out      *types.Kustomization
	declared map[identity]string // where an object is
	problems []error
}

func (g *generator) scan(at string) error {
	if err := g.ctx.Err(); err != nil {
		return err
	}
	names, err := g.trace.listing(g.tree, at)
	if err != nil {
		return refusal("directory %s cannot be read", at).Because(err)
	}
	if at != g.dir {
		k, file, err := g.kustomization(at)
		if err != nil {
			return err
		}
		if file != "" {
			if k.Kind != types.ComponentKind { // components are for those who name them
				g.out.Resources = append(g.out.Resources, relative(g.dir, at))
			}
			return nil
		}
	}
	for _, n := range names {
		name := path.Join(at, n)
		info, err := g.tree.Lstat(name)
		switch {
		case err != nil:
			return refusal("%s cannot be read", name).Because(err)
		case info.IsDir():
			if err := g.scan(name); err != nil {
				return err
			}
		case isManifest(n):
			g.add(name)
		}
	}
	return nil
}

// add lists a file, if it holds anything.
func (g *generator) add(name string) {
	objects, err := g.manifests(name)
	g.problems = append(g.problems, err)
	if len(objects) > 0 {
		g.out.Resources = append(g.out.Resources, relative(g.dir, name))
	}
	for _, o := range objects {
		if o.problem != "" {
			g.problems = append(g.problems, refusal("%s: %s", o.where, o.problem))
			continue
		}
		if first, ok := g.declared[o.identity]; ok && o.name != "" {
			g.problems = append(g.problems, twice(o.identity, []string{first, o.where}))
		}
		g.declared[o.identity] = o.where
	}
}

// identity is what there may be one object of.
type identity struct{ group, version, kind, namespace, name string }

func (i identity) String() string {
	if i.namespace == "" {
		return i.kind + "/" + i.name
	}
	return i.kind + "/" + i.namespace + "/" + i.name
}

// twice says that an object is declared more than once; where may be unknown.
func twice(i identity, where []string) error {
	err := refusal("%s is declared twice", i)
	if len(where) > 1 {
		err = refusal("%s is declared twice: in %s", i, strings.Join(where, ", and in "))
	}
	return err.WithHint("Remove one of the two")
}

// manifest is a document of a file.
type manifest struct {
	identity
	where   string // the file and the line
	problem string // why it is no object
}

// manifests reads the documents of a file. An error is one of the file as a whole, such as of its syntax.
func (f *filesystem) manifests(name string) (out []manifest, err error) {
	b, err := f.ReadFile(path.Join(mount, name))
	if err != nil {
		return nil, explainRead(name, err)
	}
	err = documents(b, func(doc *yaml.Node) error {
		m, err := parseManifest(doc)
		m.where = fmt.Sprintf("%s, line %d", name, doc.Line)
		out = append(out, m)
		return err
	})
	if err != nil {
		return nil, syntaxError(name, err)
	}
	return out, nil
}

func parseManifest(doc *yaml.Node) (m manifest, err error) {
	if doc.Kind != yaml.MappingNode {
		return manifest{problem: noObject}, nil
	}
	var head struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
		Metadata   struct {
			Name         string `yaml:"name"`
			GenerateName string `yaml:"generateName"`
			Namespace    string `yaml:"namespace"`
		} `yaml:"metadata"`
	}
	if err := doc.Decode(&head); err != nil {
		return manifest{}, err
	}
	group, version, ok := strings.Cut(head.APIVersion, "/")
	if !ok {
		group, version = "", head.APIVersion
	}
	m.identity = identity{group, version, head.Kind, head.Metadata.Namespace, head.Metadata.Name}
	switch {
	case head.APIVersion == "" || head.Kind == "":
		m.problem = noObject
	case m.name == "" && !strings.HasSuffix(m.kind, "List"): // a list is what its items are
		m.problem = nameless(m.kind, head.Metadata.GenerateName)
	}
	return m, nil
}

const noObject = "this is not a Kubernetes object, apiVersion or kind is missing. " +
	"Leave the file out with .sourceignore or spec.ignore, or list the manifests in a kustomization.yaml"

func nameless(kind, generateName string) string {
	if generateName != "" {
		return kind + " has metadata.generateName, which would make another object each time. Give it a metadata.name"
	}
	return kind + " has no name. Give it a metadata.name"
}

// documents calls visit for every document of a YAML file that holds something.
func documents(content []byte, visit func(*yaml.Node) error) error {
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" {
			continue
		}
		if err := visit(doc.Content[0]); err != nil {
			return err
		}
	}
}

func syntaxError(name string, err error) error {
	return refusal("%s is not valid YAML: %s", name, strings.TrimPrefix(err.Error(), "yaml: "))
}

// relative gives name as seen from dir.
func relative(dir, name string) string {
	if dir == "." {
		return name
	}
	return strings.TrimPrefix(name, dir+"/")
}
