package view

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// noon is when the commit of a delivery was made.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// delivery is a source with a Receiver, and a Kustomization that applied its commit, as controllers record them.
type delivery struct {
	source   *sourcev1.GitRepository
	receiver *notificationv1.Receiver
	app      *kustomizev1.Kustomization
	gate     *Item
}

func ready(since time.Time) []metav1.Condition {
	return []metav1.Condition{{Type: reconcile.TypeReady, Status: metav1.ConditionTrue, Reason: "Succeeded",
		Message: "done", LastTransitionTime: metav1.Time{Time: since}}}
}

func newDelivery() *delivery {
	revision := "main@sha1:" + commit
	d := &delivery{source: &sourcev1.GitRepository{}, receiver: &notificationv1.Receiver{},
		app: &kustomizev1.Kustomization{}}
	d.source.Namespace, d.source.Name = "team", "repo"
	d.source.Spec.URL, d.source.Spec.Interval = "https://git.example/org/repo.git", meta.DurationOf(10*time.Minute)
	asked := metav1.Time{Time: at(5)}
	d.source.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: meta.ReceiverFieldOwner, Time: &asked}}
	d.source.Status.Conditions = ready(at(-1000))
	d.source.Status.Artifact = &meta.Artifact{Revision: revision, LastUpdateTime: meta.TimeOf(at(7)),
		Metadata: map[string]string{meta.CommitTimeKey: noon.Format(time.RFC3339), meta.CommitAuthorKey: "Ada <a@b>",
			meta.CommitSubjectKey: "Sell more (#42)"}}
	d.receiver.Namespace, d.receiver.Name = "team", "hook"
	d.receiver.Spec.Resources = []notificationv1.ReceiverResource{{Kind: "GitRepository", Name: "repo"}}
	d.receiver.Status.Conditions = ready(at(-1000))
	d.app.Namespace, d.app.Name = "team", "app"
	d.app.Spec.SourceRef = kustomizev1.SourceReference{Kind: "GitRepository",
		NamespacedName: meta.NamespacedName{Name: "repo"}}
	d.app.Status.LastAppliedRevision, d.app.Status.LastAttemptedRevision = revision, revision
	applied := meta.TimeOf(at(75))
	d.app.Status.History = []kustomizev1.Snapshot{{Reconciliation: meta.Reconciliation{
		LastReconciledStatus: meta.ReconciliationSucceededReason,
		Metadata:             map[string]string{"revision": revision}, FirstReconciled: meta.TimeOf(at(90))},
		Times: &kustomizev1.StepTimes{Started: meta.TimeOf(at(67)), Built: meta.TimeOf(at(70)), Applied: &applied}}}
	d.app.Status.Conditions = ready(at(90))
	d.app.Status.Gates = []string{"team/door"}
	d.gate = &Item{ID: "Gate/team/door", Kind: "Gate", Namespace: "team", Name: "door", Gate: &Gate{}}
	return d
}

func (d *delivery) items() []*Item {
	return []*Item{Of(kind.ByName("GitRepository"), d.source), Of(kind.ByName("Receiver"), d.receiver),
		Of(kind.ByName("Kustomization"), d.app), d.gate}
}

// ask returns the steps of the only chain, as name state seconds.
func (d *delivery) ask(t *testing.T, query string) (string, Chain) {
	t.Helper()
	a := Why(d.items(), query)
	if len(a.Chains) != 1 {
		t.Fatalf("%q has %d chains: %s", query, len(a.Chains), a.Note)
	}
	var steps []string
	for _, s := range a.Chains[0].Steps {
		text := s.Name + " " + string(s.State)
		if s.State == Done && !s.At.IsZero() {
			text += fmt.Sprintf(" %.0f", s.At.Sub(s.From).Seconds())
		}
		steps = append(steps, text)
	}
	return strings.Join(steps, ", "), a.Chains[0]
}

func TestWhySaysHowLongEachStepTook(t *testing.T) {
	d := newDelivery()
	want := "push done 0, webhook done 5, source done 2, gate done 60, build done 3, apply done 5, health done 15"
	for _, query := range []string{commit[:7], "main@sha1:" + commit, "team/app"} {
		if got, c := d.ask(t, query); got != want || !c.Live {
			t.Errorf("%s: %s, live %t", query, got, c.Live)
		}
	}
	for _, query := range []string{"#42", "pr 42", "https://git.example/org/repo/pull/42",
		"https://git.example/org/repo/-/merge_requests/42/diffs"} {
		if got, _ := d.ask(t, query); got != "pull request done, "+want {
			t.Errorf("%s: %s", query, got)
		}
	}
	for _, query := range []string{"#4", "#421", "https://git.example/org/other/pull/42", "abcdef1"} {
		if a := Why(d.items(), query); len(a.Chains) != 0 || a.Note == "" {
			t.Errorf("%s: %+v", query, a)
		}
	}
}

