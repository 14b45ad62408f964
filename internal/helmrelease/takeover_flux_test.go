package helmrelease_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	helmaction "helm.sh/helm/v4/pkg/action"
	helmkube "helm.sh/helm/v4/pkg/kube"
	helmrelease "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// digestOfText returns the digest of a text, as the status writes it.
func digestOfText(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

// documentedDigest returns the digest of a release by the documented rule. It shares no code with the controller.
func documentedDigest(t *testing.T, rel *helmrelease.Release) string {
	t.Helper()
	var hooks []*helmrelease.Hook
	for _, h := range rel.Hooks {
		if !strings.Contains(fmt.Sprint(h.Events), "test") {
			hooks = append(hooks, h)
		}
	}
	var fields []string
	for _, f := range []struct {
		key   string
		value any
	}{
		{key: "name", value: rel.Name}, {key: "version", value: rel.Version}, {key: "info", value: rel.Info},
		{key: "chartMetadata", value: rel.Chart.Metadata}, {key: "config", value: rel.Config},
		{key: "manifest", value: rel.Manifest}, {key: "hooks", value: hooks}, {key: "namespace", value: rel.Namespace},
	} {
		b, err := json.Marshal(f.value)
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, fmt.Sprintf("%q:%s", f.key, b))
	}
	return digestOfText("{" + strings.Join(fields, ",") + "}\n")
}

// fluxStatus returns the status that Flux writes for a release which it installed.
func (h *harness) fluxStatus(t *testing.T, rel *helmrelease.Release, configDigest string) map[string]any {
	now := metav1.Now().UTC().Format("2006-01-02T15:04:05Z")
	message := fmt.Sprintf("Helm install succeeded for release %s/%s.v1 with chart app@1.0.0", h.Namespace, rel.Name)
	condition := func(kind string) map[string]any {
		return map[string]any{"type": kind, "status": "True", "reason": helmv2.InstallSucceededReason,
			"message": message, "lastTransitionTime": now, "observedGeneration": 1}
	}
	return map[string]any{
		"conditions": []any{condition("Ready"), condition(helmv2.ReleasedCondition)},
		"helmChart":  h.Namespace + "/" + h.Namespace + "-" + rel.Name,
		"history": []any{map[string]any{
			"digest": documentedDigest(t, rel), "name": rel.Name, "namespace": rel.Namespace, "version": 1,
			"status": "deployed", "chartName": "app", "chartVersion": "1.0.0", "configDigest": configDigest,
			"firstDeployed": now, "lastDeployed": now, "action": "install",
		}},
		"inventory": map[string]any{"entries": []any{map[string]any{
			"id": h.Namespace + "_" + rel.Name + "-config__ConfigMap", "v": "v1"}}},
		"lastAttemptedConfigDigest": configDigest, "lastAttemptedGeneration": 1, "lastAttemptedRevision": "1.0.0",
		"lastAttemptedReleaseAction": "install", "observedGeneration": 1, "storageNamespace": h.Namespace,
	}
}

