package reconcile

import (
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/credentials/seal"
)

// admittedOf returns the revision that gates let through for an object, or nil if its status holds none that a
// controller has written. Gates do not hold what they let through before, so this must not rest on fields that
// accounts other than the controllers' may be able to write.
func (l *loop[T]) admittedOf(obj T) *meta.Admitted { return SealedAdmitted(l.Seals, l.GroupKind, obj) }

// SealedAdmitted returns the revision that gates let through for an object of a kind, or nil if its status holds none
// that is sealed with the key.
func SealedAdmitted(key *seal.Key, gk schema.GroupKind, obj Object) *meta.Admitted {
	gated, ok := obj.(Gated)
	if !ok {
		return nil
	}
	a := gated.Held().Admitted
	if a == nil || !key.Verify(a.Seal, sealedParts(gk, obj, a, gated.Held().Reverted)...) {
		return nil
	}
	return a.DeepCopy()
}

// dropUnsealed removes an admitted revision that no controller has written.
func dropUnsealed(obj Object, admitted *meta.Admitted) {
	if gated, ok := obj.(Gated); ok && admitted == nil {
		gated.Held().Admitted, gated.Held().Reverted = nil, nil
	}
}

// revertedOf returns how an object went back, if its status is sealed.
func revertedOf(obj Object) *meta.Reverted {
	if gated, ok := obj.(Gated); ok {
		return gated.Held().Reverted.DeepCopy()
	}
	return nil
}

// sealedParts returns what the seal of an admitted revision covers.
func sealedParts(gk schema.GroupKind, obj Object, a *meta.Admitted, reverted *meta.Reverted) []string {
	parts := []string{"admitted", gk.String(), obj.GetNamespace(), obj.GetName(), string(obj.GetUID()),
		strconv.FormatInt(a.Generation, 10), a.Revision}
	if a.Decided != "" {
		parts = append(parts, "decided "+a.Decided)
	}
	if a.Change == "" && a.ReadyAt == nil && a.Failure == nil && reverted == nil {
		return parts // as older versions sealed it
	}
	watched, err := json.Marshal([]any{a.Change, a.ReadyAt, a.Failure, reverted})
	if err != nil {
		return nil // cannot happen: the types have no other form
	}
	return append(parts, string(watched))
}

// endsWithAdmitted reports whether an outcome means that the object has the revision of the pass, or moves to it.
func (o Outcome) endsWithAdmitted() bool {
	return o.state == ready || o.state == progressing || o.unhealthy
}
