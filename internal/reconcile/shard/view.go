package shard

import (
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// View is the IDs of the replicas that share the objects, in order. Each replica publishes the view that it acts on. A
// key belongs to the replica with the highest hash of both (rendezvous hashing), so that a replica which joins or
// leaves moves only its own share. The empty view owns nothing.
type View []string

// maxReplicas bounds the IDs of a view that is read.
const maxReplicas = 100

// NewView returns a view of replicas.
func NewView(ids ...string) View {
	v := slices.Clone(ids)
	slices.Sort(v)
	return slices.Compact(v)
}

// ParseView returns the view of a text that [View.String] returned. A text with too many IDs is cut, and IDs that are
// empty are left out: a replica that is not in the view of another one waits for it.
func ParseView(text string) View {
	ids := strings.SplitN(text, ",", maxReplicas+1)
	ids = ids[:min(len(ids), maxReplicas)]
	return NewView(slices.DeleteFunc(ids, func(id string) bool { return id == "" })...)
}

// String returns the IDs, separated by commas.
func (v View) String() string { return strings.Join(v, ",") }

// Equal reports whether both views have the same replicas.
func (v View) Equal(o View) bool { return slices.Equal(v, o) }

// Owner returns the replica that a key belongs to; empty for the empty view.
func (v View) Owner(key string) string {
	owner, highest := "", uint64(0)
	for _, id := range v {
		if h := hash(id, key); owner == "" || h > highest {
			owner, highest = id, h
		}
	}
	return owner
}

func hash(id, key string) uint64 {
	d := xxhash.New()
	_, _ = d.WriteString(id) // never fails
	_, _ = d.WriteString("\x00")
	_, _ = d.WriteString(key)
	return d.Sum64()
}
