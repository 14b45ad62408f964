package helmrelease_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// forms is the template of a ConfigMap with a value of a Secret in many forms. A different suffix makes a change.
const forms = `apiVersion: v1
kind: ConfigMap
metadata:
  name: forms
  labels: {part: {{ trunc 9 .Values.password | quote }}}
  annotations: {sum: {{ .Values.password | sha256sum | quote }}}
data:
  open: shown-SUFFIX
  plain: {{ printf "%s SUFFIX" .Values.password | quote }}
  encoded: {{ printf "SUFFIX%s" .Values.password | b64enc | quote }}
  twice: {{ printf "SUFFIX%s" .Values.password | b64enc | b64enc | quote }}
  upper: {{ printf "%s SUFFIX" .Values.password | upper | quote }}
  replaced: {{ printf "%s SUFFIX" .Values.password | replace "-" "_" | quote }}
  reversed: {{ printf "%s SUFFIX" (join "" (splitList "" .Values.password | reverse)) | quote }}
  spread: {{ printf "%s SUFFIX" (join "." (splitList "" .Values.password)) | quote }}
  found: {{ printf "%s SUFFIX" (lookup "v1" "Secret" .Release.Namespace "credentials").data | quote }}
  asked: {{ if hasPrefix "hun" .Values.password }}guessed-SUFFIX{{ else }}other{{ end }}
  {{ .Values.password }}: key-SUFFIX
---
apiVersion: v1
kind: ConfigMap
metadata: {name: hooked-SUFFIX, annotations: {helm.sh/hook: "pre-upgrade"}}
data: {k: {{ .Values.password | b64enc | quote }}}
`

// TestNoFormOfASecretIsShown has a chart that makes a value of a Secret into other texts. None is in an event, in a
// status, in the difference of a change that waits, or in the drift, as of the first release to the last.
func TestNoFormOfASecretIsShown(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	const secret = "hunter2-Zq7Kw9Xy4Tz1"
	h.System.Secret("credentials", map[string]string{"password": secret})
	h.Gate("release")
	h.TurnGate("release", gatingv1.Opened)
	template := func(suffix string) map[string]string {
		return map[string]string{"templates/forms.yaml": strings.ReplaceAll(forms, "SUFFIX", suffix)}
	}
	h.publish("1.0.0", template("one"))
	h.release("app", detecting(meta.DriftWarn), func(s *helmv2.HelmReleaseSpec) {
		s.Gates = system.GateRefs("release")
		s.ValuesFrom = []meta.ValuesReference{{Kind: "Secret", Name: "credentials", ValuesKey: "password",
			TargetPath: "password"}}
	})
	h.ready("app", 1)

	t.Log("drift")
	h.Patch(&corev1.ConfigMap{}, "forms", `{"data":{"plain":"x","encoded":null,"open":"changed"}}`)
	h.hasCondition("app", meta.DriftedCondition, "True", meta.DriftDetectedReason, "forms differs")

	t.Log("a change that waits")
	h.TurnGate("release", gatingv1.Closed)
	h.publish("1.1.0", template("two"))
	h.waitsFor("1.1.0")
	shown := h.published()
	if !strings.Contains(strings.Join(shown, ""), "/forms") {
		t.Errorf("the change is not in\n%s", shown)
	}

	t.Log("a change that is applied, a change of the Secret, and one that fails")
	h.TurnGate("release", gatingv1.Opened)
	h.ready("app", 2)
	const changed = "hunter3-Qa8Rb5Vc2Wd6"
	h.Patch(&corev1.Secret{}, "credentials", `{"stringData":{"password":"`+changed+`"}}`)
	h.RequestReconcile(&helmv2.HelmRelease{}, "app")
	h.ready("app", 3)
	h.publish("1.2.0", map[string]string{
		"templates/x.yaml": "{{ fail (printf \"no %s\" (.Values.password | b64enc)) }}"})
	h.NotReady(&helmv2.HelmRelease{}, "app", helmv2.UpgradeFailedReason, "")
	for _, text := range slices.Concat(shown, h.published()) {
		for _, s := range []string{secret, changed} {
			if leaked := leak(text, s); leaked != "" {
				t.Errorf("%q of a form of %q is in\n%s", leaked, s, text)
			}
		}
	}
}

// published returns what the controllers wrote for people: statuses of all objects and events.
func (h *harness) published() (texts []string) {
	h.Helper()
	events := &corev1.EventList{}
	releases, gates := &helmv2.HelmReleaseList{}, &gatingv1.GateList{}
	for _, list := range []client.ObjectList{events, releases, gates} {
		if err := h.Client.List(h.Context(), list, client.InNamespace(h.Namespace)); err != nil {
			h.Fatal(err)
		}
	}
	for n := range releases.Items {
		releases.Items[n].ManagedFields = nil
	}
	for _, v := range []any{events.Items, releases.Items, gates.Items} {
		text, err := json.Marshal(v)
		if err != nil {
			h.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	if len(events.Items) == 0 {
		h.Error("no event was recorded")
	}
	return texts
}

// leak returns the part of a form of a secret that a text has; empty if it has none.
func leak(text, secret string) string {
	sum := sha256.Sum256([]byte(secret))
	characters := strings.Split(secret, "")
	slices.Reverse(characters)
	encode := base64.StdEncoding.EncodeToString
	forms := []string{secret, strings.ToUpper(secret), strings.ReplaceAll(secret, "-", "_"), hex.EncodeToString(sum[:]),
		strings.Join(characters, ""), strings.Join(strings.Split(secret, ""), "."), "guessed"}
	for _, before := range []string{"", "one", "two"} {
		forms = append(forms, encode([]byte(before+secret)), encode([]byte(encode([]byte(before+secret)))))
	}
	const shortest = 6
	for _, form := range forms {
		for n := 0; n+shortest <= len(form); n++ {
			if part := form[n : n+shortest]; strings.Contains(text, part) {
				return fmt.Sprint(part, " of ", form)
			}
		}
	}
	return ""
}