// TestReleasesOfFluxAreTakenOver installs releases as Flux does, by Helm's library with the labels of the HelmRelease,
// and writes the status as Flux does. Nothing is written to the release or its objects, until the values change; and
// the digest of the upgrade is the one that Flux computes, so that it takes the release back the same way.
func TestReleasesOfFluxAreTakenOver(t *testing.T) {
	h := newHarness(t)
	h.publish("1.0.0", map[string]string{"templates/test.yaml": testTemplate})
	testenv.Eventually(t, "the controllers have created their key", func() error {
		return h.Get(&corev1.Secret{}, "sluice-status-seal")
	})
	for name, serverSide := range map[string]bool{"client-side": false, "server-side": true} {
		t.Run(name, func(t *testing.T) {
			h := &harness{releases{h.For(t)}, h.repository}
			h.release(name, values(map[string]any{"color": "blue"}), func(s *helmv2.HelmReleaseSpec) {
				s.Suspend, s.DriftDetection = true, &meta.DriftDetection{Mode: meta.DriftEnabled}
			})
			rel := h.installAsFlux(t, name, serverSide)
			status := h.fluxStatus(t, rel, digestOfText("color: blue\n"))
			patch, err := json.Marshal(map[string]any{"status": status})
			if err != nil {
				t.Fatal(err)
			}
			r := &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: name}}
			if err := h.Client.Status().Patch(t.Context(), r, client.RawPatch("application/merge-patch+json",
				patch)); err != nil {
				t.Fatal(err)
			}
			before, log := h.configMap(name+"-config", "blue"), testenv.NewAuditLog(t)
			h.edit(name, func(s *helmv2.HelmReleaseSpec) { s.Suspend = false })
			r = h.ready(name, 1)
			h.Reconcile(&helmv2.HelmRelease{}, name)
			h.wroteNothing(t, log)
			after := h.configMap(name+"-config", "blue")
			if diff := cmp.Diff(before.ObjectMeta, after.ObjectMeta); diff != "" || h.statuses(name) != "1 deployed" {
				t.Errorf("the release was changed: %s; stored: %s", diff, h.statuses(name))
			}
			if got := r.Status.History[0].Digest; got != documentedDigest(t, rel) {
				t.Errorf("the digest became %s", got)
			}

			h.edit(name, values(map[string]any{"color": "green"}))
			last := h.ready(name, 2).Status.History[0]
			if want := documentedDigest(t, h.stored(name)[0]); last.Digest != want {
				t.Errorf("the digest of the upgrade is %s, want %s", last.Digest, want)
			}
			if want := digestOfText("color: green\n"); last.ConfigDigest != want {
				t.Errorf("the digest of the values is %s, want %s", last.ConfigDigest, want)
			}
		})
	}
}

// fluxLabels adds labels to the manifests of the chart app, as the post-renderer of Flux does.
type fluxLabels []string

// Run implements Helm's interface.
func (l fluxLabels) Run(in *bytes.Buffer) (*bytes.Buffer, error) {
	added := "labels: {" + strings.Join(l, ", ") + "}"
	text := regexp.MustCompile(`(?m)^metadata: \{`).ReplaceAllString(in.String(), "metadata: {"+added+", ")
	text = regexp.MustCompile(`(?m)^metadata:$`).ReplaceAllString(text, "metadata:\n  "+added)
	return bytes.NewBufferString(text), nil
}

// installAsFlux installs a release by Helm's library, with the labels that name its HelmRelease.
func (h *harness) installAsFlux(t *testing.T, name string, serverSide bool) *helmrelease.Release {
	t.Helper()
	i := helmaction.NewInstall(h.helm())
	i.ReleaseName, i.Namespace, i.ServerSideApply, i.WaitStrategy = name, h.Namespace, serverSide,
		helmkube.HookOnlyStrategy
	i.PostRenderer = fluxLabels{"helm.toolkit.fluxcd.io/name: " + name,
		"helm.toolkit.fluxcd.io/namespace: " + h.Namespace}
	chart := h.loadChart("1.0.0", map[string]string{"templates/test.yaml": testTemplate})
	if _, err := i.Run(chart, map[string]any{"color": "blue"}); err != nil {
		t.Fatal(err)
	}
	return h.stored(name)[0]
}

// wroteNothing checks that the objects and the storage of releases in the namespace were not written.
func (h *harness) wroteNothing(t *testing.T, log *testenv.AuditLog) {
	t.Helper()
	for _, resource := range []string{"configmaps", "secrets", "pods"} {
		for _, q := range log.Requests(t, testenv.Request{Namespace: h.Namespace, Resource: resource}) {
			switch q.Verb {
			case "get", "list", "watch":
			default:
				if !strings.Contains(q.URI, "dryRun=All") {
					t.Errorf("a request wrote: %+v", q)
				}
			}
		}
	}
}
