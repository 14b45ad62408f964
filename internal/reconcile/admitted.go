package reconcile

import (
	"strconv"

	"github.com/sluice-gitops/sluice/api/meta"
)

// admittedOf returns the revision that gates let through for an object, or nil if its status holds none that a
// controller has written. Gates do not hold what they let through before, so this must not rest on fields that
// accounts other than the controllers' may be able to write.
func (l *loop[T]) admittedOf(obj T) *meta.Admitted {
	gated, ok := Object(obj).(Gated)
	if !ok {
		return nil
	}
	a := gated.Held().Admitted
	if a == nil || !l.Seals.Verify(a.Seal, l.sealedParts(obj, a)...) {
		return nil
	}
	return a.DeepCopy()
}

// sealAdmitted records in the status that the gates let a revision through.
func (l *loop[T]) sealAdmitted(obj T, revision string) {
	gated, ok := Object(obj).(Gated)
	if !ok || revision == "" || l.Seals == nil {
		return
	}
	a := &meta.Admitted{Revision: revision, Generation: obj.GetGeneration()}
	a.Seal = l.Seals.Seal(l.sealedParts(obj, a)...)
	gated.Held().Admitted = a
}

// dropUnsealed removes an admitted revision that no controller has written.
func dropUnsealed(obj Object, admitted *meta.Admitted) {
	if gated, ok := obj.(Gated); ok && admitted == nil {
		gated.Held().Admitted = nil
	}
}

func (l *loop[T]) sealedParts(obj T, a *meta.Admitted) []string {
	return []string{"admitted", l.GroupKind.String(), obj.GetNamespace(), obj.GetName(), string(obj.GetUID()),
		strconv.FormatInt(a.Generation, 10), a.Revision}
}

// endsWithAdmitted reports whether an outcome means that the object has the revision of the pass, or moves to it.
func (o Outcome) endsWithAdmitted() bool { return o.state == ready || o.state == progressing }
