package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

func TestDecisionOnWhatHasChangedIsRefused(t *testing.T) {
	s := newSite(t, everyone)
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Name: "release"}}
	s.create(g)
	g.Status.WaitingCount = 1
	g.Status.Waiting = []gatingv1.WaitingObject{{Kind: "Kustomization", Namespace: s.namespace, Name: "app",
		Revision: "main@sha1:2"}}
	if err := s.client.Status().Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	object := "/api/v1/objects/Gate/" + s.namespace + "/release"
	shown := "Kustomization/" + s.namespace + "/app@main@sha1:"
	for _, action := range []string{"approve", "open", "override"} {
		body := fmt.Sprintf(`{"reason":"x","seen":[%q]}`, shown+"1")
		status, answer := s.request(http.MethodPost, object+"/"+action, body)
		if status != http.StatusConflict || !strings.Contains(answer, shown+"2") {
			t.Errorf("%s on an older change: %d %s", action, status, answer)
		}
	}
	body := fmt.Sprintf(`{"for":"2h","reason":"tested","seen":[%q]}`, shown+"2")
	if status, answer := s.request(http.MethodPost, object+"/open", body); status != http.StatusOK {
		t.Fatalf("open: %d %s", status, answer)
	}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
		t.Fatal(err)
	}
	for suffix, want := range map[string]string{gatingv1.WindowSuffix: "2h0m0s", gatingv1.ReasonSuffix: "tested"} {
		if got := g.Annotations[gatingv1.OpenPrefix+suffix]; got != want {
			t.Errorf("%s is %q, want %q", suffix, got, want)
		}
	}
	if status, answer := s.request(http.MethodPost, object+"/close", "{}"); status != http.StatusOK {
		t.Errorf("close: %d %s", status, answer)
	}
}

// heldByRule is a gate that requires the approval of a change by a group, and a Kustomization whose change waits there.
type heldByRule struct {
	*site
	gate *gatingv1.Gate
	path string
}

func newHeldByRule(t *testing.T) *heldByRule {
	h := &heldByRule{site: newSite(t, everyone), gate: &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Name: "rights"}}}
	h.gate.Spec.Rules = []gatingv1.Rule{{Name: "four-eyes", Expression: "true", Outcome: gatingv1.OutcomeApprovals,
		Message: "Two people look at rights.", Approvals: &gatingv1.Approvals{Required: 2,
			Groups: []string{"security", "owners"}, Users: []string{"admin"}}}}
	h.path = "/api/v1/objects/Gate/" + h.namespace + "/rights"
	h.create(h.gate)
	h.change("sha256:1", "sha256:1")
	h.awaitItem("rights")
	return h
}

// change sets the change that the gate lists, and that of the object, which is ahead of the gate.
func (h *heldByRule) change(listed, shown string) {
	h.Helper()
	ks := kustomization("app")
	err := h.client.Get(h.Context(), client.ObjectKey{Namespace: h.namespace, Name: "app"}, ks)
	if client.IgnoreNotFound(err) != nil {
		h.Fatal(err)
	}
	if err != nil {
		h.create(ks)
	}
	ks.Status.Pending = &meta.Pending{Revision: "main@sha1:2", Configured: 1, Risk: "high", Change: shown,
		Diff: "ConfigMap/a/b:\n  ~ data.x: 1 → 2", Changes: []string{"ConfigMap/a/b configured"}}
	ks.Status.Conditions = []metav1.Condition{{Type: meta.ApprovedCondition, Status: metav1.ConditionFalse,
		Reason: "GateClosed", Message: "requires 2 approvals of this change by rule 'four-eyes'",
		LastTransitionTime: metav1.Now()}}
	h.gate.Status.WaitingCount = 1
	h.gate.Status.Waiting = []gatingv1.WaitingObject{{Kind: "Kustomization", Namespace: h.namespace, Name: "app",
		Revision: "main@sha1:2", Risk: "high", Change: listed}}
	for _, o := range []client.Object{ks, h.gate} {
		if err := h.client.Status().Update(h.Context(), o); err != nil {
			h.Fatal(err)
		}
	}
}

