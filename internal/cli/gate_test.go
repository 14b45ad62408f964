package cli

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/gate/verdict"
)

func TestGateRequests(t *testing.T) {
	c, namespace := withDefinitions(t)
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "release"}}
	g.Spec.Interval.Duration = gatingv1.DefaultInterval
	if err := c.Create(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	sluice := func(code int, says string, args ...string) result {
		return at(t, append([]string{"gate", "-n", namespace}, args...)...).wants(t, code, says)
	}
	asked := func() verdict.Requests {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
			t.Fatal(err)
		}
		r, err := verdict.ReadRequests(g.Annotations)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	sluice(exitOK, "to open", "open", "release", "--for", "2h", "--revision", "main@sha1:abc")
	if r := asked().Open; r == nil || r.Window.Hours() != 2 || r.Revision != "main@sha1:abc" || r.By == "" {
		t.Errorf("asked for %+v", r)
	}
	sluice(exitOK, "to open", "open", "release")
	if r := asked().Open; r == nil || r.Window != 0 || r.Revision != "" {
		t.Errorf("a new request keeps what the last one said: %+v", r)
	}
	sluice(exitOK, "to close", "close", "release", "--reason", "freeze")
	if r := asked(); r.Close == nil || !r.Close.At.After(r.Open.At) || r.Close.Reason != "freeze" {
		t.Errorf("asked for %+v", r.Close)
	}
	sluice(exitUsage, "--reason", "open", "release", "--override")
	sluice(exitUsage, "--for", "open", "release", "--for", "-1h")
	sluice(exitOK, "to open", "open", "release", "--override", "--reason", "the shop is down")
	if r := asked().Override; r == nil || r.Reason != "the shop is down" || r.By == "" {
		t.Errorf("asked for %+v", r)
	}

	sluice(exitOK, "GateApproval", "approve", "release", "--revision", "main@sha1:abc", "--expires", "24h")
	var approvals gatingv1.GateApprovalList
	if err := c.List(t.Context(), &approvals, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	if len(approvals.Items) != 1 || approvals.Items[0].Spec.User == "" || approvals.Items[0].Spec.ExpiresAt == nil {
		t.Errorf("approvals are %+v", approvals.Items)
	}

	before := g.DeepCopy()
	g.Status.Why = &gatingv1.Explanation{Reason: gatingv1.WhyRequested, Message: "freeze"}
	g.Status.WaitingCount = 1
	g.Status.Waiting = []gatingv1.WaitingObject{{Kind: "Kustomization", Namespace: namespace, Name: "app", Revision: "main@sha1:def"}}
	g.Status.History = []gatingv1.HistoryEntry{{At: metav1.Now(), State: gatingv1.Closed, Reason: gatingv1.WhyRequested, Message: "freeze", By: "alice"}}
	if err := c.Status().Patch(t.Context(), g, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	for verb, says := range map[string]string{"status": "Kustomization/" + namespace + "/app main@sha1:def", "history": "alice"} {
		if out := sluice(exitOK, "", verb, "release").out; !strings.Contains(out, says) {
			t.Errorf("%s shows no %q:\n%s", verb, says, out)
		}
	}
	if out := sluice(exitOK, "", "list").out; !strings.Contains(out, "OPENED") || !strings.Contains(out, "release") {
		t.Errorf("list shows\n%s", out)
	}
	sluice(exitFailed, "nothing", "open", "nothing")
}
