package build

import (
	"fmt"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// locate returns the file and the line of a field of a built object, such as "deploy.yaml, line 7". A patch may have
// set the field. It returns the file of the object if the line is not known, or "" if nothing is.
func (f *filesystem) locate(o *unstructured.Unstructured, field string) string {
	origin := f.origin(o)
	files := append([]string{origin}, f.files.names...)
	for n, file := range files {
		if file == "" || n > 0 && file == origin {
			continue
		}
		if line := f.lineOf(file, o, field); line > 0 {
			return fmt.Sprintf("%s, line %d", file, line)
		}
	}
	return origin
}

// lineOf returns the line of a field in the documents of a file that may declare an object; 0 if none has it.
func (f *filesystem) lineOf(file string, o *unstructured.Unstructured, path string) (line int) {
	b, err := f.tree.ReadFile(file)
	if err != nil {
		return 0 // of a base that was fetched, or generated
	}
	_ = documents(b, func(doc *yaml.Node) error { // the build has read the file
		for _, candidate := range append([]*yaml.Node{doc}, itemsOf(doc)...) {
			name := text(field(field(candidate, "metadata"), "name"))
			// A kustomization may have added a prefix and a suffix.
			if line == 0 && text(field(candidate, "kind")) == o.GetKind() && strings.Contains(o.GetName(), name) {
				line = LineAt(candidate, path)
			}
		}
		return nil
	})
	return line
}

// itemsOf returns the items of a list.
func itemsOf(doc *yaml.Node) []*yaml.Node {
	if items := field(doc, "items"); items != nil && resolve(items).Kind == yaml.SequenceNode {
		return resolve(items).Content
	}
	return nil
}

// LineAt returns the line of the field at a path such as spec.containers[0].image; 0 if there is none.
func LineAt(n *yaml.Node, path string) int {
	n = resolve(n)
	if path == "" {
		return n.Line
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			rest, ok := strings.CutPrefix(path, n.Content[i].Value)
			switch {
			case !ok:
			case rest == "":
				return n.Content[i].Line
			case rest[0] == '.', rest[0] == '[':
				if line := LineAt(n.Content[i+1], strings.TrimPrefix(rest, ".")); line > 0 {
					return line
				}
			}
		}
	case yaml.SequenceNode:
		index, rest, _ := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if at, err := strconv.Atoi(index); err == nil && at >= 0 && at < len(n.Content) {
			return LineAt(n.Content[at], strings.TrimPrefix(rest, "."))
		}
	}
	return 0
}
