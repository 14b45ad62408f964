package risk

import "github.com/sluice-gitops/sluice/internal/build/expression"

// Value returns the change as the variable `change` of expressions: created, configured, recreated, deleted, hidden
// and unchanged are lists of objects; images lists the images that change; inventory, author, signed, signers, message,
// files and owner are as in [Change]. The level is that of a finished classification, or None.
func (c *Change) Value(level Level) map[string]any {
	out := map[string]any{
		"owner":     map[string]any{"kind": c.Owner.Kind, "namespace": c.Owner.Namespace, "name": c.Owner.Name},
		"inventory": int64(c.Inventory), "author": c.Author, "signed": c.Signed, "signers": texts(c.Signers),
		"message": c.Message, "files": texts(c.Files), "risk": level.String(),
	}
	images, byAction := []any{}, map[Action][]any{}
	for n := range c.Objects {
		o := &c.Objects[n]
		byAction[o.Action] = append(byAction[o.Action], o.value())
		images = append(images, o.images()...)
	}
	for _, a := range Actions {
		if byAction[a] == nil {
			byAction[a] = []any{}
		}
		out[string(a)] = byAction[a]
	}
	out["images"] = images
	return out
}

// value returns the object as the variable `object` of expressions.
func (o *Object) value() map[string]any {
	return map[string]any{
		"action": string(o.Action), "group": o.Group, "version": o.Version, "kind": o.Kind, "namespace": o.Namespace,
		"name": o.Name, "fields": texts(o.Fields), "images": o.images(), "grants": texts(o.Grants),
		"privileges": texts(o.Privileges), "previousOwner": o.PreviousOwner,
		"unknownFields": texts(o.UnknownFields), "old": fields(o.Old), "new": fields(o.New),
	}
}

func (o *Object) images() []any {
	out := []any{}
	for _, i := range o.Images {
		out = append(out, map[string]any{"container": i.Container, "old": i.Old, "new": i.New,
			"downgrade": i.Downgrade})
	}
	return out
}

func texts(list []string) []any {
	out := make([]any, len(list))
	for n, s := range list {
		out[n] = s
	}
	return out
}

func fields(o map[string]any) map[string]any {
	if o == nil {
		return map[string]any{}
	}
	return o
}

// variables are the variables of the rules.
var variables = []string{"change", "object", "prunePercent"}

// scope returns the variables for a rule about one object, or with nil about the whole change.
func (r *Rules) scope(change map[string]any, o *Object) expression.Map {
	m := expression.Map{"change": change, "prunePercent": int64(r.prunePercent)}
	if o != nil {
		m["object"] = o.value()
	}
	return m
}