func TestWhyNamesTheStepThatWaitsAndSinceWhen(t *testing.T) {
	d := newDelivery()
	d.app.Status.LastAppliedRevision = "main@sha1:" + strings.Repeat("f", 40)
	since := meta.TimeOf(at(20))
	d.app.Status.Pending = &meta.Pending{Revision: "main@sha1:" + commit, Since: &since, Risk: "high",
		Images: []string{"registry.example/web:1.4.2"}}
	d.app.Status.HeldBy = []meta.HoldingGate{{Gate: "team/door", Code: "Closed"}}
	d.app.Status.Conditions = append(d.app.Status.Conditions, metav1.Condition{Type: meta.ApprovedCondition,
		Status: metav1.ConditionFalse, Message: "closed"})
	want := "push done 0, webhook done 5, source done 2, gate blocked, build ahead, apply ahead, health ahead"
	for _, query := range []string{commit, "web:1.4.2"} {
		got, c := d.ask(t, query)
		if gate := c.Steps[3]; got != want || !gate.From.Equal(at(20)) || !strings.Contains(gate.Text, "high risk") {
			t.Errorf("%s: %s\n%+v", query, got, c.Steps)
		}
	}
	if sets := Changes(d.items(), "web:1.4.2"); len(sets) != 1 || len(sets[0].Pending) != 1 ||
		sets[0].Subject == "" {
		t.Errorf("the change that brings the image is not found: %+v", sets)
	}
	for reason, step := range map[string]string{meta.BuildFailedReason: "build", meta.HealthCheckFailedReason: "health",
		meta.ReconciliationFailedReason: "apply"} {
		d := newDelivery()
		d.app.Status.Conditions = []metav1.Condition{{Type: reconcile.TypeReady, Status: metav1.ConditionFalse,
			Reason: reason, Message: "broken", LastTransitionTime: metav1.Time{Time: at(80)}}}
		got, c := d.ask(t, commit)
		for _, s := range c.Steps {
			if (s.Name == step) != (s.State == Blocked) || s.State == Blocked && (s.Do == "" || !s.From.Equal(at(80))) {
				t.Errorf("%s: %s\n%+v", reason, got, s)
			}
		}
	}
}

func TestWhyExplainsAMissingWebhook(t *testing.T) {
	for name, test := range map[string]struct {
		change func(d *delivery)
		want   string
	}{
		"no Receiver": {func(d *delivery) { d.receiver.Spec.Resources[0].Name = "other" }, "no Receiver selects"},
		"any name": {func(d *delivery) { d.receiver.Spec.Resources[0].Name = notificationv1.AnyName },
			"asked for the commit"},
		"not called": {func(d *delivery) { d.source.ManagedFields = nil }, "no webhook came"},
		"suspended":  {func(d *delivery) { d.receiver.Spec.Suspend = true }, "the Receiver is suspended"},
		"later": {func(d *delivery) { d.source.Status.Artifact.LastUpdateTime = meta.TimeOf(at(2)) },
			"came after the commit was fetched"},
	} {
		d := newDelivery()
		test.change(d)
		_, c := d.ask(t, commit)
		if s := c.Steps[1]; s.Name != "webhook" || !strings.Contains(s.Text, test.want) || !c.Live {
			t.Errorf("%s: %+v", name, c.Steps)
		}
	}
}

func TestWhyShowsAPullRequestThatIsNotMerged(t *testing.T) {
	d := newDelivery()
	made := strings.Repeat("e", 40)
	job := &Item{ID: "ImageUpdateJob/team/release", Kind: "ImageUpdateJob", Namespace: "team", Name: "release",
		State: Ready, Revision: made, Changed: at(0), Image: "web:2",
		PullRequest: "https://git.example/org/repo/pull/43"}
	items := append(d.items(), job)
	for _, query := range []string{"#43", "https://git.example/org/repo/pull/43", "web:2"} {
		a := Why(items, query)
		if len(a.Chains) != 1 || a.Chains[0].Target != job || a.Chains[0].Live {
			t.Fatalf("%s: %+v", query, a)
		}
		if s := a.Chains[0].Steps[1]; s.Name != "pull request" || s.State != Current || s.URL != job.PullRequest ||
			s.Do == "" {
			t.Errorf("%s: %+v", query, s)
		}
	}
	d.source.Status.Artifact.Revision = "main@sha1:" + made
	a := Why(append(d.items(), job), "web:2")
	if len(a.Chains) != 1 || a.Chains[0].Target.Name != "app" || a.Chains[0].Steps[0].URL != job.PullRequest {
		t.Errorf("after the merge: %+v", a)
	}
}

func FuzzQuestion(f *testing.F) {
	for _, seed := range []string{"#42", "https://a/b/pull/7", "main@sha1:0123456789", "web:1", "%zz://"} {
		f.Add(seed, "Merge pull request #42 from x!7")
	}
	f.Fuzz(func(t *testing.T, query, subject string) {
		q := newQuestion(query)
		q.isMerged(&Item{Subject: subject, URL: query})
		q.opened(&Item{PullRequest: subject})
		q.has(subject)
		if len(q.revisions) > 0 && !q.has("main@sha1:"+q.revisions[0]) {
			t.Errorf("%q asks for %q, but does not match it", query, q.revisions[0])
		}
	})
}

func TestWhyNamesTheTraceOfAChange(t *testing.T) {
	d := newDelivery()
	for header, want := range map[string]string{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": "0af7651916cd43dd8448eb211c80319c",
		"javascript:alert(1)": "",
	} {
		d.source.Status.Artifact.Metadata[meta.TraceKey] = header
		_, c := d.ask(t, "app")
		for _, s := range c.Steps {
			if s.Name == "source" && (s.Trace != want || strings.Contains(s.Text, "trace") != (want != "")) {
				t.Errorf("%s: %+v", header, s)
			}
		}
	}
}
