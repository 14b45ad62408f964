package localbuild

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/build/decrypt"
)

// TestMasksSatisfyTheTypeOfASecret checks that a Secret whose values are masked is one that the API server accepts.
func TestMasksSatisfyTheTypeOfASecret(t *testing.T) {
	masked := base64.StdEncoding.EncodeToString([]byte(decrypt.Redacted))
	for kind, key := range map[string]string{"kubernetes.io/dockerconfigjson": ".dockerconfigjson",
		"kubernetes.io/dockercfg": ".dockercfg", "Opaque": "password"} {
		for field, value := range map[string]string{"data": masked, "stringData": decrypt.Redacted} {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": kind,
				field: map[string]any{key: value}}}
			satisfyType(o)
			text := fmt.Sprint(o.Object[field].(map[string]any)[key])
			if field == "data" {
				plain, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					t.Errorf("%s: %v", kind, err)
				}
				text = string(plain)
			}
			var config map[string]any
			if valid := json.Unmarshal([]byte(text), &config) == nil; valid != (kind != "Opaque") {
				t.Errorf("%s in %s: %q", kind, field, text)
			}
		}
	}
	broken := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
		"data": map[string]any{"pin": "12345"}}}
	if satisfyType(broken); broken.Object["data"].(map[string]any)["pin"] == "12345" {
		t.Error("data that is not base64 was kept")
	}
}
