package build

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// TestCiphertextIsNotApplied builds files that SOPS encrypted without keys, in all formats and by all ways into an
// object.
func TestCiphertextIsNotApplied(t *testing.T) {
	s, _ := vault(t)
	for format, plain := range map[string]string{"yaml": "a: hunter2\n", "json": `{"a": "hunter2"}`,
		"dotenv": "A=hunter2\nB=two\n", "ini": "[db]\na = hunter2\n", "binary": "hunter2"} {
		encrypted := s.Encrypt(format, plain)
		ways := map[string]map[string]string{
			"secretGenerator files":    {"kustomization.yaml": "secretGenerator: [{name: g, files: [f.enc]}]\n"},
			"configMapGenerator files": {"kustomization.yaml": "configMapGenerator: [{name: g, files: [k=f.enc]}]\n"},
			"builtin SecretGenerator": {"kustomization.yaml": "generators: [g.yaml]\n",
				"g.yaml": "apiVersion: builtin\nkind: SecretGenerator\nmetadata: {name: g}\nfiles: [f.enc]\n"},
			"data of a Secret": {"a.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: g}\ndata: {f: " +
				base64.StdEncoding.EncodeToString([]byte(encrypted)) + "}\n"},
		}
		if format == "dotenv" {
			ways["secretGenerator envs"] = map[string]string{
				"kustomization.yaml": "secretGenerator: [{name: g, envs: [f.enc]}]\n"}
			ways["configMapGenerator envs of a base"] = map[string]string{"kustomization.yaml": "resources: [b]\n",
				"b/kustomization.yaml": "configMapGenerator: [{name: g, envs: [../f.enc]}]\n"}
		}
		for way, files := range ways {
			files["f.enc"] = encrypted
			_, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)})
			if err == nil || !strings.Contains(err.Error(), "encrypted with SOPS") ||
				!strings.Contains(err.Error(), "Set spec.decryption to provide the keys. To apply them encrypted, "+
					"set the annotation") {
				t.Errorf("%s, %s: %v", format, way, err)
			}
			if name := "kustomization.yaml"; strings.Contains(way, "Generator files") {
				files[name] = strings.Replace(files[name], "name: g,",
					"name: g, options: {annotations: {"+decryptAnnotation+": disabled}},", 1)
				if _, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)}); err != nil {
					t.Errorf("%s, %s, marked to stay encrypted: %v", format, way, err)
				}
			}
		}
	}
}

func TestTextAboutCiphertextIsApplied(t *testing.T) {
	for _, value := range []string{"see sops", "ENC[AES256_GCM, is the prefix of sops", "sops: {mac: x}", "[sops]"} {
		files := map[string]string{"kustomization.yaml": "configMapGenerator: [{name: g, files: [f]}]\n", "f": value}
		if _, err := Build(t.Context(), Request{Tree: artifact.FromMap(files)}); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}