// entry waits until the inbox shows a change, and returns the gate.
func (h *heldByRule) entry(shown string) gateEntry {
	h.Helper()
	var found gateEntry
	testenv.Eventually(h, "the inbox shows "+shown, func() error {
		answer := read[struct{ Gates []gateEntry }](h.site, "/api/v1/gates")
		for _, e := range answer.Gates {
			if e.Item.Namespace == h.namespace && len(e.Waiting) == 1 && e.Waiting[0].Pending != nil &&
				e.Waiting[0].Pending.Change == shown {
				found = e
				return nil
			}
		}
		return fmt.Errorf("%+v", answer)
	})
	return found
}

// approve approves what was seen, and returns the status and the answer.
func (h *heldByRule) approve(seen []string) (int, string) {
	h.Helper()
	body, err := json.Marshal(order{Seen: seen, Reason: "read it"})
	if err != nil {
		h.Fatal(err)
	}
	return h.request(http.MethodPost, h.path+"/approve", string(body))
}

func TestInboxShowsRiskRuleAndApprovers(t *testing.T) {
	h := newHeldByRule(t)
	e := h.entry("sha256:1")
	w := e.Waiting[0]
	if w.Pending.Risk != "high" || !strings.Contains(w.Pending.Diff, "data.x") ||
		!strings.Contains(w.Why, "four-eyes") {
		t.Errorf("the change is shown as %+v", w)
	}
	if r := e.Item.Gate.Rules; len(r) != 1 || r[0].Required != 2 || !slices.Equal(r[0].Users, []string{"admin"}) ||
		!slices.Equal(r[0].Groups, []string{"security", "owners"}) || r[0].Message == "" {
		t.Errorf("the rules are %+v", r)
	}
}

func TestApprovalIsForTheChangeThatWasShown(t *testing.T) {
	h := newHeldByRule(t)
	h.login.user.Groups = []string{"owners", "others"}
	seen := h.entry("sha256:1").Seen
	h.change("sha256:2", "sha256:2") // of the same revision
	if status, answer := h.approve(seen); status != http.StatusConflict || !strings.Contains(answer, "sha256:2") {
		t.Errorf("an approval of an older change of the same revision: %d %s", status, answer)
	}
	withoutDigest := "Kustomization/" + h.namespace + "/app@main@sha1:2"
	if status, answer := h.approve([]string{withoutDigest}); status != http.StatusConflict {
		t.Errorf("an approval without the change: %d %s", status, answer)
	}
	h.change("sha256:2", "sha256:3") // the gate does not list yet what is shown
	if status, answer := h.approve(h.entry("sha256:3").Seen); status != http.StatusConflict {
		t.Errorf("an approval of what the gate does not list: %d %s", status, answer)
	}
	h.change("sha256:3", "sha256:3")
	if status, answer := h.approve(h.entry("sha256:3").Seen); status != http.StatusOK {
		t.Fatalf("approve: %d %s", status, answer)
	}
	var list gatingv1.GateApprovalList
	if err := h.client.List(t.Context(), &list, client.InNamespace(h.namespace)); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d approvals (%v)", len(list.Items), err)
	}
	if a := list.Items[0].Spec; !slices.Equal(a.Changes, []string{"sha256:3"}) ||
		!slices.Equal(a.Groups, []string{"owners"}) {
		t.Errorf("the approval is %+v", a)
	}
}

func TestWhoApprovedAlreadyIsTold(t *testing.T) {
	h := newHeldByRule(t)
	if e := h.entry("sha256:1"); e.MayNot != "" {
		t.Errorf("approve is off: %s", e.MayNot)
	}
	if status, answer := h.approve(h.entry("sha256:1").Seen); status != http.StatusOK {
		t.Fatalf("approve: %d %s", status, answer)
	}
	var list gatingv1.GateApprovalList
	if err := h.client.List(t.Context(), &list, client.InNamespace(h.namespace)); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d approvals (%v)", len(list.Items), err)
	}
	h.gate.Status.Approvals = []gatingv1.ObservedApproval{{Name: list.Items[0].Name, User: "admin",
		At: meta.TimeOf(time.Now()), Counts: true}}
	h.change("sha256:1", "sha256:1")
	testenv.Eventually(t, "the inbox says that the user approved", func() error {
		if e := h.entry("sha256:1"); e.MayNot != `you approved already ("read it")` ||
			len(e.Item.Gate.Approvals) != 1 || e.Item.Gate.Approvals[0].User != "admin" {
			return fmt.Errorf("%q, %+v", e.MayNot, e.Item.Gate.Approvals)
		}
		return nil
	})
	h.change("sha256:2", "sha256:2") // another change needs another approval
	if e := h.entry("sha256:2"); e.MayNot != "" {
		t.Errorf("approve is off for another change: %s", e.MayNot)
	}
}

