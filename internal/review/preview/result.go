package preview

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// Result is what a change would do.
type Result struct {
	From    string     `json:"from"`
	To      string     `json:"to"`
	Offline bool       `json:"offline,omitempty"`
	Files   []string   `json:"files"` // that the change changes
	Owners  []*Owner   `json:"owners"`
	Level   risk.Level `json:"risk"`
	Notes   []string   `json:"notes,omitempty"` // what the preview does not cover

	sources []*source // that hold the repository
}

// Owner is what one Kustomization or HelmRelease would do.
type Owner struct {
	risk.Owner
	Objects  []Object       `json:"objects,omitempty"`
	Findings []risk.Finding `json:"findings,omitempty"` // about the change as a whole
	Level    risk.Level     `json:"risk"`
	Note     string         `json:"note,omitempty"`  // why objects are missing
	Error    string         `json:"error,omitempty"` // why the change could not be computed
	Before   bool           `json:"errorBefore,omitempty"`
	Cluster  string         `json:"cluster,omitempty"` // that it applies to, as NAMESPACE/NAME of its kubeconfig

	inventory int
	secrets   []string // of the cluster, which messages of others must not contain
	veil      *redact.Veil
	// restore puts placeholders in place of secrets.
	restore func(*unstructured.Unstructured) *unstructured.Unstructured
	// declared are the objects that the owner declares after the change.
	declared  map[apply.Ref]bool
	source    string
	dependsOn []risk.Owner

	object reconcile.Gated // as the change declares it; nil if it asks no gate
	commit risk.Change     // what gates know of the commit
	change *risk.Change    // that gates are asked about; nil if it is not known
}

// Object is what would happen to an object.
type Object struct {
	risk.Object
	Diff     string         `json:"diff,omitempty"`
	Level    risk.Level     `json:"risk"`
	Findings []risk.Finding `json:"findings"`
}

// Counts are numbers of objects by action.
type Counts map[risk.Action]int

// Count counts the objects of all owners.
func (r *Result) Count() Counts {
	out := Counts{}
	for _, o := range r.Owners {
		for _, object := range o.Objects {
			out[object.Action]++
		}
	}
	return out
}

// Changes returns the number of objects that would change.
func (r *Result) Changes() (n int) {
	for _, o := range r.Owners {
		n += len(o.Objects)
	}
	return n
}

// Failed returns the number of owners whose change could not be computed.
func (r *Result) Failed() (n int) {
	for _, o := range r.Owners {
		if o.Error != "" {
			n++
		}
	}
	return n
}

// add adds planned changes to an owner.
func (o *Owner) add(planned []apply.Change) {
	o.declared = map[apply.Ref]bool{}
	for _, c := range planned {
		if c.Action != apply.Deleted {
			o.declared[keyOf(c.Ref)] = true
		}
		if objects := risk.FromPlan([]apply.Change{c}, o.veil); len(objects) == 1 {
			o.Objects = append(o.Objects, Object{Object: objects[0], Diff: c.Diff})
		}
	}
}

func keyOf(r apply.Ref) apply.Ref {
	r.Version = ""
	return r
}

func (o *Object) ref() apply.Ref {
	return apply.Ref{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

// finish removes deletions of objects that another owner adopts, sorts the owners by their dependencies, and classifies
// all changes.
func (r *Result) finish(ctx context.Context, rules *risk.Rules, change risk.Change) {
	for _, o := range r.Owners {
		o.Objects = slices.DeleteFunc(o.Objects, func(object Object) bool {
			return object.Action == risk.Deleted && r.adopts(o, object.ref())
		})
	}
	r.Owners = slices.DeleteFunc(r.Owners, func(o *Owner) bool {
		return len(o.Objects) == 0 && o.Error == "" && o.Note == ""
	})
	r.Owners = inOrder(r.Owners)
	for _, o := range r.Owners {
		change.Owner, change.Inventory, change.Secrets, change.Objects = o.Owner, o.inventory, o.secrets, nil
		for _, object := range o.Objects {
			change.Objects = append(change.Objects, object.Object)
		}
		a := rules.Classify(ctx, &change)
		o.Level, o.Findings = a.Level, a.Of(risk.WholeChange)
		for n := range o.Objects {
			o.Objects[n].Findings, o.Objects[n].Level = a.Of(n), a.LevelOf(n)
		}
		r.Level = max(r.Level, o.Level)
		o.change = o.asked()
	}
}

// adopts reports whether another Kustomization of the namespace and source declares an object, so that the controller
// leaves the object to it instead of deleting it.
func (r *Result) adopts(from *Owner, ref apply.Ref) bool {
	return slices.ContainsFunc(r.Owners, func(o *Owner) bool {
		return o != from && o.Kind == from.Kind && o.Namespace == from.Namespace && o.source == from.source &&
			o.declared[ref]
	})
}

// inOrder sorts owners by name, and each one after those that it depends on.
func inOrder(owners []*Owner) []*Owner {
	slices.SortFunc(owners, func(a, b *Owner) int {
		return cmp.Or(cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	byName := map[risk.Owner]*Owner{}
	for _, o := range owners {
		byName[o.Owner] = o
	}
	out := []*Owner{}
	seen := map[*Owner]bool{nil: true}
	var visit func(o *Owner)
	visit = func(o *Owner) {
		if seen[o] {
			return // or a cycle, which the controllers report
		}
		seen[o] = true
		for _, d := range o.dependsOn {
			visit(byName[d])
		}
		out = append(out, o)
	}
	for _, o := range owners {
		visit(o)
	}
	return out
}
