package edit

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
)

// Binding sets the image of a policy without a marker comment. Exactly one of Workload and Values is set.
type Binding struct {
	Policy   string // "namespace:name"
	Image    Ref
	Workload *Workload
	Values   *Values
}

// Workload selects containers of workloads.
type Workload struct {
	Kind, Name string // empty: any
	Namespace  string // as in the files; empty: any
	Container  string // empty: all containers with the image
	// Implied means that the binding was not written by a user. It matches objects without a namespace, and
	// does not match containers with another image.
	Implied bool
}

// Values selects an image, or its parts, in a file of Helm values. Paths are keys and list indexes, separated by dots.
type Values struct {
	File                              string // relative to the root of the repository
	Path                              string // of a full reference
	Registry, Repository, Tag, Digest string // of parts; if Registry is set, Repository excludes the registry
}

// Bound sets the images of bindings in workloads, in the image overrides of kustomizations, and in Helm values.
func Bound(file string, content []byte, bindings []Binding) Result {
	e := &editing{file: file, result: Result{Content: content}}
	var relevant []int
	for i, b := range bindings {
		if b.mayBeIn(file, content) {
			relevant = append(relevant, i)
		}
	}
	if len(relevant) == 0 || !e.parse(content) {
		return e.result
	}
	for _, i := range relevant {
		b := &bindings[i]
		if e.apply(b) {
			e.result.Found = append(e.result.Found, i)
		}
	}
	return e.finish()
}

// mayBeIn reports whether the file may contain the bound place, without parsing it.
func (b *Binding) mayBeIn(file string, content []byte) bool {
	if b.Values != nil {
		return path.Clean(b.Values.File) == file
	}
	if b.Workload.Name == "" || IsKustomization(file) && bytes.Contains(content, []byte("images")) {
		_, name := splitRegistry(b.Image.Name)
		return bytes.Contains(content, []byte(path.Base(name)))
	}
	return bytes.Contains(content, []byte(b.Workload.Name)) && bytes.Contains(content, []byte(b.Workload.Kind))
}

// IsKustomization reports whether the file has one of the names that kustomize loads.
func IsKustomization(file string) bool {
	return slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(file))
}

// apply sets the image of one binding, and reports whether the bound place is in the file.
func (e *editing) apply(b *Binding) (found bool) {
	if !b.Image.Valid() {
		e.problem(0, "the image of policy %s is not a valid reference", b.Policy)
		return true
	}
	for _, doc := range e.text.docs {
		root := doc.Content[0]
		switch {
		case b.Values != nil:
			found = e.setValues(b, root) || found
		case IsKustomization(e.file):
			e.setOverride(b, root)
		default:
			for _, object := range objects(root) {
				if b.Workload.matches(identity(object)) {
					found = e.setContainers(b, object) || found
				}
			}
		}
	}
	if found {
		e.addPolicy(b.Policy)
	}
	return found
}

// matches reports whether an object is the workload.
func (w *Workload) matches(o Object) bool {
	return (w.Kind == "" || w.Kind == o.Kind) && (w.Name == "" || w.Name == o.Name) &&
		(w.Namespace == "" || w.Namespace == o.Namespace || w.Implied && o.Namespace == "")
}

// setContainers sets the image of the bound containers in all pod templates below a node.
func (e *editing) setContainers(b *Binding, n *yaml.Node) (found bool) {
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		if value.Kind == yaml.SequenceNode && isContainers(key) {
			for _, c := range value.Content {
				found = e.setContainer(b, c) || found
			}
			continue
		}
		found = e.setContainers(b, value) || found
	}
	return found
}

func (e *editing) setContainer(b *Binding, c *yaml.Node) bool {
	image := get(c, "image")
	if image == nil || b.Workload.Container != "" && at(c, "name") != b.Workload.Container {
		return false
	}
	current := ParseRef(resolve(image).Value)
	same := canonical(current.Name) == canonical(b.Image.Name)
	if !same && (b.Workload.Container == "" || b.Workload.Implied) {
		return false
	}
	if !same && current.Tag == "" && current.Digest == "" {
		return true // a placeholder that a kustomization overrides
	}
	want := b.Image
	if same {
		want.Name = current.Name
	}
	e.set(image, want.String(), Change{Policy: b.Policy, Setter: b.Policy})
	return true
}

// setOverride sets the tag and the digest in the image overrides of a kustomization.
func (e *editing) setOverride(b *Binding, root *yaml.Node) {
	if namespace := at(root, "namespace"); b.Workload.Namespace != "" && namespace != "" &&
		namespace != b.Workload.Namespace {
		return // the kustomization is for another namespace
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
		e.addPolicy(b.Policy)
		if digest != nil && b.Image.Digest == "" {
			e.problem(digest.Line, "pins a digest, but policy %s reflects none; set its "+
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

// setValues sets the image at the paths in a file of Helm values.
func (e *editing) setValues(b *Binding, root *yaml.Node) bool {
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
			e.problem(0, "no value at %s, to which policy %s is bound", keys, b.Policy)
			return
		}
	}
	e.set(n, want, Change{Policy: b.Policy, Setter: fmt.Sprintf("%s:%s", b.Policy, keys)})
}

// step returns the value of a key of a map, or of an index of a list; nil if there is none.
func step(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.SequenceNode {
		return get(n, key)
	}
	if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(n.Content) {
		return n.Content[i]
	}
	return nil
}

// objects returns the objects of a document: the document itself, or the items of a List.
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

// get returns the value of a key of a map; nil if there is none.
func get(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// at returns the scalar value of a key of a map; empty if there is none.
func at(n *yaml.Node, key string) string {
	if v := get(n, key); v != nil && resolve(v).Kind == yaml.ScalarNode {
		return resolve(v).Value
	}
	return ""
}

// resolve returns the node that an alias refers to, or the node itself.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
