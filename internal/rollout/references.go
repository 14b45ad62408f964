package rollout

import (
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// ReferencePolicy decides which namespaces an object may refer to.
type ReferencePolicy struct {
	NoCrossNamespace bool // forbids references to other namespaces
}

// Check returns a terminal fault if the policy forbids a reference from an object in namespace from to an object in
// namespace to. field is the field with the reference.
func (p ReferencePolicy) Check(field, from, to string) error {
	if !p.NoCrossNamespace || from == to {
		return nil
	}
	return fault.New(meta.AccessDeniedReason,
		"%s refers to namespace '%s': cross-namespace references have been blocked", field, to).
		WithHint("Move the referenced object to namespace '%s', or ask the administrator of Sluice to change "+
			"--no-cross-namespace-refs or --watch-all-namespaces=false", from).Final()
}
