package redact

import (
	"fmt"
	"hash/maphash"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Known is what may be shown of objects: the fields whose values are not secret, found by comparing two renders. It
// holds no values, so that it may be kept.
type Known struct {
	seed   maphash.Seed
	hashes map[uint64]struct{}
	texts  []string // values that come from secrets
}

// What a hash is of, together with an object and a path.
const (
	knownKey   = "key"   // a key of a map
	knownField = "field" // a value that is not secret
	knownValue = "value" // and which value it is
	knownOther = "other" // a value that differs between the renders
)

// Compare returns what may be shown of rendered objects, given the same objects rendered with placeholders.
func Compare(objects, placeholders []*unstructured.Unstructured) *Known {
	k := newKnown()
	others := map[string]*unstructured.Unstructured{}
	for _, o := range placeholders {
		ref := refOf(o, o.GetNamespace())
		others[ref] = o
		k.add(knownKey, ref, nil, "")
		walk(o.Object, nil, func(path []string, _ any) bool {
			k.add(knownKey, ref, path, "")
			return true
		})
	}
	for _, o := range objects {
		k.compare(o, others[k.refOf(o)])
	}
	return k
}

func newKnown() *Known { return &Known{seed: maphash.MakeSeed(), hashes: map[uint64]struct{}{}} }

// compare records which fields of an object are not secret.
func (k *Known) compare(o, other *unstructured.Unstructured) {
	values := map[string]any{}
	if other != nil {
		walk(other.Object, nil, func(path []string, v any) bool {
			values[strings.Join(path, "\x00")] = v
			return true
		})
	}
	ref := k.refOf(o)
	walk(o.Object, nil, func(path []string, v any) bool {
		if !k.has(knownKey, ref, path, "") {
			k.addText(path[len(path)-1])
		}
		if isTree(v) {
			return true
		}
		if same, ok := values[strings.Join(path, "\x00")]; ok && fmt.Sprint(same) == fmt.Sprint(v) {
			k.add(knownField, ref, path, "")
			k.add(knownValue, ref, path, fmt.Sprint(v))
			return true
		}
		k.add(knownOther, ref, path, "")
		k.add(knownOther, ref, nil, "")
		k.addText(fmt.Sprint(v))
		if same, ok := values[strings.Join(path, "\x00")]; ok {
			k.addText(middle(fmt.Sprint(v), fmt.Sprint(same)))
		}
		return true
	})
}

// addText records a text that comes from a secret.
func (k *Known) addText(text string) {
	if len(text) >= MinLength && text != "true" && text != "false" {
		k.texts = append(k.texts, text)
	}
}

// middle returns the part of a text that differs from another one.
func middle(text, other string) string {
	for text != "" && other != "" && text[0] == other[0] {
		text, other = text[1:], other[1:]
	}
	for text != "" && other != "" && text[len(text)-1] == other[len(other)-1] {
		text, other = text[:len(text)-1], other[:len(other)-1]
	}
	return text
}

func (k *Known) hash(what, ref string, path []string, value string) uint64 {
	var h maphash.Hash
	h.SetSeed(k.seed)
	for _, part := range slices.Concat([]string{what, ref, value}, path) {
		_, _ = fmt.Fprintf(&h, "%d %s", len(part), part)
	}
	return h.Sum64()
}

func (k *Known) add(what, ref string, path []string, value string) {
	k.hashes[k.hash(what, ref, path, value)] = struct{}{}
}

func (k *Known) has(what, ref string, path []string, value string) bool {
	if k == nil {
		return false
	}
	_, ok := k.hashes[k.hash(what, ref, path, value)]
	return ok
}

// Shows reports whether the value of a field may be shown, as it is not secret in the renders.
func (k *Known) Shows(o *unstructured.Unstructured, path []string) bool {
	return k.has(knownField, k.refOf(o), path, "")
}

// Differs reports whether a field differs between the renders.
func (k *Known) Differs(o *unstructured.Unstructured, path ...string) bool {
	return k.has(knownOther, k.refOf(o), path, "")
}

// Differing reports whether any field of an object differs between the renders.
func (k *Known) Differing(o *unstructured.Unstructured) bool {
	return k.has(knownOther, k.refOf(o), nil, "")
}

// renders reports whether the render with placeholders has an object of that name.
func (k *Known) renders(o *unstructured.Unstructured) bool {
	return k.has(knownKey, refOf(o, o.GetNamespace()), nil, "") || k.has(knownKey, refOf(o, ""), nil, "")
}

// Keep returns what may be kept for a later pass: no text of a secret.
func (k *Known) Keep() *Known {
	if k == nil {
		return nil
	}
	return &Known{seed: k.seed, hashes: k.hashes}
}

// refOf returns the reference of an object among the rendered ones. What has no namespace when it is rendered gets the
// default one when it is applied.
func (k *Known) refOf(o *unstructured.Unstructured) string {
	ref := refOf(o, o.GetNamespace())
	if k.has(knownKey, ref, nil, "") {
		return ref
	}
	return refOf(o, "")
}

func refOf(o *unstructured.Unstructured, namespace string) string {
	gvk := o.GroupVersionKind()
	return gvk.Group + "/" + gvk.Kind + "/" + namespace + "/" + o.GetName()
}

func isTree(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	return false
}

// walk calls visit for each value below a value, with its path. Items of lists are named by what identifies them. Visit
// must not keep the path. It returns false to skip what is below.
func walk(v any, path []string, visit func(path []string, v any) bool) {
	switch v := v.(type) {
	case map[string]any:
		for key, item := range v {
			if below := append(path, key); visit(below, item) {
				walk(item, below, visit)
			}
		}
	case []any:
		names := namesOf(v)
		for n, item := range v {
			if below := append(path, names[n]); visit(below, item) {
				walk(item, below, visit)
			}
		}
	}
}

// Veil hides what comes from secrets in the objects of an owner. A nil Veil hides only what Kubernetes calls a Secret.
type Veil struct {
	// Secrets are values that messages of others must not contain.
	Secrets []string
	// Before is what may be shown of what was applied before; nil if that is not known.
	Before *Known
	// Render returns the objects, and the same objects rendered with placeholders. It is called once, if something is
	// to be shown. Without it, nothing comes from secrets.
	Render func() (objects, placeholders []*unstructured.Unstructured, err error)
	// Unused reports that nothing comes from secrets, if finding out takes a while. May be nil.
	Unused func() bool

	once   sync.Once
	known  *Known
	isOpen bool

	isClean bool // nothing comes from secrets now, but something did before
}

// Known returns what may be shown of the objects; nil if nothing comes from secrets, and an empty one if the render
// with placeholders fails.
func (v *Veil) Known() *Known {
	if v == nil || v.Render == nil {
		return nil
	}
	v.once.Do(func() {
		if v.isOpen = v.Unused != nil && v.Unused() && v.Before == nil; v.isOpen {
			return
		}
		objects, placeholders, err := v.Render()
		if err != nil {
			placeholders = nil // nothing is shown
		}
		v.known = Compare(objects, placeholders)
	})
	return v.known
}

// After sets what may be shown of what was applied before. If something of that came from secrets, its values are
// hidden also when nothing of the objects does now.
func (v *Veil) After(before *Known, objects []*unstructured.Unstructured) *Veil {
	if v.Before = before; before != nil && v.Render == nil {
		v.isClean = true
		v.Render = func() (o, p []*unstructured.Unstructured, err error) { return objects, objects, nil }
	}
	return v
}

// Kept returns what may be kept of an apply to show changes of the next one, given what was known before. What was not
// compared is not known, unless the declaration is the same.
func (v *Veil) Kept(before *Known, isDrift bool) *Known {
	switch {
	case v == nil || v.Render == nil || v.isClean || v.Unused != nil && v.Unused():
		return nil
	case v.known == nil && isDrift:
		return before
	case v.known == nil:
		return newKnown()
	}
	return v.known.Keep()
}

// ShowsName reports whether the name of a declared object may be shown before the object exists.
func (v *Veil) ShowsName(o *unstructured.Unstructured) bool {
	return v.IsOpen() || v.Known().renders(o)
}

// IsOpen reports whether nothing comes from secrets.
func (v *Veil) IsOpen() bool { return v.Known() == nil }

// Objects returns the objects before and after a change with seals in place of what must not be shown. They share
// values with the originals. isDrift says that the declaration did not change: then what others wrote to a field that
// is not secret may be shown.
func (v *Veil) Objects(before, after *unstructured.Unstructured, isDrift bool) (b, a *unstructured.Unstructured) {
	if v.IsOpen() {
		return before, after
	}
	known := v.Known()
	now := func(path []string, o *unstructured.Unstructured, _ any) bool { return known.Shows(o, path) }
	is := map[string]string{} // values after the change that are shown
	if after != nil {
		walk(after.Object, nil, func(path []string, value any) bool {
			if !isTree(value) && known.Shows(after, path) {
				is[strings.Join(path, "\x00")] = fmt.Sprint(value)
			}
			return true
		})
	}
	then := func(path []string, o *unstructured.Unstructured, value any) bool {
		text, ok := is[strings.Join(path, "\x00")]
		return known.Shows(o, path) && (isDrift || isImage(path, value) || isIdentity(path, value)) ||
			ok && text == fmt.Sprint(value) || v.Before.has(knownValue, v.Before.refOf(o), path, fmt.Sprint(value))
	}
	return hide(before, known, v.Before, then), hide(after, known, v.Before, now)
}

var imageRef = regexp.MustCompile(`^[a-z0-9][\w.-]*(:[0-9]+)?(/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$`)

// isImage reports whether a value is the image of a container. People must see which one is replaced, and no secret
// belongs there: anybody who sees a pod sees its image.
func isImage(path []string, v any) bool {
	text, ok := v.(string)
	return ok && len(path) > 2 && path[len(path)-1] == "image" &&
		strings.HasSuffix(strings.ToLower(path[len(path)-3]), "containers") && imageRef.MatchString(text)
}

// isIdentity reports whether a value names the item of a list that a path goes through.
func isIdentity(path []string, v any) bool {
	return len(path) > 1 && path[len(path)-2] == itemName(path[len(path)-1], v)
}

// hide returns an object with seals in place of the values that are not shown, and of keys that no render declares.
func hide(o *unstructured.Unstructured, known, before *Known,
	shows func([]string, *unstructured.Unstructured, any) bool) *unstructured.Unstructured {
	if o == nil {
		return nil
	}
	ref, old := known.refOf(o), before.refOf(o)
	var hidden func(v any, path []string) any
	hidden = func(v any, path []string) any {
		switch v := v.(type) {
		case map[string]any:
			out := make(map[string]any, len(v))
			for key, item := range v {
				below := append(path, key)
				shown := key
				if !isSecretKey(o, below) && !known.has(knownKey, ref, below, "") &&
					!before.has(knownKey, old, below, "") && !isNamed(below) {
					shown = Seal(key)
				}
				out[shown] = hidden(item, below)
			}
			return out
		case []any:
			out, names := make([]any, len(v)), namesOf(v)
			for n, item := range v {
				out[n] = hidden(item, append(path, names[n]))
			}
			return out
		case nil:
			return nil
		}
		if isNamed(path) || shows(path, o, v) {
			return v
		}
		return Seal(v)
	}
	out, _ := hidden(o.Object, nil).(map[string]any)
	return &unstructured.Unstructured{Object: out}
}

// isSecretKey reports whether a path is the data of a Secret, or one of its keys. People know the Secret by its keys,
// and its values are always hidden.
func isSecretKey(o *unstructured.Unstructured, path []string) bool {
	return o.GetKind() == "Secret" && o.GetAPIVersion() == "v1" && len(path) <= 2 &&
		(path[0] == "data" || path[0] == "stringData")
}

// isNamed reports whether a path is a part of the name of an object, or is set by the API server. Other programs write
// the status, so it is not compared.
func isNamed(path []string) bool {
	if len(path) == 3 && path[0] == "metadata" && path[1] == "labels" {
		group, name, _ := strings.Cut(path[2], "/")
		return strings.HasSuffix(group, ".toolkit.fluxcd.io") && (name == "name" || name == "namespace") // of the owner
	}
	switch path[0] {
	case "apiVersion", "kind", "metadata", "status":
		return len(path) == 1 || path[0] == "metadata" && len(path) == 2 && serverMetadata[path[1]]
	}
	return false
}

var serverMetadata = map[string]bool{"name": true, "namespace": true, "uid": true, "resourceVersion": true,
	"generation": true, "creationTimestamp": true, "deletionTimestamp": true, "deletionGracePeriodSeconds": true,
	"managedFields": true, "selfLink": true}

// Texts returns the texts that messages of others must not contain: secrets, and what the render makes of them.
func (v *Veil) Texts() []string {
	if v == nil {
		return nil
	}
	if known := v.Known(); known != nil {
		return slices.Concat(v.Secrets, known.texts)
	}
	return v.Secrets
}

// Text returns a text that others composed without values that come from secrets.
func (v *Veil) Text(text string) string {
	if v == nil || text == "" {
		return text
	}
	return Text(text, v.Texts()...)
}

// Error returns an error without values that come from secrets. Its chain stays.
func (v *Veil) Error(err error) error {
	if err == nil || v == nil {
		return err
	}
	return Error(err, v.Texts()...)
}
