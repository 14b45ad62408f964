package promotion

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// ready is a member that is Ready at a revision.
func ready(name, revision string) Member {
	return Member{Name: name, Revision: revision, Identity: name}
}

// failing is a member that is not Ready at a revision.
func failing(name, revision string) Member {
	return Member{Name: name, Revision: revision, Problem: "is not Ready", Identity: name + " failing"}
}

// step is an observation, minutes after the first one.
type step struct {
	at      int
	members []Member
	want    string // ready, promoted
}

const a, b = "main@sha1:a", "main@sha1:b"

func one(m ...Member) []Member { return m }

// soaks are observations of a check with a soak of two hours.
var soaks = map[string][]step{
	"two quiet hours": {
		{at: 0, members: one(ready("s", a)), want: a + ","},
		{at: 119, members: one(ready("s", a)), want: a + ","},
		{at: 120, members: one(ready("s", a)), want: a + "," + a},
	},
	"another branch with the same commit": {
		{at: 0, members: one(ready("s", a)), want: a + ","},
		{at: 120, members: one(ready("s", "prod@sha1:a")), want: "prod@sha1:a,prod@sha1:a"},
	},
	"another revision starts again, and the promoted one stays": {
		{at: 0, members: one(ready("s", a)), want: a + ","},
		{at: 120, members: one(ready("s", a)), want: a + "," + a},
		{at: 130, members: one(failing("s", b)), want: "," + a},
		{at: 140, members: one(ready("s", b)), want: b + "," + a},
		{at: 259, members: one(ready("s", b)), want: b + "," + a},
		{at: 260, members: one(ready("s", b)), want: b + "," + b},
	},
	"not Ready at the promoted revision": {
		{at: 0, members: one(ready("s", a)), want: a + ","},
		{at: 120, members: one(ready("s", a)), want: a + "," + a},
		{at: 130, members: one(failing("s", a)), want: ","},
		{at: 140, members: one(ready("s", a)), want: a + ","},
		{at: 260, members: one(ready("s", a)), want: a + "," + a},
	},
	"an interruption that was not observed": {
		{at: 0, members: one(ready("s", a)), want: a + ","},
		{at: 60, members: one(Member{Revision: a, Identity: "s again"}), want: a + ","},
		{at: 120, members: one(Member{Revision: a, Identity: "s again"}), want: a + ","},
		{at: 180, members: one(Member{Revision: a, Identity: "s again"}), want: a + "," + a},
		{at: 190, members: one(Member{Revision: a, Identity: "s thrice"}), want: a + ","},
	},
	"one of two is behind": {
		{at: 0, members: one(ready("s", a), ready("t", a)), want: a + ","},
		{at: 60, members: one(ready("s", b), ready("t", a)), want: ","},
		{at: 70, members: one(ready("s", b), ready("t", b)), want: b + ","},
		{at: 190, members: one(ready("s", b), ready("t", b)), want: b + "," + b},
	},
	"an object is added": {
		{at: 0, members: one(ready("s", a)), want: a + ","},
		{at: 60, members: one(ready("s", a), ready("t", a)), want: a + ","},
		{at: 120, members: one(ready("s", a), ready("t", a)), want: a + ","},
		{at: 180, members: one(ready("s", a), ready("t", a)), want: a + "," + a},
	},
	"nothing is left": {
		{at: 0, members: one(ready("s", a)), want: a + ","},
		{at: 120, members: one(ready("s", a)), want: a + "," + a},
		{at: 121, want: ","},
	},
	"not observed for an hour": {
		{at: 0, members: one(ready("s", a)), want: a + ","},
		{at: 20, members: one(ready("s", a)), want: a + ","},
		{at: 200, members: one(ready("s", a)), want: a + ","},
		{at: 299, members: one(ready("s", a)), want: a + ","},
		{at: 300, members: one(ready("s", a)), want: a + "," + a},
	},
	"the clock was set back": {
		{at: 100, members: one(ready("s", a)), want: a + ","},
		{at: 0, members: one(ready("s", a)), want: a + ","},
		{at: 119, members: one(ready("s", a)), want: a + ","},
		{at: 120, members: one(ready("s", a)), want: a + "," + a},
	},
	"no revision": {{at: 0, members: one(ready("s", "")), want: ","}},
}

func TestRevisionsArePromotedAfterTheirSoak(t *testing.T) {
	for name, steps := range soaks {
		t.Run(name, func(t *testing.T) { run(t, steps) })
	}
}

