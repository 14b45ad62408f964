package spec

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// secrets is a reader to which each Secret has the same data.
type secrets struct {
	client.Reader
	data map[string][]byte
}

func (s secrets) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.(*corev1.Secret).Data = s.data
	return nil
}

// A Kustomization can refer to a Secret of 1 MiB thousands of times, which took gigabytes.
func TestVariablesOfAllReferencesAreBounded(t *testing.T) {
	reader := secrets{data: map[string][]byte{"a": []byte(strings.Repeat("x", 1<<20))}}
	for references, refused := range map[int]bool{3: false, 5000: true} {
		obj := &kustomizev1.Kustomization{}
		obj.Spec.PostBuild = &kustomizev1.PostBuild{}
		for range references {
			obj.Spec.PostBuild.SubstituteFrom = append(obj.Spec.PostBuild.SubstituteFrom,
				meta.SubstituteReference{Kind: "Secret", Name: "large"})
		}
		v, err := ReadVariables(t.Context(), reader, obj)
		if f := fault.As(err); refused && (f == nil || !f.Terminal ||
			f.Hint != "Remove references, or put the variables into smaller objects") {
			t.Errorf("%d references: %v", references, err)
		}
		if !refused && (err != nil || len(v.Values["a"]) != 1<<20) {
			t.Errorf("%d references: %v", references, err)
		}
	}
}
