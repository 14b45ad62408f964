package build

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
)

// identity identifies an object; each may be declared once.
type identity struct{ group, version, kind, namespace, name string }

func (i identity) String() string {
	if i.namespace == "" {
		return i.kind + "/" + i.name
	}
	return i.kind + "/" + i.namespace + "/" + i.name
}

// twice returns the error for an object that is declared more than once. The locations may be unknown.
func twice(i identity, where []string) error {
	if n := len(where); n > mostProblems {
		where = append(where[:mostProblems:mostProblems], fmt.Sprintf("%d more places", n-mostProblems))
	}
	err := refusal("%s is declared twice", i)
	if len(where) > 1 {
		err = refusal("%s is declared twice: in %s", i, strings.Join(where, ", and in "))
	}
	return err.WithHint("Remove one of the two")
}

// manifest is an object of a file, or a document that is not an object.
type manifest struct {
	identity
	where   string // the file and the line
	problem string // why it is not an object; empty if it is one
}

// manifests reads the objects of a file. An error concerns the whole file, such as a syntax error.
func (f *filesystem) manifests(name string) (out []manifest, err error) {
	b, err := f.ReadFile(path.Join(mount, name))
	if err != nil {
		return nil, explainRead(name, err)
	}
	err = documents(b, func(doc *yaml.Node) error {
		out = append(out, parseManifests(name, doc)...)
		return nil
	})
	if err != nil {
		return nil, syntaxError(name, b, err)
	}
	for i := range out {
		if out[i].problem != "" && isTemplate(b) {
			out[i].problem += ". " + templateHint
		}
	}
	return out, nil
}

// notObjects returns the problems of the manifests.
func notObjects(manifests []manifest) (problems []error) {
	for _, m := range manifests {
		if m.problem != "" {
			problems = append(problems, refusal("%s: %s", m.where, m.problem))
		}
	}
	return problems
}

// parseManifests returns an object, or the objects of a list. [filesystem.weighText] limits aliases.
func parseManifests(file string, n *yaml.Node) []manifest {
	m := parseManifest(n)
	m.where = fmt.Sprintf("%s, line %d", file, n.Line)
	items := field(n, "items")
	if m.problem != "" || !strings.HasSuffix(m.kind, "List") || items == nil || items.ShortTag() == "!!null" {
		return []manifest{m}
	}
	if items.Kind != yaml.SequenceNode {
		m.problem = m.kind + ": items must be a list of objects"
		return []manifest{m}
	}
	var out []manifest
	for _, item := range items.Content {
		out = append(out, parseManifests(file, item)...)
	}
	return out
}

func parseManifest(n *yaml.Node) (m manifest) {
	metadata := field(n, "metadata")
	group, version, ok := strings.Cut(text(field(n, "apiVersion")), "/")
	if !ok {
		group, version = "", group
	}
	m.identity = identity{group: group, version: version, kind: text(field(n, "kind")),
		namespace: text(field(metadata, "namespace")),
		name:      text(field(metadata, "name"))}
	switch {
	case m.version == "" || m.kind == "":
		m.problem = noObject
	case strings.HasSuffix(m.kind, "List") && field(n, "items") != nil: // a list needs no name; its items are checked
	case metadata != nil && resolve(metadata).Kind != yaml.MappingNode:
		m.problem = m.kind + ": metadata must be a map"
	case m.name == "" && field(metadata, "name") != nil:
		m.problem = m.kind + ": metadata.name must be text. Quote it"
	case m.name == "":
		m.problem = nameless(m.kind, text(field(metadata, "generateName")))
	}
	return m
}

// resolve returns the target of an alias, or the node itself.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// field returns the value of a key in a map or in a map merged into it, or nil if the key does not exist.
func field(n *yaml.Node, key string) (found *yaml.Node) {
	if n == nil {
		return nil
	}
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch n.Content[i].Value {
		case key:
			return n.Content[i+1]
		case "<<":
			if merged := resolve(n.Content[i+1]); merged.Kind == yaml.MappingNode && found == nil {
				found = field(merged, key)
			}
		}
	}
	return found
}

// text returns a string value, or "" if the value is not a string.
func text(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	if n = resolve(n); n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return ""
	}
	return n.Value
}

const noObject = "this is not a Kubernetes object, apiVersion or kind is missing. " +
	"Leave the file out with .sourceignore or spec.ignore, or list the manifests in a kustomization.yaml"

func nameless(kind, generateName string) string {
	if generateName != "" {
		return kind + " has metadata.generateName, which would make another object each time. Give it a metadata.name"
	}
	return kind + " has no name. Give it a metadata.name"
}

// documents calls visit for every non-empty document of a YAML file.
func documents(content []byte, visit func(*yaml.Node) error) error {
	if err := yamlsize.CheckDirectives(content); err != nil {
		return err
	}
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

func syntaxError(name string, content []byte, err error) error {
	said := strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "yaml: ")), " ")
	f := refusal("%s is not valid YAML: %s", name, strings.TrimPrefix(said, "unmarshal errors: "))
	if isTemplate(content) {
		return f.WithHint(templateHint)
	}
	return f
}

const templateHint = "It looks like a template of Helm: deliver the chart with a HelmRelease, and leave it out here " +
	"with .sourceignore or spec.ignore"

func isTemplate(content []byte) bool { return bytes.Contains(content, []byte("{{")) }

// malformed returns the error of the first document of a file that kustomize cannot read, with the line where it
// starts: kustomize reads each document by itself, so the lines in its errors are not those of the file. It returns nil
// if there is none.
func malformed(name string, content []byte) error {
	line := 1
	for doc := range bytes.SplitSeq(content, []byte("\n---")) {
		var node yaml.Node
		if err := yaml.Unmarshal(doc, &node); err != nil {
			said := lineOfDocument.ReplaceAllString(err.Error(), "")
			return refusal("%s, in the document at line %d, is not valid YAML: %s", name, line, brief(errors.New(said)))
		}
		line += bytes.Count(doc, []byte("\n")) + 1
	}
	return nil
}

var lineOfDocument = regexp.MustCompile(`^yaml: (unmarshal errors:\s*)?(line \d+: )?`)
