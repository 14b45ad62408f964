package spec

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestNamesThatAreNoLabelsAreRefusedOnce(t *testing.T) {
	for n, refused := range map[int]bool{1: false, 63: false, 64: true, 253: true} {
		obj := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a", n)}}
		_, err := Request(obj)
		if (err != nil) != refused || err != nil && (!fault.As(err).Terminal ||
			strings.Count(err.Error(), "63") != 1 || !strings.Contains(err.Error(), "the name of the Kustomization") ||
			!strings.HasSuffix(err.Error(), "Create it under a shorter name, and delete this one")) {
			t.Errorf("%d characters: %v", n, err)
		}
	}
}
