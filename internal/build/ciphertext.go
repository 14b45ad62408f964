package build

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/build/decrypt"
)

// checkCiphertext refuses an object whose content is encrypted with SOPS although the build has no keys: a Secret that
// is encrypted itself, and a Secret or ConfigMap whose values are encrypted, such as what generators make of encrypted
// files.
func (f *filesystem) checkCiphertext(o *unstructured.Unstructured) error {
	if f.secrets.active() || disabled(decryptAnnotation, o.GetLabels(), o.GetAnnotations()) {
		return nil
	}
	isConfigMap := o.GetAPIVersion() == "v1" && o.GetKind() == "ConfigMap"
	if !isSecret(o) && !isConfigMap {
		return nil
	}
	if isSecret(o) && o.Object["sops"] != nil {
		return refusal("%s is encrypted with SOPS", f.show(o)).WithHint("Set spec.decryption to provide the keys")
	}
	keys := encryptedKeys(o)
	if len(keys) == 0 {
		return nil
	}
	if n := len(keys); n > mostProblems {
		keys = append(keys[:mostProblems:mostProblems], "and more")
	}
	return refusal("%s has values that are encrypted with SOPS: %s", f.show(o), strings.Join(keys, ", ")).
		WithHint("Set spec.decryption to provide the keys. To apply them encrypted, set the annotation %s: disabled "+
			"of the object, or in the options of its generator", decryptAnnotation)
}

// encryptedKeys returns the keys of the values of a Secret or ConfigMap that are encrypted with SOPS.
func encryptedKeys(o *unstructured.Unstructured) (keys []string) {
	for _, field := range []string{"data", "stringData", "binaryData"} {
		values, _ := o.Object[field].(map[string]any) // the API server rejects other types
		for _, key := range slices.Sorted(maps.Keys(values)) {
			text, _ := values[key].(string)
			if field == "binaryData" || field == "data" && isSecret(o) {
				raw, err := base64.StdEncoding.DecodeString(text)
				if err != nil {
					continue // the API server rejects it
				}
				text = string(raw)
			}
			if decrypt.IsEncryptedValue(text) || decrypt.IsEncrypted(key, []byte(text)) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
