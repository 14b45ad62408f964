package gate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/client"
)

// hubOf answers with what it is, or with an error.
type hubOf struct {
	answer fleet.Rollout
	err    error
	asked  fleet.Question
}

func (h *hubOf) Rollout(_ context.Context, q fleet.Question) (*fleet.Rollout, error) {
	h.asked = q
	return &h.answer, h.err
}

// TestClustersThroughTime runs a check of clusters with answers of a hub, one after the other.
func TestClustersThroughTime(t *testing.T) {
	start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	at := func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
	ready := func(revision string, since int) fleet.Rollout {
		return fleet.Rollout{Clusters: 4, Needed: 3, Ready: 3, Revision: revision, Since: at(since)}
	}
	moving := fleet.Rollout{Clusters: 4, Needed: 3, Ready: 2, Revision: "r1",
		Waiting: []string{"cluster 'd' is silent"}}
	failed := moving
	failed.HasFailed = true
	away := errors.New("cannot reach hub")
	refused := &client.RefusedError{Status: 403, Body: fleet.Error{Error: "no"}}
	type step struct {
		minute  int
		answer  fleet.Rollout
		err     error
		allows  string // the revision; * for each, empty for none
		message string
	}
	for name, test := range map[string]struct {
		lost  gatingv1.HubLost
		steps []step
	}{
		"soak": {steps: []step{
			{0, fleet.Rollout{}, nil, "", "no other cluster of the hub has these labels"},
			{1, moving, nil, "", "of 4 clusters 3 must be Ready at one revision, and 2 are: cluster 'd' is silent"},
			{2, ready("r1", 1), nil, "", "revision 'r1' soaks until 2026-11-29T12:11:00Z (10m0s in total): a share " +
				"of 3 of 4 clusters is Ready at it since 2026-11-29T12:01:00Z"},
			{11, ready("r1", 1), nil, "r1", "allows revision 'r1'"},
			{12, moving, nil, "r1", "allows only revision 'r1'"},
			{13, ready("r2", 13), nil, "r1", "revision 'r2' soaks until"},
			{14, ready("r2", 14), nil, "r1", "soaks until 2026-11-29T12:24:00Z"}, // interrupted
			{24, ready("r2", 14), nil, "r2", "allows revision 'r2'"},
		}},
		"soaked before": {steps: []step{{60, ready("r1", 10), nil, "r1", "allows revision 'r1'"}}},
		"failed": {steps: []step{
			{60, ready("r1", 10), nil, "r1", ""},
			{61, failed, nil, "", "3 must be Ready at one revision"},
		}},
		"lost and closed": {steps: []step{
			{60, ready("r1", 10), nil, "r1", ""},
			{61, fleet.Rollout{}, away, "", "the hub cannot be asked: cannot reach hub"},
			{600, fleet.Rollout{}, away, "", "the hub cannot be asked: cannot reach hub"},
			{601, ready("r1", 10), nil, "r1", ""},
		}},
		"lost and open": {lost: gatingv1.OpenWithoutHub, steps: []step{
			{60, ready("r1", 10), nil, "r1", ""},
			{61, fleet.Rollout{}, away, "",
				"As onHubLost is open, the check passes at 2026-11-29T13:02:11Z if this stays"},
			{63, fleet.Rollout{}, away, "*", "passes as onHubLost is open: the hub cannot be asked: cannot reach hub"},
			{64, fleet.Rollout{}, away, "*", ""},
			{65, moving, nil, "r1", ""},
		}},
		"never found and open": {lost: gatingv1.OpenWithoutHub, steps: []step{
			{0, fleet.Rollout{}, away, "", "the check passes at 2026-11-29T12:02:11Z"},
			{1, fleet.Rollout{}, away, "", "the check passes at 2026-11-29T12:02:11Z"},
			{3, fleet.Rollout{}, away, "*", ""},
			{4, fleet.Rollout{}, away, "*", ""},
		}},
		"refused and open": {lost: gatingv1.OpenWithoutHub, steps: []step{
			{60, ready("r1", 10), nil, "r1", ""}, {600, fleet.Rollout{}, refused, "", "the hub answers 403: no"},
		}},
	} {
		check := gatingv1.Check{Name: "canary", Clusters: &gatingv1.ClustersCheck{OnHubLost: test.lost, Share: "75%",
			Labels: map[string]string{"stage": "canary"}, Soak: &meta.Duration{Duration: 10 * time.Minute},
			Source: gatingv1.ClustersSource{Kind: "GitRepository", Name: "fleet"}}}
		g := &gatingv1.Gate{}
		g.Namespace = "flux-system"
		hub := &hubOf{}
		clock := clocktesting.NewFakePassiveClock(start)
		k := &Checks{Prober: &Probes{Hub: hub}, Clock: clock}
		var last gatingv1.CheckResult
		for _, s := range test.steps {
			now := at(s.minute)
			clock.SetTime(now)
			hub.answer, hub.err = s.answer, s.err
			hub.answer.Time = now
			observed, message, err := k.probe(g, check, last)
			k.record(&last, check, observed, message, err)
			last.Holds = last.Passed
			verdict := checkOf(check, last, now)
			got := ""
			switch {
			case verdict.Passes && verdict.Promotion == nil:
				got = "*"
			case verdict.Passes:
				got = verdict.Promotion.Revision
			}
			if got != s.allows || !strings.Contains(last.Message, s.message) {
				t.Errorf("%s, minute %d: allows %q, want %q: %s", name, s.minute, got, s.allows, last.Message)
			}
		}
		if q := hub.asked; q.Source != "GitRepository/flux-system/fleet" || q.Share != 75 ||
			q.Labels["stage"] != "canary" {
			t.Errorf("asked %+v", q)
		}
	}
}

func TestClustersWithoutRights(t *testing.T) {
	g := &gatingv1.Gate{}
	g.Namespace = "tenant"
	other := &gatingv1.ClustersCheck{Source: gatingv1.ClustersSource{Kind: "GitRepository", Name: "a", Namespace: "b"}}
	confined, open := &Probes{Hub: &hubOf{}, NoCrossNamespaceRefs: true}, &Probes{Hub: &hubOf{}}
	for _, test := range []struct {
		probes *Probes
		check  *gatingv1.ClustersCheck
		want   string
	}{
		{&Probes{}, other, "the cluster reports to no hub: set --report-to and --report-as"},
		{confined, other, "cross-namespace references have been blocked"},
		{open, &gatingv1.ClustersCheck{Share: "0%"}, "clusters.share is '0%'"},
	} {
		_, err := test.probes.Clusters(t.Context(), g, test.check, "")
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}
