package cli

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// leakingChart prints values of Secrets in many forms.
const leakingChart = `apiVersion: v1
kind: ConfigMap
metadata: {name: leak}
data:
  plain: {{ .Values.password | quote }}
  encoded: {{ .Values.password | b64enc | quote }}
  part: {{ trunc 9 .Values.password | quote }}
  turned: {{ .Values.password | upper | quote }}
  sum: {{ .Values.password | sha256sum | quote }}
  {{ .Values.password }}: key
  found: {{ (lookup "v1" "Secret" .Release.Namespace "vars").data | toJson | quote }}
  first: {{ if hasPrefix "h" .Values.password }}guessed{{ else }}other{{ end }}
`

// TestPreviewShowsNoSecretToItsAuthor previews a branch that prints values of Secrets of the cluster, transformed in
// many ways, as text, as a comment, as JSON and as findings.
func TestPreviewShowsNoSecretToItsAuthor(t *testing.T) {
	c, namespace := withDefinitions(t)
	const secret = "hunter2-Zq7Kw9Xy4Tz1"
	object := metav1.ObjectMeta{Namespace: namespace}
	vars := &corev1.Secret{ObjectMeta: withName(object, "vars"), Data: map[string][]byte{"PASSWORD": []byte(secret)}}
	chartValues := &corev1.Secret{ObjectMeta: withName(object, "values"), Data: map[string][]byte{
		"values.yaml": []byte("password: " + secret + "\n")}}
	live := &corev1.ConfigMap{ObjectMeta: withName(object, "app"), Data: map[string]string{"key": secret[:14],
		"kept": secret, "encoded": base64.StdEncoding.EncodeToString([]byte(secret))}}
	ks := &kustomizev1.Kustomization{ObjectMeta: withName(object, "web")}
	ks.Spec.Path, ks.Spec.Prune, ks.Spec.TargetNamespace = "./web", true, namespace
	ks.Spec.SourceRef = kustomizev1.SourceReference{Kind: "GitRepository"}
	ks.Spec.SourceRef.Name = "fleet"
	ks.Spec.Interval.Duration = 3600e9
	ks.Spec.PostBuild = &kustomizev1.PostBuild{
		SubstituteFrom: []meta.SubstituteReference{{Kind: "Secret", Name: "vars"}}}
	hr := &helmv2.HelmRelease{ObjectMeta: withName(object, "r")}
	hr.Spec.Interval.Duration = 3600e9
	hr.Spec.Chart = &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{Chart: "chart",
		SourceRef: &helmv2.SourceReference{Kind: "GitRepository", Name: "fleet"}}}
	hr.Spec.ValuesFrom = []meta.ValuesReference{{Kind: "Secret", Name: "values"}}
	source := &sourcev1.GitRepository{ObjectMeta: withName(object, "fleet")}
	source.Spec.URL, source.Spec.Interval.Duration = "https://example.com/fleet", 3600e9
	for _, o := range []client.Object{vars, chartValues, live, ks, hr, source} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	from := write(t, map[string]string{"web/app.yaml": configMap + "${PASSWORD:0:14}\n  kept: ${PASSWORD}\n",
		"chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: 1.0.0\n", "chart/templates/a.yaml": "# none\n"})
	to := write(t, map[string]string{
		"web/app.yaml": configMap + "${PASSWORD:0:14}x\n  kept: ${PASSWORD}\n  new: ${PASSWORD//-/_}\n  half: " +
			"${PASSWORD:8}\n",
		"chart/Chart.yaml":       "apiVersion: v2\nname: chart\nversion: 1.0.1\n",
		"chart/templates/a.yaml": leakingChart})
	sum := sha256.Sum256([]byte(secret))
	parts := []string{secret, strings.ToUpper(secret), strings.ReplaceAll(secret, "-", "_"),
		base64.StdEncoding.EncodeToString([]byte(secret)), hex.EncodeToString(sum[:]),
		base64.StdEncoding.EncodeToString([]byte("password: " + secret)), "guessed"}
	for _, format := range []string{"", "markdown", "json", "sarif"} {
		args := []string{"preview", "--from-dir", from, "--to-dir", to, "-n", namespace,
			"--source", "GitRepository/" + namespace + "/fleet"}
		if format != "" {
			args = append(args, "-o", format)
		}
		r := at(t, args...)
		text := r.out + r.err
		if !strings.Contains(text, "app") || format == "" && !strings.Contains(text, "leak") || r.code == exitUsage {
			t.Errorf("%s: code %d:\n%s", format, r.code, text)
		}
		for _, part := range parts {
			for n := 0; n+6 <= len(part); n++ {
				if strings.Contains(text, part[n:n+6]) {
					t.Fatalf("%s: %q of %q is in\n%s", format, part[n:n+6], part, text)
				}
			}
		}
	}
}
