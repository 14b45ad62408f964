package apply

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Owner is the object that declares other objects. They name it in the labels <group>/name and <group>/namespace.
type Owner struct{ Group, Namespace, Name string }

// Groups of owners whose labels, or whose objects, differ from those of others.
const (
	resourceSetGroup   = "fluxcd.controlplane.io"
	kustomizationGroup = "kustomize.toolkit.fluxcd.io"
)

// LabelPrefix returns the prefix of the owner's labels.
func (o Owner) LabelPrefix() string {
	if o.Group == resourceSetGroup {
		return "resourceset." + o.Group
	}
	return o.Group
}

func (o Owner) nameLabel() string      { return o.LabelPrefix() + "/name" }
func (o Owner) namespaceLabel() string { return o.LabelPrefix() + "/namespace" }

// Labels returns the labels of the owner's objects.
func (o Owner) Labels() map[string]string {
	return map[string]string{o.nameLabel(): o.Name, o.namespaceLabel(): o.Namespace}
}

// owns reports whether labels name this owner.
func (o Owner) owns(labels map[string]string) bool {
	return labels[o.nameLabel()] == o.Name && labels[o.namespaceLabel()] == o.Namespace
}

// String returns namespace/name.
func (o Owner) String() string { return o.Namespace + "/" + o.Name }

// ownerOf returns the owner of a group that labels name; zero if there is none.
func ownerOf(labels map[string]string, group string) Owner {
	o := Owner{Group: group}
	if o.Namespace, o.Name = labels[o.namespaceLabel()], labels[o.nameLabel()]; o.Name == "" {
		return Owner{}
	}
	return o
}

// Ref identifies an object.
type Ref struct{ Group, Version, Kind, Namespace, Name string }

// interned returns the reference with parts that are in memory once for all objects, except the name.
func (r Ref) interned() Ref {
	for _, part := range []*string{&r.Group, &r.Version, &r.Kind, &r.Namespace} {
		*part = unique.Make(*part).Value()
	}
	return r
}

// String returns Kind/namespace/name, or Kind/name without a namespace.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + "/" + r.Name
	}
	return r.Kind + "/" + r.Namespace + "/" + r.Name
}

func (r Ref) groupKind() schema.GroupKind { return schema.GroupKind{Group: r.Group, Kind: r.Kind} }

// key returns the reference without the version.
func (r Ref) key() Ref {
	r.Version = ""
	return r
}

func (r Ref) compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.Group, o.Group), cmp.Compare(r.Kind, o.Kind), cmp.Compare(r.Namespace, o.Namespace),
		cmp.Compare(r.Name, o.Name))
}

// Entry is an object in an inventory, in the form of status.inventory.
type Entry struct {
	ID      string // <namespace>_<name>_<group>_<kind>; a colon in the name is two underscores
	Version string
}

// Entry returns the reference as an entry of an inventory.
func (r Ref) Entry() Entry {
	name := strings.ReplaceAll(r.Name, ":", "__")
	return Entry{ID: strings.Join([]string{r.Namespace, name, r.Group, r.Kind}, "_"), Version: r.Version}
}

// Ref parses the entry.
func (e Entry) Ref() (Ref, error) {
	namespace, rest, ok1 := strings.Cut(e.ID, "_")
	k := strings.LastIndexByte(rest, '_')
	g := -1
	if k > 0 {
		g = strings.LastIndexByte(rest[:k], '_')
	}
	if !ok1 || g <= 0 || k == len(rest)-1 {
		return Ref{}, fmt.Errorf("inventory entry %q is not <namespace>_<name>_<group>_<kind>", e.ID)
	}
	return Ref{
		Group: rest[g+1 : k], Version: e.Version, Kind: rest[k+1:],
		Namespace: namespace, Name: strings.ReplaceAll(rest[:g], "__", ":"),
	}, nil
}

// Inventory lists applied objects.
type Inventory []Entry

// Has reports whether the inventory contains an object, in any version.
func (i Inventory) Has(e Entry) bool {
	return slices.ContainsFunc(i, func(o Entry) bool { return o.ID == e.ID })
}

// Without returns the entries whose objects the other inventory does not contain.
func (i Inventory) Without(other Inventory) Inventory {
	named := other.ids()
	var out Inventory
	for _, e := range i {
		if !named[e.ID] {
			out = append(out, e)
		}
	}
	return out
}

// With returns the entries of both inventories, those of i first.
func (i Inventory) With(other Inventory) Inventory {
	return append(slices.Clone(i), other.Without(i)...)
}

func (i Inventory) ids() map[string]bool {
	ids := make(map[string]bool, len(i))
	for _, e := range i {
		ids[e.ID] = true
	}
	return ids
}
