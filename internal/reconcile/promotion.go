package reconcile

// Promotes reports whether all gates allow a revision, without regard to their rules. It does not admit it.
func (p *Pass[T]) Promotes(revision string) bool {
	if p.admission == nil || revision == "" {
		return false
	}
	for _, g := range p.admission.gates {
		if !g.Allows(revision, p.admission.now) {
			return false
		}
	}
	return true
}

// Promoted returns the revisions that gates promote now, and whether a gate that may hold the object allows only such
// revisions. The ones that wait must then be kept, as the gate may allow them after the source has moved on.
func (p *Pass[T]) Promoted() (revisions []string, awaits bool) {
	if p.admission == nil {
		return nil, false
	}
	for _, g := range p.admission.gates {
		promoted, only := g.Promoted(p.admission.now)
		revisions, awaits = append(revisions, promoted...), awaits || only
	}
	return revisions, awaits
}

// RequireAnother makes another pass follow at once if this one ends Ready, as something else waits at the gates.
func (p *Pass[T]) RequireAnother() {
	if p.admission != nil {
		p.admission.again = true
	}
}
