package ui

import (
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/health"
	"github.com/sluice-gitops/sluice/internal/lineage"
)

// Bounds of a tree.
const (
	maxTreeNodes   = 500 // whose health is read
	treeRequests   = 8   // at a time
	maxPods        = 50  // of a workload
	maxHealthBytes = 300
	maxInventories = 200 // that are read
	maxEntries     = 10_000
)

// node is an object in the tree of what an object made.
type node struct {
	Kind      string   `json:"kind"`
	Group     string   `json:"group,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Status    string   `json:"status"` // of kstatus, or Hidden
	Message   string   `json:"message,omitempty"`
	Images    []string `json:"images,omitempty"`     // of a Pod
	Names     []string `json:"containers,omitempty"` // of a Pod
	Below     []*node  `json:"below,omitempty"`
}

// statusHidden is the status of objects that the user may not read. They are shown, as the inventory names them.
const statusHidden = "Hidden"

// tree is what an object made, down to pods.
type tree struct {
	Top     *node `json:"top"`
	Total   int   `json:"total"`
	Omitted int   `json:"omitted"` // objects that are not included
}

// tree returns what an object made, with the health that it has now.
func (s *Server) tree(ctx context.Context, u *User, r *http.Request) (any, error) {
	done, err := s.large.take(ctx, u.Name)
	if err != nil {
		return nil, err
	}
	defer done()
	_, o, err := get(ctx, u, r)
	if err != nil {
		return nil, err
	}
	gvk, err := apiutil.GVKForObject(o, u.Client.Scheme())
	if err != nil {
		return nil, err
	}
	inventories := &inventoryReader{Reader: u.Client}
	top, err := lineage.Tree(ctx, inventories, apply.Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind,
		Namespace: o.GetNamespace(), Name: o.GetName()}, false)
	if err != nil {
		return nil, err
	}
	t := &treeReader{user: u, group: guard.NewGroup("health of a tree")}
	t.group.SetLimit(treeRequests)
	answer := tree{Top: t.node(ctx, top)}
	if err := t.group.Wait(); err != nil {
		return nil, err
	}
	answer.Total = t.total + inventories.omitted
	answer.Omitted = max(0, answer.Total-maxTreeNodes)
	return answer, nil
}

// inventoryReader reads objects for their inventories. Objects that cannot be read have none: an inventory can name
// what the user may not read, and what no API server accepts. Neither have objects above the limits, which count for
// the whole tree, as a tenant can write 500 objects with 60,000 entries each.
type inventoryReader struct {
	client.Reader
	reads, entries int
	omitted        int // entries above the limit
}

func (r *inventoryReader) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	opts ...client.GetOption) error {
	r.reads++
	if r.reads > maxInventories || r.entries >= maxEntries {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	err := r.Reader.Get(ctx, key, o, opts...)
	if err != nil && ctx.Err() == nil && r.reads > 1 {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	if u, ok := o.(*unstructured.Unstructured); ok && err == nil {
		r.shorten(u)
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
	keep := min(len(entries), maxEntries-r.entries)
	r.entries += keep
	r.omitted += len(entries) - keep
	in[key] = entries[:keep]
}

// treeReader adds health to a tree, a few requests at a time.
type treeReader struct {
	user  *User
	group *guard.Group
	total int
}

// node returns a node whose health is read in the background. It returns nil above the limit.
func (t *treeReader) node(ctx context.Context, from *lineage.Node) *node {
	t.total++
	if t.total > maxTreeNodes {
		for _, below := range from.Resources {
			t.node(ctx, below) // counts
		}
		return nil
	}
	gv, _ := schema.ParseGroupVersion(from.APIVersion)
	n := &node{Kind: from.Kind, Group: gv.Group, Namespace: from.Namespace, Name: from.Name}
	for _, below := range from.Resources {
		if b := t.node(ctx, below); b != nil {
			n.Below = append(n.Below, b)
		}
	}
	t.group.Go(func() error { t.read(ctx, n, gv.WithKind(from.Kind)); return nil })
	return n
}

// read sets the health of a node. A failure to read is its status, so that one object does not hide the others.
func (t *treeReader) read(ctx context.Context, n *node, gvk schema.GroupVersionKind) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	err := t.user.Client.Get(ctx, client.ObjectKey{Namespace: n.Namespace, Name: n.Name}, o)
	switch {
	case apierrors.IsNotFound(err):
		n.Status = health.NotFound
		return
	case apierrors.IsForbidden(err):
		n.Status, n.Message = statusHidden, "you may not read this object"
		return
	case err != nil:
		n.Status, n.Message = health.Unknown, excerpt.Bytes(err.Error(), maxHealthBytes)
		return
	}
	n.Status, n.Message = health.Of(o)
	n.Message = excerpt.Bytes(n.Message, maxHealthBytes)
	if gvk.Group == "apps" || gvk.Group == "batch" && gvk.Kind == "Job" {
		n.Below = append(n.Below, t.pods(ctx, o)...)
	}
}

// pods returns the pods that the selector of a workload selects. Pods that the user may not list are left out.
func (t *treeReader) pods(ctx context.Context, workload *unstructured.Unstructured) []*node {
	raw, found, err := unstructured.NestedMap(workload.Object, "spec", "selector")
	if !found || err != nil {
		return nil
	}
	selector := &metav1.LabelSelector{}
	if err := fromMap(raw, selector); err != nil {
		return nil
	}
	labels, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil || labels.Empty() {
		return nil
	}
	var pods corev1.PodList
	err = t.user.Client.List(ctx, &pods, client.InNamespace(workload.GetNamespace()),
		client.MatchingLabelsSelector{Selector: labels}, client.Limit(maxPods))
	if err != nil {
		return nil
	}
	var nodes []*node
	for i := range pods.Items {
		nodes = append(nodes, podNode(&pods.Items[i]))
	}
	return nodes
}

func podNode(p *corev1.Pod) *node {
	n := &node{Kind: "Pod", Namespace: p.Namespace, Name: p.Name}
	for _, c := range p.Spec.Containers {
		n.Names, n.Images = append(n.Names, c.Name), append(n.Images, c.Image)
	}
	p.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	if raw, err := toMap(p); err == nil {
		n.Status, n.Message = health.Of(&unstructured.Unstructured{Object: raw})
	}
	return n
}
