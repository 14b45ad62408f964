package validate

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/build"
)

// readFiles reads the manifests that no build has read. It leaves out documents without a kind.
func (r *run) readFiles(context.Context) error {
	for _, name := range r.found.manifests {
		if r.isCovered[name] || r.found.isKustomization[name] || r.found.inCharts(name) {
			continue
		}
		content, err := r.Files.ReadFile(name)
		if err != nil {
			return err
		}
		for _, d := range split(string(content)) {
			r.readDocument(name, d)
		}
	}
	return nil
}

// document is a document of a YAML file.
type document struct {
	text string
	line int // of its first line, from 0
}

// split splits a YAML file into documents.
func split(content string) (all []document) {
	start, line, at := 0, 0, 0
	for text := range strings.Lines(content) {
		if strings.HasPrefix(text, "---") && strings.TrimSpace(strings.TrimPrefix(text, "---")) == "" {
			all = append(all, document{content[start:at], line - strings.Count(content[start:at], "\n")})
			start = at + len(text)
		}
		at += len(text)
		line++
	}
	rest := content[start:]
	return append(all, document{rest, line - strings.Count(strings.TrimSuffix(rest, "\n")+"\n", "\n")})
}

// lineInError finds the line in an error of YAML.
var lineInError = regexp.MustCompile(`line (\d+)`)

// isManifest finds documents that are meant to be objects, although they cannot be read.
var isManifest = regexp.MustCompile(`(?m)^apiVersion:\s*\S+`)

// readDocument reads a document, and adds its objects.
func (r *run) readDocument(name string, d document) {
	text, err := yaml.YAMLToJSONStrict([]byte(d.text))
	if err != nil {
		if !isManifest.MatchString(d.text) {
			return
		}
		p := Problem{Rule: Syntax, File: name, Message: strings.TrimPrefix(err.Error(), "yaml: ")}
		if m := lineInError.FindStringSubmatch(err.Error()); m != nil {
			line, _ := strconv.Atoi(m[1])
			p.Line = d.line + line
			p.Message = strings.Join(strings.Fields(strings.Replace(p.Message, m[0]+": ", "", 1)), " ")
			p.Message = strings.TrimPrefix(p.Message, "unmarshal errors: ")
		}
		r.add(p)
		return
	}
	o := &unstructured.Unstructured{}
	if utiljson.Unmarshal(text, &o.Object) != nil || o.GetAPIVersion() == "" || o.GetKind() == "" ||
		o.Object["sops"] != nil { // its values are encrypted, of any type
		return
	}
	var doc yamlv3.Node
	if err := yamlv3.Unmarshal([]byte(d.text), &doc); err != nil || len(doc.Content) == 0 {
		return
	}
	u := &unit{name: name, locate: func(_ *unstructured.Unstructured, field string) (string, int) {
		line := build.LineAt(doc.Content[0], field)
		if line == 0 && !strings.Contains(field, ".") {
			line = doc.Content[0].Line
		}
		if line == 0 {
			return name, 0
		}
		return name, d.line + line
	}}
	r.units = append(r.units, u)
	if items, isList := o.Object["items"].([]any); isList && o.GetAPIVersion() == "v1" && strings.HasSuffix(o.GetKind(),
		"List") {
		r.addItems(u, items)
		return
	}
	u.objects = append(u.objects, o)
}

// addItems adds the objects of a list, each of which has its places in the list.
func (r *run) addItems(list *unit, items []any) {
	for i, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			continue
		}
		r.units = append(r.units, &unit{name: list.name, objects: []*unstructured.Unstructured{{Object: object}},
			locate: func(o *unstructured.Unstructured, field string) (string, int) {
				return list.locate(o, strings.TrimSuffix(fmt.Sprintf("items[%d].%s", i, field), "."))
			}})
	}
}
