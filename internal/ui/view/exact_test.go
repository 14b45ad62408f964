package view

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// TestAnExactNameWinsOverACommitMessage asks for objects by name, where the commit of another mentions that name.
func TestAnExactNameWinsOverACommitMessage(t *testing.T) {
	d := newDelivery()
	d.source.Status.Artifact.Metadata[meta.CommitSubjectKey] = "Let web wait for door and hook"
	web := &Item{ID: "Kustomization/team/web", Kind: "Kustomization", Namespace: "team", Name: "web", State: Failed,
		Reason: meta.ReconciliationFailedReason, Message: "refused"}
	other := &Item{ID: "Kustomization/other/web", Kind: "Kustomization", Namespace: "other", Name: "web", State: Ready}
	items := append(d.items(), web, other)
	for query, want := range map[string]string{
		"web":               "Kustomization/team/web Kustomization/other/web", // what is not live comes first
		"other/web":         "Kustomization/other/web",
		"ks/team/WEB":       "Kustomization/team/web",
		"kustomization/web": "Kustomization/team/web Kustomization/other/web",
		"hook":              "Receiver/team/hook",
		"repo":              "GitRepository/team/repo Kustomization/team/app",
		"wait":              "Kustomization/team/app", // by the commit message
		"hr/web":            "",
	} {
		var got []string
		for _, c := range Why(items, query).Chains {
			got = append(got, c.Target.ID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q is about %v, want %s", query, got, want)
		}
	}
}

func TestWhyBeginsWithTheStepThatBlocks(t *testing.T) {
	d := newDelivery()
	if _, c := d.ask(t, "app"); c.Blocking != nil {
		t.Errorf("a change that is live is blocked by %+v", c.Blocking)
	}
	d.app.Status.Conditions = []metav1.Condition{{Type: reconcile.TypeReady, Status: metav1.ConditionFalse,
		Reason: meta.BuildFailedReason, Message: "deploy.yaml: yaml: line 3: mapping values are not allowed"}}
	_, c := d.ask(t, "app")
	if b := c.Blocking; b == nil || b.Name != "build" || !strings.Contains(b.Do, "correct the file") {
		t.Errorf("bad YAML is blocked by %+v", b)
	}
}

// TestWhyShowsTheRevisionInProgress waits for the health of a revision that is applied after another.
func TestWhyShowsTheRevisionInProgress(t *testing.T) {
	d := newDelivery()
	d.app.Status.LastAppliedRevision = "main@sha1:" + strings.Repeat("b", 40)
	message := "Running health checks for revision main: Deployment/team/web: ReplicaFailure: exceeded quota: small"
	d.app.Status.Conditions = []metav1.Condition{
		{Type: reconcile.TypeReady, Status: metav1.ConditionUnknown, Reason: "Progressing", Message: message},
		{Type: meta.HealthyCondition, Status: metav1.ConditionUnknown, Reason: "Progressing", Message: message},
	}
	for _, query := range []string{"app", commit} {
		steps, c := d.ask(t, query)
		b := c.Blocking
		if b == nil || b.Name != HealthStep || b.Text != message || !strings.Contains(b.Do, "raise the ResourceQuota") {
			t.Fatalf("%s: %s is blocked by %+v", query, steps, b)
		}
		for _, s := range c.Steps {
			if s.Name == "apply" && s.Text != "applied main@sha1:"+commit {
				t.Errorf("%s: the apply says %q", query, s.Text)
			}
		}
	}
}

func TestWhyNamesWhatHoldsADeletion(t *testing.T) {
	d := newDelivery()
	now := metav1.Time{Time: at(100)}
	d.app.DeletionTimestamp, d.app.Finalizers = &now, []string{"finalizers.fluxcd.io", "example.com/backup"}
	steps, c := d.ask(t, "app")
	if steps != "deletion blocked" || !c.Blocking.From.Equal(at(100)) ||
		!strings.Contains(c.Blocking.Text, "example.com/backup") ||
		!strings.Contains(c.Blocking.Do, "kubectl -n team edit kustomization app") {
		t.Errorf("%s: %+v", steps, c.Blocking)
	}
}

// TestAdvice has messages of API servers, kubelets and git hosts.
func TestAdvice(t *testing.T) {
	for message, want := range map[string]string{
		"FailedCreate: pods \"a\" is forbidden: exceeded quota: q, requested: pods=1": "kubectl -n team describe quota",
		"pod a: container c: ImagePullBackOff: Back-off pulling image":                "correct the image in git",
		"pod a: Unschedulable: 0/3 nodes are available: 3 Insufficient cpu":           "add a node",
		"pod a: container c: CreateContainerConfigError: secret \"s\" not found":      "create what the message names",
		"pod a: container c: CrashLoopBackOff: back-off; last exit code 1":            "logs POD --previous",
		"pod a: Unhealthy: Readiness probe failed: HTTP 503":                          "compare its port and path",
		"admission webhook \"a.b\" denied the request: no owner":                      "change the object in git",
		"failed calling webhook \"a.b\": no endpoints available":                      "the service of the webhook",
		"cannot fetch: dial tcp 10.0.0.1:443: connect: connection refused":            "check that the host runs",
		"something else": "fallback",
	} {
		if got := Advise("team", message, "fallback"); !strings.Contains(got, want) {
			t.Errorf("%q: %q", message, got)
		}
	}
}
