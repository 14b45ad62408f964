package report

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/client"
)

// TestTimesBetweenAttempts checks that reporters do not come at once when a hub is back, and that one outage is one
// line of the log.
func TestTimesBetweenAttempts(t *testing.T) {
	lines, earliest, latest := 0, time.Hour, time.Duration(0)
	for range 1000 {
		r := New()
		r.Log = funcr.New(func(string, string) { lines++ }, funcr.Options{})
		var wait time.Duration
		for range 10 {
			wait = r.next(errors.New("connection refused"))
		}
		earliest, latest = min(earliest, wait), max(latest, wait)
	}
	if earliest < 10*time.Second || earliest > 12*time.Second || latest > 30*time.Second || latest < 28*time.Second {
		t.Errorf("reporters come from %s to %s", earliest, latest)
	}
	if lines != 1000 {
		t.Errorf("1,000 outages are %d lines", lines)
	}
	r := New()
	r.Log = funcr.New(func(string, string) {}, funcr.Options{})
	again := &client.RefusedError{Status: http.StatusConflict}
	if wait := r.next(again); wait > time.Second {
		t.Errorf("the summary is sent after %s", wait)
	}
	if wait := r.next(again); wait < time.Second {
		t.Errorf("a second conflict is retried after %s", wait)
	}
	if wait := r.next(&client.RefusedError{Status: 429, RetryAfter: time.Minute}); wait < time.Minute {
		t.Errorf("the hub asked for a minute, and it is %s", wait)
	}
	if wait := r.next(nil); wait < 54*time.Second || wait > time.Minute || r.failures != 0 {
		t.Errorf("after a report, it waits %s", wait)
	}
}

// TestSummaryFits cuts a summary whose texts need more bytes as JSON.
func TestSummaryFits(t *testing.T) {
	long := strings.Repeat("<", fleet.MaxMessage)
	s := &fleet.Summary{}
	for range fleet.MaxChanges {
		s.Revisions = append(s.Revisions, fleet.Revision{Source: "GitRepository/a/b", Subject: long[:fleet.MaxText]})
		s.Changes = append(s.Changes, fleet.Change{Gate: "Gate/a/b", Message: long})
	}
	for range fleet.MaxProblems {
		s.Problems = append(s.Problems, fleet.Problem{Object: "Kustomization/a/b", State: "failed", Message: long})
	}
	small := fit(s)
	b, err := json.Marshal(fleet.Report{Cluster: "edge-7", Instance: "i", Sequence: 1, Summary: small})
	if err != nil || len(b) > fleet.MaxBytes || small.Validate(time.Now()) != nil {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if len(small.Changes)+small.Omitted.Changes != fleet.MaxChanges ||
		len(small.Problems)+small.Omitted.Problems != fleet.MaxProblems || len(small.Problems) == 0 {
		t.Errorf("%d changes and %d problems are left, %+v are not", len(small.Changes), len(small.Problems),
			small.Omitted)
	}
}

// TestAChangeIsReportedSoon waits for the next report: a change ends the wait, but not after a failure.
func TestAChangeIsReportedSoon(t *testing.T) {
	for failures, most := range []time.Duration{maxDelay, time.Minute + maxDelay} {
		synctest.Test(t, func(t *testing.T) {
			r, began := New(), time.Now()
			r.failures = failures
			r.Changed()
			if !r.pause(t.Context(), time.Minute) || time.Since(began) > most ||
				failures > 0 && time.Since(began) < time.Minute {
				t.Errorf("after %d failures, a change is reported after %s", failures, time.Since(began))
			}
		})
	}
}
