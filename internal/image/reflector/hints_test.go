package reflector

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestHintsOfPolicies(t *testing.T) {
	p := &Policies{}
	_, interval := p.digest(t.Context(), &imagev1.ImagePolicy{Spec: imagev1.ImagePolicySpec{
		DigestReflectionPolicy: imagev1.ReflectAlways}}, &imagev1.ImageRepository{}, imagev1.ImageRef{})
	access := p.checkAccess(t.Context(), "other", &imagev1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: "app"}})
	for want, err := range map[string]error{
		"Set it: spec.digestReflectionPolicy 'Always' requires it":       interval,
		"Select the namespace in spec.accessFrom of the ImageRepository": access,
		"Check the free space and the permissions of --storage-path": storeFault(errors.New("no space left on " +
			"device")),
	} {
		if f := fault.As(err); f == nil || f.Hint != want {
			t.Errorf("got %v, want the hint %q", err, want)
		}
	}
}
