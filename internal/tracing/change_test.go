package tracing_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
	"github.com/sluice-gitops/sluice/internal/tracing"
)

// A commit that is asked for as by a webhook, waits at a gate, is applied, rolled out and released from a chart is one
// trace, although the controllers restart in between. A Kustomization that it does not change is not part of it.
func TestChangeIsOneTrace(t *testing.T) {
	testenv.Cluster(t)
	s := newCollector(t)
	h := system.New(t, func(o *options.Options) {
		o.Traces = tracing.Options{Endpoint: s.URL, URL: "https://traces.example.com/{traceID}"}
	})
	h.Git.Init("fleet")
	h.Git.Commit("fleet", files("one"))
	h.GitRepository("fleet")
	h.Gate("release")
	h.TurnGate("release", gatingv1.Opened)
	h.Kustomization("app", "fleet", "app", system.WaitForHealth(system.NoTimeout),
		func(k *kustomizev1.Kustomization) { k.Spec.Gates = system.GateRefs("release") })
	h.Kustomization("other", "fleet", "other")
	h.Create(release(h.Namespace))
	first := h.Git.Run("fleet", "rev-parse", "main")
	h.Ready("app", first)
	h.Ready("other", first)
	releaseReady(h, first)

	h.TurnGate("release", gatingv1.Closed)
	second := h.Git.Commit("fleet", files("two"))
	h.RequestFetch("fleet")
	h.WaitsFor("app", second)
	releaseReady(h, second)
	h.Stop()
	h.Start()
	h.WaitsFor("app", second)
	h.TurnGate("release", gatingv1.Opened)
	h.Ready("app", second)
	h.Ready("other", second)
	source := h.GitRepositoryReady("fleet", second)
	id := tracing.ID(source.Status.Artifact.Metadata[meta.TraceKey])
	hasLink(h, id)
	h.Stop()

	seen := map[string]int{}
	s.mu.Lock()
	for _, span := range s.all {
		if hex.EncodeToString(span.TraceId) == id {
			seen[span.Name]++
		}
	}
	s.mu.Unlock()
	for _, name := range []string{"change", "request", "resolve", "fetch and verify", "store", "build",
		"apply and prune", "health", "upgrade", "GitRepository " + h.Namespace + "/fleet",
		"Kustomization " + h.Namespace + "/app: at gates", "Kustomization " + h.Namespace + "/app: rollout",
		"Kustomization " + h.Namespace + "/app", "HelmRelease " + h.Namespace + "/web"} {
		if seen[name] == 0 {
			t.Errorf("the trace has no span %q:\n%s", name, s)
		}
	}
	if seen["change"] != 2 { // of the repository, and of the chart
		t.Errorf("%d changes:\n%s", seen["change"], s)
	}
	if n := seen["Kustomization "+h.Namespace+"/other"]; n != 0 {
		t.Errorf("what the commit does not change has %d spans:\n%s", n, s)
	}
}

func files(text string) map[string]string {
	return map[string]string{
		"app/web.yaml":              system.WebDeployment("nginx:"+text, ""),
		"other/config.yaml":         system.ConfigMap("other", "same"),
		"chart/Chart.yaml":          "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"chart/templates/text.yaml": system.ConfigMap("text", text),
	}
}

func release(namespace string) *helmv2.HelmRelease {
	return &helmv2.HelmRelease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: helmv2.HelmReleaseSpec{Interval: meta.DurationOf(time.Hour),
			Chart: &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{Chart: "chart",
				ReconcileStrategy: sourcev1.ReconcileStrategyRevision,
				SourceRef:         &helmv2.SourceReference{Kind: sourcev1.GitRepositoryKind, Name: "fleet"}}}}}
}

// releaseReady waits until the release is Ready with the chart of a commit.
func releaseReady(h *system.System, commit string) {
	h.Helper()
	testenv.Eventually(h, "the release is Ready", func() error {
		r := &helmv2.HelmRelease{}
		if err := h.Get(r, "web"); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(r.Status.Conditions, reconcile.TypeReady)
		if !reconcile.IsReady(r) || !strings.Contains(c.Message, "1.0.0+"+commit[:12]) {
			return fmt.Errorf("%+v", r.Status.Conditions)
		}
		return nil
	})
}

// hasLink waits for an event of the source with a link to the trace.
func hasLink(h *system.System, id string) {
	h.Helper()
	testenv.Eventually(h, "an event names the trace "+id, func() error {
		var list eventsv1.EventList
		if err := h.Client.List(h.Context(), &list, client.InNamespace(h.Namespace)); err != nil {
			return err
		}
		var all []map[string]string
		for _, e := range list.Items {
			a := e.Annotations
			all = append(all, a)
			if a["source.toolkit.fluxcd.io/traceID"] == id &&
				a["source.toolkit.fluxcd.io/traceURL"] == "https://traces.example.com/"+id {
				return nil
			}
		}
		return fmt.Errorf("no event among %v", all)
	})
}
