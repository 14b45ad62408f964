package edit

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
)

// Binding sets the image of a policy where no comment marks it. Exactly one of Workload and Values is set.
type Binding struct {
	Policy   string // "namespace:name"
	Image    Ref
	Workload *Workload
	Values   *Values
}

// Workload names a container of a workload.
type Workload struct {
	Kind, Name string // empty: any
	Namespace  string // as the files have it; empty: any
	Container  string // empty: all that have the image
	// Implied says that nobody wrote the binding: what has no namespace in the files counts, and a container
	// with another image does not.
	Implied bool
}

// Values names where a file of Helm values has an image, or its parts: keys with dots between them, indexes in lists.
type Values struct {
	File                              string // relative to the root of the repository
	Path                              string // of a whole reference
	Registry, Repository, Tag, Digest string // of parts; with Registry, Repository is the name without it
}

// Bound sets images in workloads, in the images of a kustomization that override them, and in Helm values.
func Bound(file string, content []byte, bindings []Binding) Result {
	e := &editing{file: file, result: Result{Content: content}}
	var concerned []int
	for i, b := range bindings {
		if b.concerns(file, content) {
			concerned = append(concerned, i)
		}
	}
	if len(concerned) == 0 || !e.parse(content) {
		return e.result
	}
	for _, i := range concerned {
		b := &bindings[i]
		if e.follow(b) {
			e.result.Found = append(e.result.Found, i)
		}
	}
	return e.finish()
}

// concerns tells whether the file may hold the place, by a look at its bytes.
func (b *Binding) concerns(file string, content []byte) bool {
	if b.Values != nil {
		return path.Clean(b.Values.File) == file
	}
	if b.Workload.Name == "" || IsKustomization(file) && bytes.Contains(content, []byte("images")) {
		_, name := splitRegistry(b.Image.Name)
		return bytes.Contains(content, []byte(path.Base(name)))
	}
	return bytes.Contains(content, []byte(b.Workload.Name)) && bytes.Contains(content, []byte(b.Workload.Kind))
}

// IsKustomization tells whether kustomize would read the file by itself.
func IsKustomization(file string) bool {
	switch path.Base(file) {
	case "kustomization.yaml", "kustomization.yml", "Kustomization":
		return true
	}
	return false
}

// follow sets what one binding calls for, and tells whether its place is in the file.
func (e *editing) follow(b *Binding) (found bool) {
	if !b.Image.Valid() {
		e.problem(0, "the image of the policy %s is no reference", b.Policy)
		return true
	}
	for _, doc := range e.text.docs {
		root := doc.Content[0]
		switch {
		case b.Values != nil:
			found = e.followValues(b, root) || found
		case IsKustomization(e.file):
			e.followOverride(b, root)
		default:
			for _, object := range objects(root) {
				if b.Workload.is(identity(object)) {
					found = e.followContainers(b, object) || found
				}
			}
		}
	}
	if found {
		e.names(b.Policy)
	}
	return found
}

// is tells whether an object is the workload.
func (w *Workload) is(o Object) bool {
	return (w.Kind == "" || w.Kind == o.Kind) && (w.Name == "" || w.Name == o.Name) &&
		(w.Namespace == "" || w.Namespace == o.Namespace || w.Implied && o.Namespace == "")
}

// followContainers sets the image of the containers that the binding is about, in whatever pod template the object has.
func (e *editing) followContainers(b *Binding, n *yaml.Node) (found bool) {
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		if value.Kind == yaml.SequenceNode && isContainers(key) {
			for _, c := range value.Content {
				found = e.followContainer(b, c) || found
			}
			continue
		}
		found = e.followContainers(b, value) || found
	}
	return found
}

func (e *editing) followContainer(b *Binding, c *yaml.Node) bool {
	image := get(c, "image")
	if image == nil || b.Workload.Container != "" && at(c, "name") != b.Workload.Container {
		return false
	}
	was := ParseRef(resolve(image).Value)
	same := canonical(was.Name) == canonical(b.Image.Name)
	if !same && (b.Workload.Container == "" || b.Workload.Implied) {
		return false
	}
	if !same && was.Tag == "" && was.Digest == "" {
		return true // a placeholder, which a kustomization overrides
	}
	want := b.Image
	if same {
		want.Name = was.Name
	}
	e.set(image, want.String(), Change{Policy: b.Policy, Setter: b.Policy})
	return true
}

