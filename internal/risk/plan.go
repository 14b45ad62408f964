package risk

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/diff"
)

// FromPlan returns the objects that change in a preview of an apply whose request says Inspect.
func FromPlan(planned []apply.Change, secrets ...string) []Object {
	var out []Object
	for _, c := range planned {
		if action := actionOf(c); action != "" {
			o := NewObject(action, c.Before, c.After, secrets...)
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
	}
	return ""
}

// NewObject returns the change of an object from its state before and after. Either may be nil.
func NewObject(action Action, before, after *unstructured.Unstructured, secrets ...string) Object {
	o := Object{Action: action, Old: visible(before), New: visible(after)}
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
		for _, d := range diff.Objects(before, after, secrets...) {
			o.Fields = append(o.Fields, d.Path)
		}
	}
	if action == Deleted || after == nil {
		return o
	}
	o.Images = changedImages(o.Old, o.New)
	o.Grants = addedGrants(o.Group, o.Kind, o.Old, o.New)
	o.Privileges = addedPrivileges(o.Old, o.New)
	return o
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
			masked[k] = "***"
		}
		out[field] = masked
	}
	metadata := maps.Clone(child(out, "metadata"))
	delete(metadata, "managedFields")
	delete(metadata, "annotations") // may contain a copy of the object
	out["metadata"] = metadata
	return out
}
