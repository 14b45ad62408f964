package state

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/workload"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// Bounds of an answer.
const (
	maxNamespaces = 100 // in which workloads are listed for a user who may not list them in all
	maxTargets    = 50  // objects whose way is shown because they applied a workload
	maxLive       = 3   // chains whose objects are read
	maxNamed      = 3   // objects that a step names
)

// shortNames are the short names of built-in resources, as the API server publishes them.
var shortNames = map[string]string{"cj": "cronjobs", "cm": "configmaps", "crd": "customresourcedefinitions",
	"deploy": "deployments", "ds": "daemonsets", "ep": "endpoints", "hpa": "horizontalpodautoscalers",
	"ing": "ingresses", "netpol": "networkpolicies", "no": "nodes", "ns": "namespaces", "pdb": "poddisruptionbudgets",
	"po": "pods", "pv": "persistentvolumes", "pvc": "persistentvolumeclaims", "quota": "resourcequotas",
	"rs": "replicasets", "sa": "serviceaccounts", "sc": "storageclasses", "sts": "statefulsets", "svc": "services"}

// Why answers where a change is, by the items that the user of the client may see, and by what the cluster says now of
// the objects that were applied. The query is a commit, a revision, a pull request, an image, an object as
// Kind/namespace/name, or words that name objects.
func Why(ctx context.Context, c client.Client, visible []*view.Item, query string) (*view.Answer, error) {
	w := whyer{cluster: c, visible: visible, query: query}
	if err := w.findAppliers(ctx); err != nil {
		return nil, err
	}
	a := view.Why(visible, query, w.targets...)
	a.Object = w.object
	for i := range a.Chains[:min(len(a.Chains), maxLive)] {
		w.addLive(ctx, &a.Chains[i])
	}
	a.Sort()
	if len(a.Chains) > 0 || a.Object != nil {
		a.Note = ""
	}
	a.Note = strings.TrimSpace(strings.Join(append([]string{a.Note}, w.notes...), " "))
	return a, nil
}

type whyer struct {
	cluster client.Client
	visible []*view.Item
	query   string

	targets []string   // IDs of what applied the objects that the query is about
	object  *view.Step // the state of the object that the query names
	notes   []string   // what is not part of the answer, and why
}

// NamesImage reports whether a query names an image, so that an answer reads the workloads of all namespaces.
func NamesImage(query string) bool {
	image := edit.ParseRef(query)
	return view.IsWords(query) && image.Valid() && (image.Tag != "" || image.Digest != "")
}

// findAppliers finds what applied the objects that the query is about: one that it names as Kind/name or
// Kind/namespace/name, or the workloads that run the image that it names.
func (w *whyer) findAppliers(ctx context.Context) error {
	parts := strings.Split(w.query, "/")
	word := parts[0]
	switch {
	case kind.ByWord(word) == nil && !strings.ContainsAny(w.query, ":@") && !strings.Contains(word, ".") &&
		(len(parts) == 2 || len(parts) == 3):
		return w.findByWord(ctx, word, parts[1:len(parts)-1], parts[len(parts)-1])
	case NamesImage(w.query):
		found, notes, err := Images(ctx, w.cluster, w.visible, "")
		if err != nil {
			return err
		}
		w.notes = notes
		hidden := 0
		for _, f := range found {
			if !strings.Contains(strings.ToLower(f.Ref.String()), strings.ToLower(w.query)) {
				continue
			}
			if !w.addManager(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: f.Labels}}) {
				hidden++
			}
		}
		if hidden > 0 {
			w.notes = append(w.notes, "Some containers that match are of workloads that no Kustomization or "+
				"HelmRelease applied.")
		}
	}
	return nil
}

// addManager adds what applied an object to the targets. It returns false if nothing did.
func (w *whyer) addManager(o client.Object) bool {
	manager := lineage.ManagerOf(o)
	if manager == nil {
		return false
	}
	id := view.ID(manager.Kind, manager.Namespace, manager.Name)
	if !slices.Contains(w.targets, id) && len(w.targets) < maxTargets {
		w.targets = append(w.targets, id)
	}
	return true
}

