package demo

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

var (
	sources = schema.GroupVersionResource{Group: "source.toolkit.fluxcd.io", Version: "v1", Resource: "gitrepositories"}
	syncs   = schema.GroupVersionResource{Group: "kustomize.toolkit.fluxcd.io", Version: "v1",
		Resource: "kustomizations"}
	releases = schema.GroupVersionResource{Group: "helm.toolkit.fluxcd.io", Version: "v2", Resource: "helmreleases"}
	gates    = schema.GroupVersionResource{Group: "gating.toolkit.fluxcd.io", Version: "v1alpha1", Resource: "gates"}
)

// card is what is known of an object.
type card struct {
	kind, name string
	source     string   // that it is made of
	gates      []string // that can hold it
	ready      string   // True, False, Unknown; of a gate, whether it is open
	reason     string
	message    string
	revision   string
	objects    []string // what it applied
	pending    []string // what it would do, were its gates open
}

// board holds a card an object, in the order of the pipeline: each Kustomization after what it depends on.
type board struct{ cards []*card }

// shownKinds are the kinds that have cards.
var shownKinds = []string{"GitRepository", "Gate", "HelmRelease", "Kustomization"}

func newBoard(declared []*unstructured.Unstructured) *board {
	b := &board{}
	for _, o := range declared {
		if slices.Contains(shownKinds, o.GetKind()) {
			b.put(o)
		}
	}
	return b
}

// put stores the state of an object and reports whether anything shown changed.
func (b *board) put(o *unstructured.Unstructured) bool {
	c := read(o)
	i := slices.IndexFunc(b.cards, func(x *card) bool { return x.kind == c.kind && x.name == c.name })
	if i < 0 {
		b.cards = append(b.cards, c)
		return true
	}
	before := b.cards[i]
	b.cards[i] = c
	return before.ready != c.ready || before.message != c.message ||
		len(before.objects) != len(c.objects) || len(before.pending) != len(c.pending)
}

func read(o *unstructured.Unstructured) *card {
	c := &card{kind: o.GetKind(), name: o.GetName(), ready: "Unknown", message: "waiting to be reconciled"}
	verdict := "Ready"
	if c.kind == "Gate" {
		verdict = "Opened"
	}
	if conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions"); err == nil {
		for _, x := range conditions {
			if m, ok := x.(map[string]any); ok && m["type"] == verdict {
				c.ready, c.reason, c.message = fmt.Sprint(m["status"]), fmt.Sprint(m["reason"]),
					fmt.Sprint(m["message"])
			}
		}
	}
	for _, field := range [][]string{{"status", "artifact", "revision"}, {"status", "lastAppliedRevision"},
		{"status", "lastAttemptedRevision"}} {
		if s, ok, err := unstructured.NestedString(o.Object, field...); err == nil && ok {
			c.revision = s
		}
	}
	if names, _, err := unstructured.NestedStringSlice(o.Object, "status", "gates"); err == nil {
		for _, name := range names {
			c.gates = append(c.gates, path.Base(name))
		}
	}
	if changes, _, err := unstructured.NestedStringSlice(o.Object, "status", "pending", "changes"); err == nil {
		c.pending = changes
	}
	for _, field := range [][]string{{"spec", "sourceRef", "name"}, {"spec", "chart", "spec", "sourceRef", "name"}} {
		if s, ok, err := unstructured.NestedString(o.Object, field...); err == nil && ok {
			c.source = s
		}
	}
	if entries, _, err := unstructured.NestedSlice(o.Object, "status", "inventory", "entries"); err == nil {
		for _, x := range entries {
			if m, ok := x.(map[string]any); ok {
				c.objects = append(c.objects, object(fmt.Sprint(m["id"])))
			}
		}
	}
	return c
}

// object reads <namespace>_<name>_<group>_<kind>.
func object(id string) string {
	parts := strings.Split(id, "_")
	if len(parts) < 4 {
		return id
	}
	name := strings.Join(parts[1:len(parts)-2], "_")
	if parts[0] != "" {
		name = parts[0] + "/" + name
	}
	return parts[len(parts)-1] + " " + name
}

// of returns the cards of a kind.
func (b *board) of(kind string) []*card {
	var cards []*card
	for _, c := range b.cards {
		if c.kind == kind {
			cards = append(cards, c)
		}
	}
	return cards
}

// madeOf returns the Kustomizations and HelmReleases of a source.
func (b *board) madeOf(source *card) []*card {
	var cards []*card
	for _, c := range b.cards {
		if c.source == source.name {
			cards = append(cards, c)
		}
	}
	return cards
}

func (b *board) ready() bool {
	for _, c := range b.cards {
		if c.ready != "True" {
			return false
		}
	}
	return len(b.cards) > 0
}

// isOpen reports whether a gate is open by now.
func (b *board) isOpen(gate *card) bool {
	return slices.ContainsFunc(b.cards, func(c *card) bool {
		return c.kind == gate.kind && c.name == gate.name && c.ready == "True"
	})
}

// waiting returns the cards that wait for a gate, and their closed gate, once all else is Ready;
// nil before that.
func (b *board) waiting() (held []*card, gate *card) {
	for _, c := range b.cards {
		switch {
		case c.kind == "Gate" || c.ready == "True":
		case len(c.pending) > 0:
			held = append(held, c)
		default:
			return nil, nil
		}
	}
	for _, c := range b.cards {
		isFree := func(h *card) bool { return !slices.Contains(h.gates, c.name) }
		if c.kind == "Gate" && c.ready == "False" && len(held) > 0 && !slices.ContainsFunc(held, isFree) {
			return held, c
		}
	}
	return nil, nil
}

func (b *board) problems() string {
	var s strings.Builder
	for _, c := range b.cards {
		if c.ready != "True" {
			fmt.Fprintf(&s, "  %s %s: %s: %s\n", c.kind, c.name, c.reason, c.message)
		}
	}
	return s.String()
}

// watch calls changed for every change until it returns true, the context ends or the controllers do.
func (b *board) watch(ctx context.Context, client dynamic.Interface, changed func() bool, died <-chan error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan *unstructured.Unstructured)
	for _, resource := range []schema.GroupVersionResource{sources, gates, releases, syncs} {
		w, err := client.Resource(resource).Namespace(namespace).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		defer w.Stop()
		go func() {
			for e := range w.ResultChan() {
				if o, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != watch.Deleted {
					select {
					case events <- o:
					case <-ctx.Done():
						return
					}
				}
			}
		}()
	}
	for {
		select {
		case o := <-events:
			if b.put(o) && changed() {
				return nil
			}
		case err := <-died:
			return fmt.Errorf("the controllers ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
