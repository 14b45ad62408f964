package localbuild

import (
	"encoding/base64"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/build/decrypt"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
)

// TestGeneratedSecretsKeepTheirNames is about a Secret whose name has the hash of values that cannot be decrypted here.
func TestGeneratedSecretsKeepTheirNames(t *testing.T) {
	const built, applied = "token-aaaaaaaaaa", "token-bbbbbbbbbb"
	entry := func(name string) apply.Entry {
		return apply.Ref{Kind: "Secret", Version: "v1", Namespace: "apps", Name: name}.Entry()
	}
	masked := base64.StdEncoding.EncodeToString([]byte(decrypt.Redacted))
	for name, tc := range map[string]struct {
		value     string
		inventory apply.Inventory
		want      string
	}{
		"as it was applied": {value: masked, inventory: apply.Inventory{entry("a"), entry(applied)}, want: applied},
		"not encrypted":     {value: "MQ==", inventory: apply.Inventory{entry(applied)}, want: built},
		"never applied":     {value: masked, inventory: apply.Inventory{entry("other-bbbbbbbbbb")}, want: built},
		"the same hash":     {value: masked, inventory: apply.Inventory{entry(applied), entry(built)}, want: built},
		"several may be meant": {value: masked,
			inventory: apply.Inventory{entry(applied), entry("token-cccccccccc")}, want: built},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
				"metadata": map[string]any{"name": built, "namespace": "apps"}, "data": map[string]any{"k": tc.value}}}
			pod := &unstructured.Unstructured{Object: map[string]any{"kind": "Pod", "spec": map[string]any{
				"volumes": []any{map[string]any{"secret": map[string]any{"secretName": built}}}}}}
			adoptHashes([]*unstructured.Unstructured{secret, pod}, tc.inventory)
			volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
			used, _, _ := unstructured.NestedString(volumes[0].(map[string]any), "secret", "secretName")
			if secret.GetName() != tc.want || used != tc.want {
				t.Errorf("the Secret is '%s' and the Pod uses '%s', want '%s'", secret.GetName(), used, tc.want)
			}
		})
	}
}
