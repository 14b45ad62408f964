package state

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Bounds of a tree.
const (
	MaxNodes       = 500 // whose health is read
	treeRequests   = 8   // at a time
	maxHealthBytes = 600
	maxExplained   = 20  // whose reason is read
	maxInventories = 200 // that are read
	MaxEntries     = 10_000
)

// Node is an object in the tree of what an object made, with its health.
type Node struct {
	Kind      string   `json:"kind"`
	Group     string   `json:"group,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Status    string   `json:"status"` // of kstatus, or Hidden
	Message   string   `json:"message,omitempty"`
	Images    []string `json:"images,omitempty"`     // of a Pod
	Names     []string `json:"containers,omitempty"` // of a Pod
	Below     []*Node  `json:"below,omitempty"`

	version    string   // of its API
	finalizers []string // that hold its deletion
	hasReason  bool     // the message is why it is not healthy
}

// Lineage returns the tree below a node in the form that the command line prints.
func (n *Node) Lineage() *lineage.Node {
	out := &lineage.Node{APIVersion: schema.GroupVersion{Group: n.Group, Version: n.version}.String(), Kind: n.Kind,
		Namespace: n.Namespace, Name: n.Name, Status: n.Status, Message: n.Message}
	for _, b := range n.Below {
		out.Resources = append(out.Resources, b.Lineage())
	}
	return out
}

// StatusHidden is the status of objects that the reader may not read. They are shown, as the inventory names them.
const StatusHidden = "Hidden"

// Tree is what an object made, down to pods.
type Tree struct {
	Top     *Node `json:"top"`
	Total   int   `json:"total"`
	Omitted int   `json:"omitted"` // objects that are not included
}

// ListerOf returns a [health.Lister] that reads with a client.
func ListerOf(c client.Reader) health.Lister {
	return func(ctx context.Context, kind, namespace string, o metav1.ListOptions) ([]unstructured.Unstructured,
		error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: kind + "List"})
		err := c.List(ctx, list, client.InNamespace(namespace), &client.ListOptions{Raw: &o, Limit: o.Limit})
		return list.Items, err
	}
}

// ReadTree returns what an object made, with the health that it has now. Objects outside of the toolkit's API groups
// are left out if compact is set. Objects above [MaxNodes] are left out too, or have no health if whole is set.
func ReadTree(ctx context.Context, c client.Client, o client.Object, compact, whole bool) (*Tree, error) {
	gvk, err := apiutil.GVKForObject(o, c.Scheme())
	if err != nil {
		return nil, err
	}
	inventories := &inventoryReader{Reader: c, elsewhere: map[string]bool{}}
	top, err := lineage.Tree(ctx, inventories, apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind,
		Namespace: o.GetNamespace(), Name: o.GetName()}, compact)
	if err != nil {
		return nil, err
	}
	t := &treeReader{cluster: c, whole: whole, elsewhere: inventories.elsewhere,
		group: guard.NewGroup("health of a tree")}
	t.group.SetLimit(treeRequests)
	answer := &Tree{Top: t.node(ctx, top, false)}
	if err := t.group.Wait(); err != nil {
		return nil, err
	}
	answer.Total = t.total + inventories.omitted
	answer.Omitted = max(0, answer.Total-MaxNodes)
	if whole {
		answer.Omitted = inventories.omitted
	}
	return answer, nil
}

// inventoryReader reads objects for their inventories. Objects that cannot be read have none: an inventory can name
// what the user may not read, and what no API server accepts. Neither have objects above the limits, which count for
// the whole tree, as a tenant can write 500 objects with 60,000 entries each.
type inventoryReader struct {
	client.Reader
	reads, entries int
	omitted        int             // entries above the limit
	elsewhere      map[string]bool // objects that deploy to other clusters, by [idOf]
}

func (r *inventoryReader) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	opts ...client.GetOption) error {
	r.reads++
	if r.reads > maxInventories || r.entries >= MaxEntries {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	err := r.Reader.Get(ctx, key, o, opts...)
	if err != nil && ctx.Err() == nil && r.reads > 1 {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	if u, ok := o.(*unstructured.Unstructured); ok && err == nil {
		r.shorten(u)
		if _, isRemote, _ := unstructured.NestedMap(u.Object, "spec", "kubeConfig"); isRemote {
			r.elsewhere[idOf(u.GetKind(), key.Namespace, key.Name)] = true
		}
	}
	return err
}

// shorten removes the entries above the limit from the inventory of an object.
func (r *inventoryReader) shorten(o *unstructured.Unstructured) {
	status, _ := o.Object["status"].(map[string]any)
	in, key := status, "inventory" // of an ArtifactGenerator
	if inventory, ok := status["inventory"].(map[string]any); ok {
		in, key = inventory, "entries"
	}
	entries, ok := in[key].([]any)
	if !ok {
		return
	}
	keep := min(len(entries), MaxEntries-r.entries)
	r.entries += keep
	r.omitted += len(entries) - keep
	in[key] = entries[:keep]
}

// treeReader adds health to a tree, a few requests at a time.
type treeReader struct {
	cluster   client.Reader
	whole     bool
	elsewhere map[string]bool
	group     *guard.Group
	total     int
	explained atomic.Int64 // nodes whose reason was read
}

func idOf(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

// node returns a node whose health is read in the background, unless it is in another cluster. It returns nil above the
// limit.
func (t *treeReader) node(ctx context.Context, from *lineage.Node, isRemote bool) *Node {
	t.total++
	number := t.total
	if t.total > MaxNodes && !t.whole {
		for _, below := range from.Resources {
			t.node(ctx, below, isRemote) // counts
		}
		return nil
	}
	gv, _ := schema.ParseGroupVersion(from.APIVersion)
	n := &Node{Kind: from.Kind, Group: gv.Group, version: gv.Version, Namespace: from.Namespace, Name: from.Name}
	for _, below := range from.Resources {
		if b := t.node(ctx, below, isRemote || t.elsewhere[idOf(n.Kind, n.Namespace, n.Name)]); b != nil {
			n.Below = append(n.Below, b)
		}
	}
	if isRemote {
		n.Status, n.Message = StatusHidden, "it is in another cluster, which is not read"
		return n
	}
	if number > MaxNodes {
		return n
	}
	t.group.Go(func() error { t.read(ctx, n, gv.WithKind(from.Kind)); return nil })
	return n
}

// read sets the health of a node. A failure to read is its status, so that one object does not hide the others.
func (t *treeReader) read(ctx context.Context, n *Node, gvk schema.GroupVersionKind) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	err := t.cluster.Get(ctx, client.ObjectKey{Namespace: n.Namespace, Name: n.Name}, o)
	switch {
	case apierrors.IsNotFound(err):
		n.Status = health.NotFound
		return
	case apierrors.IsForbidden(err):
		n.Status, n.Message = StatusHidden, "you may not read this object"
		return
	case err != nil:
		n.Status, n.Message = health.Unknown, excerpt.Bytes(err.Error(), maxHealthBytes)
		return
	}
	n.setHealth(ctx, ListerOf(t.cluster), o, !lineage.IsToolkitGroup(gvk.Group) && t.explained.Load() < maxExplained)
	if n.hasReason {
		t.explained.Add(1)
	}
	if gvk.Group == "apps" || gvk.Group == "batch" {
		pods, err := Pods(ctx, t.cluster, o)
		if apierrors.IsForbidden(err) {
			n.Below = append(n.Below, &Node{Kind: "Pod", version: "v1", Namespace: n.Namespace, Name: "pods",
				Status: StatusHidden, Message: "you may not list the pods of this namespace"})
		}
		for i := range pods {
			n.Below = append(n.Below, podNode(&pods[i]))
		}
	}
}

// setHealth sets the health of a node, and the reason if it is not healthy and that is wanted.
func (n *Node) setHealth(ctx context.Context, list health.Lister, o *unstructured.Unstructured, explain bool) {
	n.Status, n.Message = health.Of(o)
	switch {
	case n.Status == health.Terminating:
		n.finalizers = o.GetFinalizers()
		n.Message = "deletion requested at " + o.GetDeletionTimestamp().UTC().Format(time.RFC3339)
		if len(n.finalizers) > 0 {
			n.Message += ", held by finalizers: " + strings.Join(n.finalizers, ", ")
		}
	case isUnhealthy(n.Status) && explain:
		if reason := health.Reason(ctx, list, o); reason != "" {
			n.Message, n.hasReason = reason, true
		}
	}
	n.Message = excerpt.Bytes(n.Message, maxHealthBytes)
}

// isUnhealthy reports whether an object may have a reason why it is not healthy.
func isUnhealthy(status string) bool { return status == health.InProgress || status == health.Failed }

func podNode(p *corev1.Pod) *Node {
	n := &Node{Kind: "Pod", version: "v1", Namespace: p.Namespace, Name: p.Name}
	for _, c := range p.Spec.Containers {
		n.Names, n.Images = append(n.Names, c.Name), append(n.Images, c.Image)
	}
	p.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p); err == nil {
		n.Status, n.Message = health.Of(&unstructured.Unstructured{Object: raw})
	}
	return n
}
