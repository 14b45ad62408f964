package reconcile

// AwaitsPromotion reports whether a gate that may hold the object allows only revisions that other objects have been
// Ready at. The revisions that wait must then be kept, as the gate may allow them after the source has moved on.
func (p *Pass[T]) AwaitsPromotion() bool {
	if p.admission == nil {
		return false
	}
	for _, g := range p.admission.gates {
		if _, only := g.Promoted(p.admission.now); only {
			return true
		}
	}
	return false
}

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

// Promoted returns the revisions that gates promote now.
func (p *Pass[T]) Promoted() []string {
	var all []string
	if p.admission != nil {
		for _, g := range p.admission.gates {
			promoted, _ := g.Promoted(p.admission.now)
			all = append(all, promoted...)
		}
	}
	return all
}

// RequireAnother makes another pass follow at once if this one ends Ready, as something else waits at the gates.
func (p *Pass[T]) RequireAnother() {
	if p.admission != nil {
		p.admission.again = true
	}
}
