package lineage

import (
	"cmp"
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
)

// Node is an object and what it made.
type Node struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Namespace  string  `json:"namespace,omitempty"`
	Name       string  `json:"name"`
	Status     string  `json:"status,omitempty"` // of kstatus; empty if it was not read
	Message    string  `json:"message,omitempty"`
	Resources  []*Node `json:"resources,omitempty"`
}

// Tree returns an object with all that it made, by inventories. If compact is set, objects outside of the toolkit's API
// groups are left out.
func Tree(ctx context.Context, c client.Reader, top apply.Ref, compact bool) (*Node, error) {
	w := &treeWalker{cluster: c, compact: compact, seen: map[apply.Ref]bool{}}
	return w.node(ctx, top)
}

// treeWalker follows inventories.
type treeWalker struct {
	cluster client.Reader
	compact bool
	seen    map[apply.Ref]bool
}

// node returns an object with all below it. An object that is listed twice, such as a Kustomization that applies
// itself, is followed once.
func (w *treeWalker) node(ctx context.Context, ref apply.Ref) (*Node, error) {
	gv := schema.GroupVersion{Group: ref.Group, Version: ref.Version}
	n := &Node{APIVersion: gv.String(), Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
	if w.seen[ref] || !IsToolkitGroup(ref.Group) {
		return n, nil
	}
	w.seen[ref] = true
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gv.WithKind(ref.Kind))
	err := w.cluster.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, obj)
	if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return n, nil // listed in an inventory, but deleted since
	}
	if err != nil {
		return nil, cannotGet(ref.String(), err)
	}
	for _, made := range inventory(obj) {
		if w.compact && !IsToolkitGroup(made.Group) {
			continue
		}
		below, err := w.node(ctx, made)
		if err != nil {
			return nil, err
		}
		n.Resources = append(n.Resources, below)
	}
	return n, nil
}

// Made returns the objects that an object made, by its inventory. It returns none for kinds without one.
func Made(o client.Object) []apply.Ref {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil
	}
	return inventory(&unstructured.Unstructured{Object: fields})
}

// inventory returns status.inventory of any kind that has one. Entries that cannot be parsed are skipped.
func inventory(obj *unstructured.Unstructured) []apply.Ref {
	var refs []apply.Ref
	entries, _, _ := unstructured.NestedSlice(obj.Object, "status", "inventory", "entries")
	for _, e := range entries {
		fields, _ := e.(map[string]any)
		id, _ := fields["id"].(string)
		version, _ := fields["v"].(string)
		if ref, err := (apply.Entry{ID: id, Version: version}).Ref(); err == nil {
			refs = append(refs, ref)
		}
	}
	artifacts, _, _ := unstructured.NestedSlice(obj.Object, "status", "inventory") // of an ArtifactGenerator
	for _, e := range artifacts {
		fields, _ := e.(map[string]any)
		namespace, _ := fields["namespace"].(string)
		name, _ := fields["name"].(string)
		if kind, _ := fields["kind"].(string); kind == "Namespace" {
			refs = append(refs, apply.Ref{Version: "v1", Kind: kind, Name: name})
			continue
		}
		refs = append(refs, apply.Ref{
			Group: sourcev1.GroupVersion.Group, Version: sourcev1.GroupVersion.Version,
			Kind: sourcev1.ExternalArtifactKind, Namespace: namespace, Name: name,
		})
	}
	return refs
}

// words are the statuses of kstatus in the words of other output.
var words = map[string]string{"Current": "ready", "InProgress": "progressing", "Terminating": "being deleted",
	"NotFound": "missing"}

// line returns the object with its state.
func (n *Node) line() string {
	line := apply.Ref{Kind: n.Kind, Namespace: n.Namespace, Name: n.Name}.String()
	if n.Status == "" {
		return line
	}
	line += "  " + cmp.Or(words[n.Status], strings.ToLower(n.Status))
	if n.Status != "Current" && n.Message != "" {
		line += ": " + strings.Join(strings.Fields(n.Message), " ")
	}
	return line
}

// Lines draws the tree, one object a line.
func (n *Node) Lines() []string { return n.lines("", "") }

// lines draws a node: first is the prefix of its own line, rest that of the lines below.
func (n *Node) lines(first, rest string) []string {
	lines := []string{first + n.line()}
	for i, below := range n.Resources {
		branch, stem := "├── ", "│   "
		if i == len(n.Resources)-1 {
			branch, stem = "└── ", "    "
		}
		lines = append(lines, below.lines(rest+branch, rest+stem)...)
	}
	return lines
}
