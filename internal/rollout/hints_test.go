package rollout

import (
	"testing"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

func TestHintFitsTheReference(t *testing.T) {
	err := ReferencePolicy{NoCrossNamespace: true}.Check("spec.sourceRef", "team", "other")
	if f := fault.As(err); f == nil || f.Hint != "Move the referenced object to namespace 'team', or ask the "+
		"administrator of Sluice to change --no-cross-namespace-refs or --watch-all-namespaces=false" {
		t.Errorf("got %v", err)
	}
	_, err = ignoreRules([]meta.IgnoreRule{{Paths: []string{"spec.replicas"}}}, "spec.ignore", false)
	if f := fault.As(err); f == nil || f.Hint != "Write it like /spec/replicas (RFC 6901)" {
		t.Errorf("got %v", err)
	}
}
