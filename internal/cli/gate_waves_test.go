package cli

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// TestGateWaves checks what commands say about a gate whose canary soaks, while the other wave waits.
func TestGateWaves(t *testing.T) {
	const revision = "main@sha1:b3c0de1f4f17a0b1c2d3e4f5061728394a5b6c7d"
	c, namespace := withDefinitions(t)
	create := func(o client.Object) {
		t.Helper()
		status := o.DeepCopyObject().(client.Object)
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if err := c.Status().Patch(t.Context(), o, statusOf(t, status)); err != nil {
			t.Fatal(err)
		}
	}
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fleet"}}
	g.Spec.Default = gatingv1.Opened
	g.Spec.Waves = []gatingv1.Wave{{Name: "canary", Soak: &meta.Duration{Duration: time.Hour},
		Selector: metav1.LabelSelector{MatchLabels: map[string]string{"stage": "canary"}}}}
	until := meta.TimeOf(time.Date(2126, 11, 21, 12, 0, 0, 0, time.UTC))
	g.Status.Waves = []gatingv1.WaveProgress{{Kind: "Kustomization", Source: "GitRepository/" + namespace + "/app",
		Revision: revision, Wave: "canary", Until: &until,
		Message: "wave 'canary': 1 of 1 have revision '" + revision + "' and are Ready, soaks\n\x1b[2J"}}
	create(g)
	for name, stage := range map[string]string{"one": "canary", "two": "rest"} {
		k := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{"stage": stage}}}
		k.Spec.Interval.Duration, k.Spec.Prune, k.Spec.TargetNamespace = time.Minute, true, namespace
		k.Spec.SourceRef.Kind, k.Spec.SourceRef.Name = "GitRepository", "app"
		k.Spec.Gates = []meta.GateReference{{Name: "fleet"}}
		k.Status.Gates = []string{namespace + "/fleet"}
		k.Status.Pending = &meta.Pending{Revision: revision, Configured: 1}
		if name == "one" {
			k.Status.Pending = nil
			k.Status.Admitted = &meta.Admitted{Revision: revision, Generation: 1}
		}
		create(k)
	}
	status := at(t, "gate", "status", "fleet", "-n", namespace).wants(t, exitOK).out
	if want := "Waves: Kustomization of GitRepository/" + namespace + "/app: wave 'canary': 1 of 1 have"; !strings.
		Contains(status, want) {
		t.Errorf("the status lacks %q:\n%s", want, status)
	}
	for _, test := range []struct{ when, want string }{
		{when: "2126-11-21T11:00:00Z", want: "held"},
		{when: "2126-11-21T12:00:01Z", want: "passes"},
	} {
		out := at(t, "simulate", "gates", "-n", namespace, "--at", test.when).wants(t, exitOK).out
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			if fields[0] == "Kustomization/"+namespace+"/two" && (fields[1] != test.want ||
				test.want == "held" && !strings.Contains(line, "when the soak of wave 'canary' ends")) {
				t.Errorf("at %s: %s", test.when, line)
			}
		}
		if !strings.Contains(out, "/two") {
			t.Errorf("at %s: the simulation lacks the second wave:\n%s", test.when, out)
		}
	}
	testWavesOfChange(t, c, g)
}

// testWavesOfChange checks what a gate with rules and waves would decide about a change of a repository.
func testWavesOfChange(t *testing.T, c client.Client, g *gatingv1.Gate) {
	t.Helper()
	namespace := g.Namespace
	ruled := ptr.To(*g)
	ruled.ResourceVersion, ruled.Name = "", "ruled"
	ruled.Spec.Rules = []gatingv1.Rule{{Name: "all", Expression: "true", Outcome: gatingv1.OutcomePass}}
	if err := c.Create(t.Context(), ruled); err != nil {
		t.Fatal(err)
	}
	k := &kustomizev1.Kustomization{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "two"}, k); err != nil {
		t.Fatal(err)
	}
	k.Spec.Gates = []meta.GateReference{{Name: "ruled"}}
	if err := c.Update(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	from := write(t, map[string]string{"cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"})
	to := write(t, map[string]string{"cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"})
	r := at(t, "simulate", "gates", "--change", "--from-dir", from, "--to-dir", to, "--source",
		"GitRepository/"+namespace+"/app").wants(t, 1, "would hold the change at 1 of 2 objects")
	if !strings.Contains(r.out, namespace+"/ruled   waits for its wave") {
		t.Errorf("the second wave does not wait:\n%s", r.out)
	}
}