// findByWord finds an object that is not one of ours by a kind, a resource or a short name. Without a namespace, all
// namespaces are searched.
func (w *whyer) findByWord(ctx context.Context, word string, namespace []string, name string) error {
	resource := strings.ToLower(word)
	if long, ok := shortNames[resource]; ok {
		resource = long
	}
	mapper := w.cluster.RESTMapper()
	gvk, err := mapper.KindFor(schema.GroupVersionResource{Resource: resource})
	if apimeta.IsNoMatchError(err) {
		return nil // the query may be a path, or an image without a tag
	}
	if err != nil {
		return err
	}
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	switch {
	case mapping.Scope.Name() == apimeta.RESTScopeNameRoot:
		return w.findObject(ctx, gvk, "", name)
	case len(namespace) == 1:
		return w.findObject(ctx, gvk, namespace[0], name)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	err = w.cluster.List(ctx, list, client.MatchingFields{"metadata.name": name}, client.Limit(maxNamed+1))
	switch {
	case apierrors.IsForbidden(err):
		w.notes = append(w.notes, fmt.Sprintf("You may not list %s in all namespaces. Ask for %s/NAMESPACE/%s.",
			mapping.Resource.Resource, gvk.Kind, name))
		return nil
	case err != nil:
		return err
	case len(list.Items) == 0:
		w.notes = append(w.notes, fmt.Sprintf("%s '%s' does not exist in any namespace.", gvk.Kind, name))
		return nil
	case len(list.Items) == 1:
		return w.findObject(ctx, gvk, list.Items[0].Namespace, name)
	}
	var ids []string
	for _, o := range list.Items[:min(len(list.Items), maxNamed)] {
		ids = append(ids, view.ID(gvk.Kind, o.Namespace, o.Name))
	}
	w.notes = append(w.notes, fmt.Sprintf("Several namespaces have a %s '%s'. Ask for one of them, such as %s.",
		gvk.Kind, name, strings.Join(ids, ", ")))
	return nil
}

// findObject reads an object that is not one of ours: its state, and what applied it.
func (w *whyer) findObject(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) error {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	err := w.cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o)
	where := ""
	if namespace != "" {
		where = fmt.Sprintf(" in namespace '%s'", namespace)
	}
	switch {
	case apierrors.IsForbidden(err):
		w.notes = append(w.notes, fmt.Sprintf("You may not read %s '%s'%s. Ask an administrator for the right.",
			gvk.Kind, name, where))
		return nil
	case apierrors.IsNotFound(err):
		w.notes = append(w.notes, fmt.Sprintf("%s '%s' does not exist%s.", gvk.Kind, name, where))
		return nil
	case err != nil:
		return err
	}
	n := &Node{Kind: gvk.Kind, Group: gvk.Group, Namespace: namespace, Name: name}
	n.setHealth(ctx, ListerOf(w.cluster), o, true)
	w.object = n.step(o.GetDeletionTimestamp())
	above, err := lineage.Managed(ctx, w.cluster, o)
	if err != nil {
		w.notes = append(w.notes, fmt.Sprintf("What applied it cannot be found: %v.", err))
		return nil
	}
	if !w.addManager(above) {
		w.notes = append(w.notes, "No Kustomization or HelmRelease applied it.")
	}
	return nil
}

// step returns the state of a node as a step.
func (n *Node) step(deleting *metav1.Time) *view.Step {
	s := &view.Step{Name: strings.ToLower(n.Kind), Object: view.ID(n.Kind, n.Namespace, n.Name), Text: n.Message}
	switch n.Status {
	case health.Terminating:
		s.Name, s.State, s.From = "deletion", view.Blocked, deleting.Time
		s.Do = view.DeletionAdvice(n.Kind, n.Namespace, n.Name, n.finalizers)
	case health.Failed, health.InProgress:
		s.State, s.Do = view.Current, view.Advise(n.Namespace, n.Message, "")
		if n.Status == health.Failed || n.hasReason {
			s.State = view.Blocked
		}
	default:
		s.State = view.Done
	}
	return s
}