// followOverride sets the tag or the digest that a kustomization gives to the image.
func (e *editing) followOverride(b *Binding, root *yaml.Node) {
	if namespace := at(root, "namespace"); b.Workload.Namespace != "" && namespace != "" &&
		namespace != b.Workload.Namespace {
		return // of another workload of that name
	}
	images := get(root, "images")
	if images == nil || images.Kind != yaml.SequenceNode {
		return
	}
	for _, entry := range images.Content {
		name := at(entry, "newName")
		if name == "" {
			name = at(entry, "name")
		}
		tag, digest := get(entry, "newTag"), get(entry, "digest")
		if canonical(name) != canonical(b.Image.Name) || tag == nil && digest == nil {
			continue
		}
		e.names(b.Policy)
		if digest != nil && b.Image.Digest == "" {
			e.problem(digest.Line, "pins a digest, and the image of the policy %s has none: set its "+
				"spec.digestReflectionPolicy", b.Policy)
			continue
		}
		change := Change{Policy: b.Policy, Setter: b.Policy}
		if tag != nil && b.Image.Tag != "" {
			e.set(tag, b.Image.Tag, change)
		}
		if digest != nil {
			e.set(digest, b.Image.Digest, change)
		}
	}
}

// followValues sets the image at the paths of a file of Helm values.
func (e *editing) followValues(b *Binding, root *yaml.Node) bool {
	v, name := b.Values, b.Image.Name
	if v.Registry != "" {
		var registry string
		registry, name = splitRegistry(name)
		defer e.setPath(root, b, v.Registry, registry)
	}
	e.setPath(root, b, v.Path, b.Image.String())
	e.setPath(root, b, v.Repository, name)
	e.setPath(root, b, v.Tag, b.Image.Tag)
	e.setPath(root, b, v.Digest, b.Image.Digest)
	return true
}

func (e *editing) setPath(root *yaml.Node, b *Binding, keys, want string) {
	if keys == "" {
		return
	}
	n := root
	for _, key := range strings.Split(keys, ".") {
		if n = step(n, key); n == nil {
			e.problem(0, "has no value at %s, which the policy %s is bound to", keys, b.Policy)
			return
		}
	}
	e.set(n, want, Change{Policy: b.Policy, Setter: fmt.Sprintf("%s:%s", b.Policy, keys)})
}

// step is the value of a key of a map, or of an index of a list.
func step(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.SequenceNode {
		return get(n, key)
	}
	if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Content) {
		return n.Content[i]
	}
	return nil
}

// objects are the objects of a document: itself, or what is in a list of them.
func objects(root *yaml.Node) []*yaml.Node {
	items := get(root, "items")
	if items == nil || items.Kind != yaml.SequenceNode || !strings.HasSuffix(at(root, "kind"), "List") {
		return []*yaml.Node{root}
	}
	var all []*yaml.Node
	for _, item := range items.Content {
		all = append(all, objects(item)...)
	}
	return all
}

func isObject(n *yaml.Node) bool { return at(n, "kind") != "" && at(n, "apiVersion") != "" }

func identity(n *yaml.Node) Object {
	id := Object{APIVersion: at(n, "apiVersion"), Kind: at(n, "kind")}
	if metadata := get(n, "metadata"); metadata != nil {
		id.Namespace, id.Name = at(metadata, "namespace"), at(metadata, "name")
	}
	return id
}

func isContainers(key string) bool {
	return key == "containers" || key == "initContainers" || key == "ephemeralContainers"
}

// get is the value of a key of a map, nil when it is not there.
func get(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// at is the text of a key of a map.
func at(n *yaml.Node, key string) string {
	if v := get(n, key); v != nil && resolve(v).Kind == yaml.ScalarNode {
		return resolve(v).Value
	}
	return ""
}

// resolve is what an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
