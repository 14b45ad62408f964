package risk

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/text/diff"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// FromPlan returns the objects that change in a preview of an apply whose request says Inspect, and those that do not
// change, but declare fields that their kind does not have.
func FromPlan(planned []apply.Change, veil *redact.Veil) []Object {
	var out []Object
	for _, c := range planned {
		if action := actionOf(c); action != "" {
			o := NewObject(action, c.Before, c.After, veil)
			o.Group, o.Version, o.Kind = c.Ref.Group, c.Ref.Version, c.Ref.Kind
			o.Namespace, o.Name = c.Ref.Namespace, c.Ref.Name
			if c.PreviousOwner != (apply.Owner{}) {
				o.PreviousOwner = c.PreviousOwner.String()
			}
			for _, f := range c.Unknown {
				o.UnknownFields = append(o.UnknownFields, f.Path)
			}
			out = append(out, o)
		}
	}
	return out
}

// actionOf returns the action of a planned change; empty if the object does not change.
func actionOf(c apply.Change) Action {
	switch {
	case c.Recreated && c.Action == apply.Created:
		return Recreated
	case c.Action == apply.Created:
		return Created
	case c.Action == apply.Configured:
		return Configured
	case c.Action == apply.Deleted:
		return Deleted
	case c.Action == apply.Hidden:
		return Hidden
	case c.Action == apply.Unchanged && len(c.Unknown) > 0:
		return Unchanged
	}
	return ""
}

// NewObject returns the change of an object from its state before and after. Either may be nil. Rules and people see
// only what the veil shows; grants, privileges and the digest of the change are of the objects as they are.
func NewObject(action Action, before, after *unstructured.Unstructured, veil *redact.Veil) Object {
	o := Object{Action: action, content: lasting(after)}
	shownBefore, shownAfter := veil.Objects(before, after, false)
	o.Old, o.New = visible(shownBefore), visible(shownAfter)
	named := after
	if named == nil {
		named = before
	}
	if named != nil {
		gvk := named.GroupVersionKind()
		o.Group, o.Version, o.Kind = gvk.Group, gvk.Version, gvk.Kind
		o.Namespace, o.Name = named.GetNamespace(), named.GetName()
	}
	if before != nil && after != nil {
		o.Fields, o.paths = pathsOf(shownBefore, shownAfter), pathsOf(before, after)
	}
	if action == Deleted || after == nil {
		return o
	}
	was, is := fieldsOf(before), fieldsOf(after)
	o.Images = changedImages(o.Old, o.New)
	for n := range o.Images {
		i := &o.Images[n]
		i.Container, i.Old, i.New = redact.Text(i.Container), redact.Text(i.Old), redact.Text(i.New)
	}
	o.Grants = shown(addedGrants(o.Group, o.Kind, was, is), addedGrants(o.Group, o.Kind, o.Old, o.New))
	o.Privileges = shown(addedPrivileges(was, is), addedPrivileges(o.Old, o.New))
	return o
}

// hiddenFact stands for a right or a privilege whose name comes from a secret.
const hiddenFact = "one that comes from a value of a Secret"

// shown returns the facts that may be shown, and hiddenFact in place of the others.
func shown(facts, visible []string) []string {
	var out []string
	for _, f := range facts {
		if !slices.Contains(visible, f) {
			f = hiddenFact
		}
		if !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return out
}

func pathsOf(before, after *unstructured.Unstructured) (paths []string) {
	for _, d := range diff.Objects(before, after) {
		paths = append(paths, d.Path)
	}
	return paths
}

func fieldsOf(o *unstructured.Unstructured) map[string]any {
	if o == nil {
		return nil
	}
	return o.Object
}

// visible returns the fields of an object. Values of a Secret are masked, so that no rule can print them.
func visible(o *unstructured.Unstructured) map[string]any {
	if o == nil {
		return nil
	}
	if o.GetKind() != "Secret" || o.GroupVersionKind().Group != "" {
		return o.Object
	}
	out := maps.Clone(o.Object)
	for _, field := range []string{"data", "stringData"} {
		values, ok := out[field].(map[string]any)
		if !ok {
			continue
		}
		masked := map[string]any{}
		for k := range values {
			masked[k] = redact.Masked
		}
		out[field] = masked
	}
	metadata := maps.Clone(child(out, "metadata"))
	delete(metadata, "managedFields")
	delete(metadata, "annotations") // may contain a copy of the object
	out["metadata"] = metadata
	return out
}
