package helmrelease_test

import (
	"strings"
	"testing"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
)

// TestFailuresSayWhatToDo has charts that the API server refuses. The message says what to change.
func TestFailuresSayWhatToDo(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	twice := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: {{ .Release.Name }}}\nspec:\n  replicas: 0\n" +
		"  selector: {matchLabels: {app: x}}\n  template:\n    metadata: {labels: {app: x}}\n    spec:\n" +
		"      containers: [{name: a, image: x, env: [{name: A, value: \"1\"}, {name: A, value: \"2\"}]}]\n"
	large := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-{{ $.Values.n }}}\n" +
		"data: {k: {{ randBytes 520000 | quote }}}\n"
	for name, c := range map[string]struct{ version, template, says string }{
		"env": {version: "1.0.0", template: twice, says: "server-side apply needs different names. " +
			"With serverSideApply off"},
		"large": {version: "1.0.1", template: large + "---\n" + large + "---\n" + large,
			says: "at most 1 MiB: leave out"},
	} {
		t.Run(name, func(t *testing.T) {
			h := h.in(t)
			h.publish(c.version, map[string]string{"templates/x.yaml": strings.ReplaceAll(c.template, "$.Values.n",
				"randNumeric 9")})
			h.release(name, version(c.version))
			h.NotReady(&helmv2.HelmRelease{}, name, helmv2.InstallFailedReason, c.says)
		})
	}
}

// TestAValueThatSetsOthersIsWarnedOf has a value for a target path in which a part is read as another value.
func TestAValueThatSetsOthersIsWarnedOf(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	h.System.Secret("ldap", map[string]string{"base": "dc=example,dc=org"})
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.ValuesFrom = []meta.ValuesReference{{Kind: "Secret", Name: "ldap", ValuesKey: "base", TargetPath: "color"}}
	})
	h.ready("app", 1)
	h.configMap("app-config", "dc=example")
	h.HasEvent("app", meta.AppliedWithWarningsReason, "targetPath 'color' sets other values too", "Set literal: true")
	h.edit("app", func(s *helmv2.HelmReleaseSpec) { s.ValuesFrom[0].Literal = true })
	h.configMap("app-config", "dc=example,dc=org")
}
