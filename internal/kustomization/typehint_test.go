package kustomization

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestRefusedTypesNameTheVariable adds to what an API server says about types which variable made the field a number.
func TestRefusedTypesNameTheVariable(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "web"}}}
	built := &build.Result{Objects: []*unstructured.Unstructured{o}, TypeHint: func(*unstructured.Unstructured) string {
		return "variable NUM is a number; write '${quote}${NUM}${quote}'"
	}}
	for text, hinted := range map[string]bool{
		"Deployment/web: .spec.replicas: expected string, got 1":                               true,
		"Deployment/web: json: cannot unmarshal number into Go struct field X of type string":  true,
		"Deployment/web: spec.replicas: Invalid value: must be of type string: \"integer\"":    true,
		"Deployment/web: spec.selector is immutable":                                           false,
		"Deployment/other: .spec.replicas: expected string, got 1, and nothing about this one": false,
	} {
		for what, err := range map[string]error{"an error": errors.New(text),
			"a fault": fault.New(meta.ReconciliationFailedReason, "refused").Because(errors.New(text)).WithHint("x"),
			"two errors": errors.Join(fault.New(meta.ReconciliationFailedReason, "refused").
				Because(errors.New(text)), errMarker)} {
			got := explainTypes(err, built)
			if strings.Contains(got.Error(), "${NUM}") != hinted || !strings.Contains(got.Error(), text) {
				t.Errorf("%s: %v", what, got)
			}
			if fault.Reason(got, "") != fault.Reason(err, "") ||
				errors.Is(got, errMarker) != errors.Is(err, errMarker) {
				t.Errorf("%s: the kind of error changed: %v, reason %q", what, got, fault.Reason(got, ""))
			}
		}
	}
}
