package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/manager"
)

// node is an object and what it made.
type node struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Namespace  string  `json:"namespace,omitempty"`
	Name       string  `json:"name"`
	Resources  []*node `json:"resources,omitempty"`
}

func (a *app) tree() *cobra.Command {
	c := group("tree", "Show what an object made, and what that made", `  sluice tree kustomization app
  sluice tree artifact generator app`)
	a.perKind(c, func(k *kind) *cobra.Command {
		if !k.makes {
			return nil
		}
		var g grower
		var output string
		sub := &cobra.Command{
			Use:     k.words[0] + " NAME",
			Aliases: k.words[1:],
			Short:   "Show what " + k.one() + " made, by its inventory",
			Example: fmt.Sprintf("  sluice tree %s NAME\n  sluice tree %s NAME -o json", k.path(), k.path()),
			Args:    exactlyOne,
			RunE: func(cmd *cobra.Command, args []string) error {
				if output != "" {
					if err := oneOf("output", output, "json", "yaml"); err != nil {
						return err
					}
				}
				ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
				defer cancel()
				top, err := g.grow(ctx, a, k, types.NamespacedName{Namespace: a.namespace(), Name: args[0]})
				if err != nil {
					return err
				}
				return a.printTree(top, output)
			},
		}
		if k.title() == "Kustomization" {
			sub.Flags().BoolVar(&g.compact, "compact", false,
				"show only objects that make others, or are made from a source")
		}
		sub.Flags().StringVarP(&output, "output", "o", "", "json or yaml")
		return sub
	})
	return c
}

// grower follows inventories.
type grower struct {
	compact bool
	cluster client.Client
	seen    map[apply.Ref]bool
}

func (g *grower) grow(ctx context.Context, a *app, k *kind, key types.NamespacedName) (*node, error) {
	var err error
	if g.cluster, err = a.client(); err != nil {
		return nil, err
	}
	obj, err := fetch(ctx, g.cluster, k, key)
	if err != nil {
		return nil, err
	}
	gvk, err := apiutil.GVKForObject(obj, manager.Scheme())
	if err != nil {
		return nil, err
	}
	g.seen = map[apply.Ref]bool{}
	return g.node(ctx, apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: key.Namespace,
		Name: key.Name})
}

// ours tells whether an object is of a group of the toolkit.
func ours(group string) bool { return strings.HasSuffix(group, ".fluxcd.io") }

// node returns an object with all below it. What stands twice, as a Kustomization that applies itself, is
// followed once.
func (g *grower) node(ctx context.Context, ref apply.Ref) (*node, error) {
	gv := schema.GroupVersion{Group: ref.Group, Version: ref.Version}
	n := &node{APIVersion: gv.String(), Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
	if g.seen[ref] || !ours(ref.Group) {
		return n, nil
	}
	g.seen[ref] = true
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gv.WithKind(ref.Kind))
	err := g.cluster.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, obj)
	if apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
		return n, nil // the inventory names it all the same
	}
	if err != nil {
		return nil, explain("cannot get "+ref.String(), err)
	}
	for _, made := range inventory(obj) {
		if g.compact && !ours(made.Group) {
			continue
		}
		below, err := g.node(ctx, made)
		if err != nil {
			return nil, err
		}
		n.Resources = append(n.Resources, below)
	}
	return n, nil
}

// inventory reads status.inventory of any kind that has one; entries that cannot be read are left out.
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
		refs = append(refs, apply.Ref{
			Group: sourcev1.GroupVersion.Group, Version: sourcev1.GroupVersion.Version,
			Kind: sourcev1.ExternalArtifactKind, Namespace: namespace, Name: name,
		})
	}
	return refs
}

func (a *app) printTree(top *node, output string) error {
	switch output {
	case "json":
		e := json.NewEncoder(a.out)
		e.SetIndent("", "  ")
		return e.Encode(top)
	case "yaml":
		b, err := yaml.Marshal(top)
		if err != nil {
			return err
		}
		_, err = a.out.Write(b)
		return err
	}
	_, err := fmt.Fprintln(a.out, strings.Join(top.lines("", ""), "\n"))
	return err
}

// lines draws a node: first stands before its own line, rest before those below it.
func (n *node) lines(first, rest string) []string {
	lines := []string{first + apply.Ref{Kind: n.Kind, Namespace: n.Namespace, Name: n.Name}.String()}
	for i, below := range n.Resources {
		branch, stem := "├── ", "│   "
		if i == len(n.Resources)-1 {
			branch, stem = "└── ", "    "
		}
		lines = append(lines, below.lines(rest+branch, rest+stem)...)
	}
	return lines
}