// TestApprovalOfMoreChangesThanTheGateLists checks that an approval names all changes that were shown, in as many
// GateApprovals as needed, and that a change beyond the list of the gate is refused if another one was shown.
func TestApprovalOfMoreChangesThanTheGateLists(t *testing.T) {
	const count = gatingv1.MaxWaiting + 5
	h := newHeldByRule(t)
	h.gate.Status.Waiting = nil
	for n := range count {
		name, change := fmt.Sprintf("app-%03d", n), fmt.Sprintf("sha256:%03d", n)
		h.waits(name, change)
		if n < gatingv1.MaxWaiting {
			h.gate.Status.Waiting = append(h.gate.Status.Waiting, gatingv1.WaitingObject{Kind: "Kustomization",
				Namespace: h.namespace, Name: name, Revision: "main@sha1:2", Change: change})
		}
	}
	h.gate.Status.WaitingCount = count + 7 // 7 that the user may not see
	if err := h.client.Status().Update(t.Context(), h.gate); err != nil {
		t.Fatal(err)
	}
	shown := func(last string) (seen []string) {
		testenv.Eventually(t, "the page of the gate shows all changes", func() error {
			e := read[detail](h.site, h.path).Gate
			seen = e.Seen
			isLast := func(change string) bool { return strings.HasSuffix(change, "#"+last) }
			if len(e.Waiting) != count || e.Omitted != 7 || !slices.ContainsFunc(seen, isLast) {
				return fmt.Errorf("%d changes, %d omitted: %v", len(e.Waiting), e.Omitted, seen)
			}
			return nil
		})
		return seen
	}
	former := shown("sha256:104")
	h.waits("app-104", "sha256:new")
	seen := shown("sha256:new")
	status, answer := h.approve(former)
	if status != http.StatusConflict || !strings.Contains(answer, "new") {
		t.Errorf("an approval of what has changed: %d %s", status, answer)
	}
	status, answer = h.approve(seen)
	if status != http.StatusOK || answer != `{"done":"approve","approvals":2,"changes":105,"left":7}`+"\n" {
		t.Fatalf("%d %s", status, answer)
	}
	var list gatingv1.GateApprovalList
	if err := h.client.List(t.Context(), &list, client.InNamespace(h.namespace)); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, a := range list.Items {
		names = append(names, a.Spec.Changes...)
	}
	if !slices.Contains(names, "sha256:new") || slices.Contains(names, "sha256:104") || len(names) != count {
		t.Errorf("the approvals name %v", names)
	}
	if status, answer := h.approve(make([]string, maxWaiting+gatingv1.MaxWaiting+1)); status != http.StatusBadRequest {
		t.Errorf("a decision about too much: %d %s", status, answer)
	}
}

// waits makes the change of a Kustomization wait at the gate.
func (h *heldByRule) waits(name, change string) {
	h.Helper()
	ks := kustomization(name)
	ks.Namespace = h.namespace
	err := h.client.Get(h.Context(), client.ObjectKeyFromObject(ks), ks)
	if client.IgnoreNotFound(err) != nil {
		h.Fatal(err)
	}
	if err != nil {
		h.create(ks)
	}
	ks.Status.Gates = []string{h.namespace + "/rights"}
	ks.Status.HeldBy = []meta.HoldingGate{{Gate: h.namespace + "/rights", Code: "Closed"}}
	ks.Status.Pending = &meta.Pending{Revision: "main@sha1:2", Change: change}
	ks.Status.Conditions = []metav1.Condition{{Type: meta.ApprovedCondition, Status: metav1.ConditionFalse,
		Reason: "GateClosed", Message: "closed", LastTransitionTime: metav1.Now()}}
	if err := h.client.Status().Update(h.Context(), ks); err != nil {
		h.Fatal(err)
	}
}

func TestInboxBeginsWithWhatWaitsForTheUser(t *testing.T) {
	for want, e := range []gateEntry{
		{Item: &view.Item{Gate: &view.Gate{Count: 1}}},
		{Item: &view.Item{Gate: &view.Gate{Count: 9}}, MayNot: "you are not an approver"},
		{Item: &view.Item{Gate: &view.Gate{}}},
	} {
		if got := e.rank(); got != want {
			t.Errorf("%+v has rank %d, want %d", e.Item.Gate, got, want)
		}
	}
}
