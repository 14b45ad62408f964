package apply

import (
	"encoding/json"
	"hash/maphash"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/resourceversion"
)

var seed = maphash.MakeSeed()

// mark is what of an object a move is judged by, small enough to keep for every object.
//
// The insight: the API server keeps the set of fields that our manager applied, and takes a field out of it as soon as
// anybody else changes its value. So the set stays as it is exactly as long as everything that we applied
// does, whatever happens to the status or to fields that are not ours. Only an apply under our own name can
// change a value and not the set; it changes the time beside it, or, within the same second, leaves a new
// version that nothing else explains.
type mark struct {
	version    string
	uid        types.UID
	generation int64
	deleting   bool
	owner      Owner
	ours       uint64 // the fields that are ours or that we would take over, and when they were set
	others     uint64 // who else set fields, and when
	steering   uint64 // the annotations and labels that tell us how to treat it
}

func (m managers) markOf(o metav1.Object, group string) mark {
	now := mark{
		version: o.GetResourceVersion(), uid: o.GetUID(), generation: o.GetGeneration(),
		deleting: o.GetDeletionTimestamp() != nil,
		owner:    ownerOf(o.GetLabels(), group),
	}
	now.ours, now.others = m.hashFields(o.GetManagedFields())
	for _, texts := range []map[string]string{o.GetAnnotations(), o.GetLabels()} {
		for k, v := range texts {
			if strings.HasPrefix(k, group+"/") {
				now.steering ^= maphash.String(seed, k+"="+v) // in any order
			}
		}
	}
	return now
}

// moved tells whether the object, marked anew, is no longer as it was when it was marked. What is older than the mark,
// such as an event that was under way while we applied, tells nothing.
func (m mark) moved(now mark) bool {
	switch {
	case now.version == m.version || resourceversion.Newer(m.version, now.version):
		return false
	case now.uid != m.uid:
		return true
	case now.deleting:
		return false // its end will be told
	case now.ours != m.ours || now.owner != m.owner || now.steering != m.steering:
		return true
	default:
		unexplained := now.others == m.others
		return unexplained && (now.generation != m.generation || now.generation == 0)
	}
}

// differs tells whether an object that moved changed again, in what is declared as far as can be told. It is
// not there when its mark is empty.
func (m mark) differs(now mark) bool {
	if m.uid != now.uid || m.version == now.version {
		return m.uid != now.uid
	}
	return now.ours != m.ours || now.owner != m.owner || now.steering != m.steering || now.generation != m.generation ||
		now.generation == 0
}

// hashFields tells apart what managers own: ours, with what we would take over, and all others.
func (m managers) hashFields(fields []metav1.ManagedFieldsEntry) (ours, others uint64) {
	var own, rest maphash.Hash
	own.SetSeed(seed)
	rest.SetSeed(seed)
	for _, e := range fields {
		h := &rest
		if m.isOurs(e) || m.overrides(e) {
			h = &own
			writeFields(h, e.FieldsV1)
		}
		for _, s := range []string{e.Manager, string(e.Operation), e.Subresource, e.APIVersion} {
			_, _ = h.WriteString(s) // never fails
			_ = h.WriteByte(0)
		}
		if e.Time != nil {
			_, _ = h.WriteString(strconv.FormatInt(e.Time.Unix(), 36))
		}
	}
	return own.Sum64(), rest.Sum64()
}

// writeFields hashes a set of fields. Clients hand out its keys in different orders: decoding and encoding sorts them.
func writeFields(h *maphash.Hash, f *metav1.FieldsV1) {
	if f == nil {
		return
	}
	raw := f.GetRawBytes()
	var set any
	if json.Unmarshal(raw, &set) == nil {
		if sorted, err := json.Marshal(set); err == nil {
			raw = sorted
		}
	}
	_, _ = h.Write(raw) // never fails
}

// digest is what an object holds, less what is observed, not declared.
func (m managers) digest(o *unstructured.Unstructured) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	b, err := json.Marshal(declared(o))
	if err != nil {
		return 0
	}
	_, _ = h.Write(b) // never fails
	ours, _ := m.hashFields(o.GetManagedFields())
	return h.Sum64() ^ ours
}

// declared is what of an object is declared, not observed. It shares values with the object.
func declared(o *unstructured.Unstructured) map[string]any {
	out := make(map[string]any, len(o.Object))
	for k, v := range o.Object {
		if k != "status" {
			out[k] = v
		}
	}
	if m, ok := o.Object["metadata"].(map[string]any); ok {
		metadata := make(map[string]any, len(m))
		for k, v := range m {
			switch k {
			case "managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink":
			default:
				metadata[k] = v
			}
		}
		out["metadata"] = metadata
	}
	return out
}