// run advances a check with a soak of two hours through observations.
func run(t *testing.T, steps []step) {
	t.Helper()
	c := Check{Definition: "d", Soak: 2 * time.Hour, MaxGap: 2 * time.Hour}
	start := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	var known *gatingv1.ObservedRevision
	for _, s := range steps {
		next := c.Advance(known, s.members, start.Add(time.Duration(s.at)*time.Minute))
		if got := next.Ready + "," + next.Promoted; got != s.want {
			t.Errorf("after %d minutes: got %s, want %s (%+v)", s.at, got, s.want, next)
		}
		if text := c.Describe(next, s.members); text == "" {
			t.Errorf("after %d minutes: no description", s.at)
		}
		known = &next
	}
}

func TestAnotherDefinitionForgetsWhatWasPromoted(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	spec := &gatingv1.RevisionCheck{Kind: "Kustomization", Name: "staging"}
	o := CheckOf(spec, time.Hour).Advance(nil, []Member{ready("s", "a")}, now)
	if o.Promoted != "a" || o.Until != nil {
		t.Fatalf("without a soak: %+v", o)
	}
	spec.Soak = &meta.Duration{Duration: time.Hour}
	if again := CheckOf(spec, time.Hour).Advance(&o, []Member{ready("s", "a")}, now); again.Promoted != "a" {
		t.Errorf("another soak: %+v", again)
	}
	spec.Name = "other"
	if again := CheckOf(spec, time.Hour).Advance(&o, []Member{ready("o", "a")}, now); again.Promoted != "" {
		t.Errorf("another object: %+v", again)
	}
}

func TestDescribe(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	c := Check{Soak: 2 * time.Hour, MaxGap: 24 * time.Hour}
	s := []Member{ready("Kustomization 'staging/app'", "main@sha1:a")}
	soaking := c.Advance(nil, s, now)
	want := "revision 'main@sha1:a' soaks until 2026-11-20T12:00:00Z (2h0m0s in total): Kustomization 'staging/app' " +
		"is Ready at it since 2026-11-20T10:00:00Z"
	if got := c.Describe(soaking, s); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	promoted := c.Advance(&soaking, s, now.Add(2*time.Hour))
	want = "allows revision 'main@sha1:a': Kustomization 'staging/app' is Ready at it since"
	if got := c.Describe(promoted, s); !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	next := []Member{failing("Kustomization 'staging/app'", "main@sha1:b")}
	want = "allows only revision 'main@sha1:a'; Kustomization 'staging/app' is not Ready at revision 'main@sha1:b'"
	if got := c.Describe(c.Advance(&promoted, next, now.Add(3*time.Hour)), next); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestMemberOf(t *testing.T) {
	object := func(kind string, suspended bool, status map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"kind": kind,
			"metadata": map[string]any{"namespace": "staging", "name": "app", "uid": "1", "generation": int64(2)},
			"spec":     map[string]any{"suspend": suspended}, "status": status}}
	}
	status := func(ready string, observed int64, fields map[string]any) map[string]any {
		fields["observedGeneration"] = observed
		fields["conditions"] = []any{map[string]any{"type": "Ready", "status": ready,
			"lastTransitionTime": "2026-11-20T10:00:00Z", "observedGeneration": observed}}
		return fields
	}
	for name, c := range map[string]struct {
		object *unstructured.Unstructured
		want   string // revision, problem
	}{
		"Ready": {object: object("Kustomization", false, status("True", 2, map[string]any{
			"lastAppliedRevision": "a", "lastAttemptedRevision": "a"})), want: "a,"},
		"fails at another revision": {object: object("Kustomization", false, status("False", 2, map[string]any{
			"lastAppliedRevision": "a", "lastAttemptedRevision": "b"})), want: "b,is not Ready"},
		"Ready for an earlier generation": {object: object("Kustomization", false, status("True", 1, map[string]any{
			"lastAppliedRevision": "a", "lastAttemptedRevision": "a"})), want: "a,is not Ready"},
		"suspended": {object: object("Kustomization", true, status("True", 2, map[string]any{
			"lastAppliedRevision": "a"})), want: ",is suspended"},
		"release": {object: object("HelmRelease", false, status("True", 2, map[string]any{
			"lastAttemptedRevision": "1.2.3+abc"})), want: "1.2.3+abc,"},
		"source": {object: object("GitRepository", false, status("True", 2, map[string]any{
			"artifact": map[string]any{"revision": "main@sha1:a"}})), want: "main@sha1:a,"},
		"no status": {object: object("Kustomization", false, nil), want: ",is not Ready"},
		"odd status": {object: object("Kustomization", false, map[string]any{"conditions": "?"}),
			want: ",is not Ready"},
	} {
		m := MemberOf(c.object)
		if got := m.Revision + "," + m.Problem; got != c.want || m.Name != "'staging/app'" && m.Name[len(m.Name)-13:] !=
			"'staging/app'" {
			t.Errorf("%s: got %s of %s, want %s", name, got, m.Name, c.want)
		}
	}
}
