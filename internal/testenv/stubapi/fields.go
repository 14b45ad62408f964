package stubapi

import (
	"reflect"
	"time"
)

// fieldSet is the set of fields of an object, as in FieldsV1: a map by "f:" and a name. Leaves are empty maps. A list
// is a leaf.
type fieldSet = map[string]any

// ownable returns the part of an object that managers can own: without type, identity and what the server sets.
func ownable(o map[string]any) map[string]any {
	out, kept := map[string]any{}, map[string]any{}
	for name, v := range o {
		if name != "apiVersion" && name != "kind" && name != "metadata" {
			out[name] = v
		}
	}
	m, _ := o["metadata"].(map[string]any)
	for _, name := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
		if v := m[name]; v != nil {
			kept[name] = v
		}
	}
	if len(kept) > 0 {
		out["metadata"] = kept
	}
	return out
}

// fieldsOf returns the fields of a value.
func fieldsOf(v any) fieldSet {
	m, _ := v.(map[string]any)
	out := make(fieldSet, len(m))
	for name, item := range m {
		out["f:"+name] = fieldsOf(item)
	}
	return out
}

// changed returns the fields whose values differ: those that exist now, and those that do not any more.
func changed(old, now map[string]any) (set, removed fieldSet) {
	set, removed = fieldSet{}, fieldSet{}
	for name, v := range now {
		before, existed := old[name]
		a, isMap := before.(map[string]any)
		b, staysMap := v.(map[string]any)
		switch {
		case isMap && staysMap:
			s, r := changed(a, b)
			add(set, name, s)
			add(removed, name, r)
		case !existed || !reflect.DeepEqual(before, v):
			set["f:"+name] = fieldsOf(v)
		}
	}
	for name, v := range old {
		if _, exists := now[name]; !exists {
			removed["f:"+name] = fieldsOf(v)
		}
	}
	return set, removed
}

func add(to fieldSet, name string, part fieldSet) {
	if len(part) > 0 {
		to["f:"+name] = part
	}
}

// union returns the fields of both.
func union(a, b fieldSet) fieldSet {
	out := make(fieldSet, len(a)+len(b))
	for name, v := range a {
		out[name] = v
	}
	for name, v := range b {
		x, _ := out[name].(fieldSet)
		y, _ := v.(fieldSet)
		out[name] = union(x, y)
	}
	return out
}

// without returns the fields of a that b has not. A leaf of b covers what is below it.
func without(a, b fieldSet) fieldSet {
	out := make(fieldSet, len(a))
	for name, v := range a {
		other, both := b[name].(fieldSet)
		x, _ := v.(fieldSet)
		switch {
		case !both:
			out[name] = v
		case len(x) > 0 && len(other) > 0:
			if rest := without(x, other); len(rest) > 0 {
				out[name] = rest
			}
		}
	}
	return out
}

// remove deletes fields from an object, with maps that become empty.
func remove(o map[string]any, set fieldSet) {
	for name, v := range set {
		name, below := name[len("f:"):], v.(fieldSet)
		child, isMap := o[name].(map[string]any)
		if isMap && len(below) > 0 {
			remove(child, below)
			if len(child) > 0 {
				continue
			}
		}
		delete(o, name)
	}
}

// merge sets the values of a manifest. Null values of a merge patch delete.
func merge(o, manifest map[string]any) {
	for name, v := range manifest {
		patch, isMap := v.(map[string]any)
		switch {
		case v == nil:
			delete(o, name)
		case isMap:
			child, ok := o[name].(map[string]any)
			if !ok {
				child = map[string]any{}
				o[name] = child
			}
			merge(child, patch)
		default:
			o[name] = v
		}
	}
}

// manager is who writes an object, and how.
type manager struct {
	name, operation, subresource string
}

func (m manager) wrote(entry map[string]any) bool {
	subresource, _ := entry["subresource"].(string)
	return entry["manager"] == m.name && entry["operation"] == m.operation && subresource == m.subresource
}

// entriesOf returns copies of the managed fields of an object.
func entriesOf(o map[string]any) []map[string]any {
	all, _ := metadataOf(o)["managedFields"].([]any)
	out := make([]map[string]any, 0, len(all))
	for _, e := range all {
		e, _ := e.(map[string]any)
		entry := make(map[string]any, len(e))
		for k, v := range e {
			entry[k] = v
		}
		out = append(out, entry)
	}
	return out
}

// owned returns the fields of an entry.
func owned(entry map[string]any) fieldSet {
	f, _ := entry["fieldsV1"].(fieldSet)
	return f
}

// track sets the managed fields of an object that a manager wrote. Applied are the fields of an apply.
func track(old, now map[string]any, by manager, applied fieldSet, at time.Time) {
	set, removed := changed(ownable(old), ownable(now))
	touched := union(set, removed)
	entries, mine := entriesOf(old), -1
	for n, e := range entries {
		if by.wrote(e) {
			mine = n
		} else if len(touched) > 0 {
			e["fieldsV1"] = without(owned(e), touched)
		}
	}
	if mine < 0 {
		mine = len(entries)
		entries = append(entries, map[string]any{"manager": by.name, "operation": by.operation,
			"fieldsType": "FieldsV1"})
		if by.subresource != "" {
			entries[mine]["subresource"] = by.subresource
		}
	}
	own := entries[mine]
	fields := applied
	if by.operation != operationApply {
		fields = union(without(owned(own), removed), set)
	}
	if len(touched) > 0 || !reflect.DeepEqual(owned(own), fields) {
		own["fieldsV1"], own["time"], own["apiVersion"] = fields, at.UTC().Format(time.RFC3339), now["apiVersion"]
	}
	var all []any
	for _, e := range entries {
		if len(owned(e)) > 0 {
			all = append(all, e)
		}
	}
	if len(all) > 0 {
		metadataOf(now)["managedFields"] = all
	}
}

// apply returns an object after a server-side apply, and the fields of the manifest.
func apply(old, manifest map[string]any, by manager) (now map[string]any, applied fieldSet) {
	declared := ownable(manifest)
	applied = fieldsOf(declared)
	now = decode(encode(old)) // a copy
	var before, others fieldSet
	for _, e := range entriesOf(old) {
		if by.wrote(e) {
			before = owned(e)
		} else {
			others = union(others, owned(e))
		}
	}
	remove(now, without(without(before, applied), others))
	merge(now, declared)
	return now, applied
}
