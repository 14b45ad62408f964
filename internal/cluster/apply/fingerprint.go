package apply

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"hash"
	"hash/maphash"
	"io"
	"strconv"
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/cluster/resourceversion"
)

var seed = maphash.MakeSeed() // of hashes that are compared within this process only

// fingerprint summarizes an object for the detection of drift. It is small enough to be kept for every object.
//
// The API server keeps the set of fields that our manager applied. It removes a field from the set as soon as another
// manager changes the value. So the set stays the same as long as all applied values do. Changes of the status or of
// other fields do not affect it. Only an apply under our name can change a value and not the set. It changes the time
// of the set or, within the same second, results in a new version without another cause.
type fingerprint struct {
	version    string
	uid        types.UID
	generation int64
	deleting   bool
	owner      unique.Handle[Owner]
	ours       uint64 // hash of the fields that we own or would take over, and of their times
	others     uint64 // hash of the other managers and their times
	policy     uint64 // hash of the annotations and labels that control how the object is applied
}

// absent is the fingerprint of an object that does not exist.
var absent = &fingerprint{owner: unique.Make(Owner{})}

func (m managers) fingerprintOf(o metav1.Object, group string) *fingerprint {
	f := &fingerprint{
		version: o.GetResourceVersion(), uid: o.GetUID(), generation: o.GetGeneration(),
		deleting: o.GetDeletionTimestamp() != nil,
		owner:    unique.Make(ownerOf(o.GetLabels(), group)),
	}
	f.ours, f.others = m.hashFields(o.GetManagedFields())
	for _, values := range []map[string]string{o.GetAnnotations(), o.GetLabels()} {
		for k, v := range values {
			if strings.HasPrefix(k, group+"/") {
				f.policy ^= sum(sha256.New(), k+"="+v) // independent of the order
			}
		}
	}
	return f
}

// driftedTo reports whether an object that had this fingerprint when it was applied has drifted. A fingerprint that is
// older, such as that of an event before the apply, is not drift.
func (f *fingerprint) driftedTo(now *fingerprint) bool {
	switch {
	case now.version == f.version || resourceversion.Newer(f.version, now.version):
		return false
	case now.uid != f.uid:
		return true
	case now.deleting:
		return false // an event follows when the object is deleted
	case now.ours != f.ours || now.owner != f.owner || now.policy != f.policy:
		return true
	default:
		unexplained := now.others == f.others
		return unexplained && (now.generation != f.generation || now.generation == 0)
	}
}

// changedTo reports whether any declared part of an object may have changed since it had this fingerprint.
func (f *fingerprint) changedTo(now *fingerprint) bool {
	return resourceversion.Newer(now.version, f.version) && (now.generation != f.generation || now.generation == 0)
}

// differs reports whether an object that drifted has changed again, except for fields of other managers. The
// fingerprint of an object that does not exist is [absent].
func (f *fingerprint) differs(now *fingerprint) bool {
	if f.uid != now.uid || f.version == now.version {
		return f.uid != now.uid
	}
	return now.ours != f.ours || now.owner != f.owner || now.policy != f.policy || now.generation != f.generation ||
		now.generation == 0
}

// hashFields returns the hash of the fields that we own or would take over, and the hash of the other managers.
func (m managers) hashFields(fields []metav1.ManagedFieldsEntry) (ours, others uint64) {
	own, rest := sha256.New(), sha256.New()
	for _, e := range fields {
		h := rest
		if m.isOurs(e) || m.overrides(e) {
			h = own
			if e.FieldsV1 != nil {
				_, _ = h.Write(canonical(e.FieldsV1)) // never fails
			}
		}
		at := ""
		if e.Time != nil {
			at = strconv.FormatInt(e.Time.Unix(), 36)
		}
		for _, s := range []string{e.Manager, string(e.Operation), e.Subresource, e.APIVersion, at} {
			_, _ = io.WriteString(h, s+"\x00") // never fails
		}
	}
	return sum(own, ""), sum(rest, "")
}

// sum returns 64 bits of a hash of a text and what was written before it. It is the same in each process. Other fields
// with the same hash cannot be found.
func sum(h hash.Hash, text string) uint64 {
	_, _ = io.WriteString(h, text) // never fails
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// canonical returns a set of fields with sorted keys, whose order depends on the client.
func canonical(f *metav1.FieldsV1) []byte {
	raw := f.GetRawBytes()
	var set any
	if json.Unmarshal(raw, &set) == nil {
		if sorted, err := json.Marshal(set); err == nil {
			return sorted
		}
	}
	return raw
}

// digest returns a hash of what an object declares, without its status, and of the fields that we own.
func (m managers) digest(o *unstructured.Unstructured) uint64 {
	ours, _ := m.hashFields(o.GetManagedFields())
	return valuesDigest(o) ^ ours
}

// valuesDigest returns a hash of what an object declares, without its status and its managed fields.
func valuesDigest(o *unstructured.Unstructured) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	b, err := json.Marshal(withoutServerFields(o))
	if err != nil {
		return 0
	}
	_, _ = h.Write(b) // never fails
	return h.Sum64()
}

// withoutServerFields returns an object without the status and the metadata that the server sets. It shares values with
// the object.
func withoutServerFields(o *unstructured.Unstructured) map[string]any {
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
