package rollout

import "sigs.k8s.io/controller-runtime/pkg/client"

// SpecCheck is the result of the check of a spec. It is kept between passes.
type SpecCheck struct {
	generation int64
	err        error
}

// Of returns the result for an object, and calls check if its spec changed.
func (s *SpecCheck) Of(obj client.Object, check func() error) error {
	if generation := obj.GetGeneration(); s.generation != generation || generation == 0 {
		*s = SpecCheck{generation, check()}
	}
	return s.err
}