// addLive replaces what a chain says of the health of applied objects, which the controllers last saw or do not wait
// for, by what the cluster says now.
func (w *whyer) addLive(ctx context.Context, c *view.Chain) {
	n := slices.IndexFunc(c.Steps, func(s view.Step) bool { return s.Name == view.HealthStep && s.State != view.Ahead })
	i := c.Target
	k := kind.ByName(i.Kind)
	if n < 0 || k == nil {
		return
	}
	o := k.New()
	if err := w.cluster.Get(ctx, client.ObjectKey{Namespace: i.Namespace, Name: i.Name}, o); err != nil {
		return // deleted since, or not readable: the chain says what the controllers last saw
	}
	tree, err := ReadTree(ctx, w.cluster, o, false, false)
	if err != nil {
		return
	}
	bad := tree.Top.unhealthy(nil)
	if len(bad) == 0 {
		return
	}
	slices.SortStableFunc(bad, func(x, y *Node) int { return rank(x) - rank(y) })
	step := &c.Steps[n]
	var texts []string
	for _, b := range bad[:min(len(bad), maxNamed)] {
		s := b.step(&metav1.Time{Time: time.Time{}})
		texts = append(texts, fmt.Sprintf("%s is %s: %s", s.Object, b.Status, b.Message))
		if step.Do == "" || step.State == view.Done {
			step.Do = s.Do
		}
		if s.State == view.Blocked || step.State == view.Done {
			step.State, step.At = s.State, time.Time{}
		}
		if b.hasReason && s.Do != "" {
			step.Do = s.Do
		}
	}
	if more := len(bad) - maxNamed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	step.Text = strings.Join(texts, "; ")
	c.SetBlocking()
}

// unhealthy returns the objects of a tree that are not healthy. Pods are reasons of their
// workloads, and objects of the toolkit have chains of their own.
func (n *Node) unhealthy(found []*Node) []*Node {
	for _, b := range n.Below {
		if b.Kind == "Pod" && n.Kind != "Kustomization" && n.Kind != "HelmRelease" {
			continue
		}
		if isUnhealthy(b.Status) && !lineage.IsToolkitGroup(b.Group) || b.Status == health.Terminating {
			found = append(found, b)
		}
		found = b.unhealthy(found)
	}
	return found
}

func rank(n *Node) int {
	if n.hasReason || n.Status == health.Terminating {
		return 0
	}
	return 1
}

// Images lists the images in a namespace, or in all: at once if the user may, else in those where the user sees
// objects of Sluice. It returns notes about what cannot be listed.
func Images(ctx context.Context, c client.Reader, visible []*view.Item, only string) (found []workload.Image,
	notes []string, err error) {
	notes, err = inNamespaces(visible, only, func(namespace string) error {
		part, err := workload.Images(ctx, c, namespace, workload.Ref{})
		found = append(found, part...)
		return err
	})
	return found, notes, err
}

// inNamespaces calls list for one namespace, or for all: at once if the user may, else for those where the user sees
// objects of Sluice. It returns notes about what cannot be listed.
func inNamespaces(visible []*view.Item, only string, list func(namespace string) error) (notes []string, err error) {
	if err := list(only); err == nil || !apierrors.IsForbidden(err) {
		return nil, err
	}
	if only != "" {
		return []string{explainForbidden(only)}, nil
	}
	var namespaces []string
	for _, i := range visible {
		namespaces = append(namespaces, i.Namespace)
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	if n := len(namespaces) - maxNamespaces; n > 0 {
		notes = append(notes, fmt.Sprintf("%d of your namespaces are not included: choose one", n))
		namespaces = namespaces[:maxNamespaces]
	}
	for _, namespace := range namespaces {
		err := list(namespace)
		switch {
		case apierrors.IsForbidden(err):
			notes = append(notes, explainForbidden(namespace))
		case err != nil:
			return nil, err
		}
	}
	return notes, nil
}

func explainForbidden(namespace string) string {
	return fmt.Sprintf("Namespace '%s' is not included: you may not list all of its workloads and image policies",
		namespace)
}
