// Package report sends the summary of a cluster to a hub. A hub that is away, slow or wrong changes nothing in the
// cluster: at most one request is in flight, and what is sent is always the latest state.
package report

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/client"
)

const (
	// firstRetry and maxRetry are the means of the times between attempts. The times vary by half in both directions,
	// so clusters whose hub comes back after a long time report within 30 seconds, and not at once.
	firstRetry = 2 * time.Second
	maxRetry   = 20 * time.Second
	// minDelay and maxDelay bound how long a change waits for further changes.
	minDelay = 300 * time.Millisecond
	maxDelay = 800 * time.Millisecond
	// idleShare is how many times longer than the last summary took nothing is done.
	idleShare = 20
)

// Reporter reports for a cluster.
type Reporter struct {
	Client  *client.Client
	Cluster string
	// Summarize returns the current state of the cluster.
	Summarize func(ctx context.Context) (*fleet.Summary, error)
	// IsActive reports whether this process reports; nil if it always does.
	IsActive func() bool
	Log      logr.Logger
	Now      func() time.Time

	changed  chan struct{}
	instance string
	sequence int64
	content  [sha256.Size]byte // of the last summary
	accepted bool              // the hub has the last summary
	failures int
	problem  string // that was logged last
	took     time.Duration
}

// New returns a reporter. Set its fields before [Reporter.Start].
func New() *Reporter { return &Reporter{changed: make(chan struct{}, 1)} }

// Changed says that the summary may have changed. It returns at once.
func (r *Reporter) Changed() {
	select {
	case r.changed <- struct{}{}:
	default: // the next summary contains this change too
	}
}

// Start reports until the context ends.
func (r *Reporter) Start(ctx context.Context) error {
	r.instance, r.accepted = rand.Text(), false
	for wait := between(minDelay, maxDelay); r.pause(ctx, wait); {
		if r.IsActive != nil && !r.IsActive() {
			r.accepted, wait = false, time.Second
			continue
		}
		wait = r.next(r.send(ctx))
	}
	return nil
}

// pause waits for a time. A change ends the wait, except after a failure. It reports whether to go on.
func (r *Reporter) pause(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	changed := r.changed
	if r.failures > 0 {
		changed = nil
	}
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-changed:
	}
	timer.Reset(max(between(minDelay, maxDelay), idleShare*r.took))
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// next returns how long to wait after an attempt, and records how it ended.
func (r *Reporter) next(err error) time.Duration {
	var refused *client.RefusedError
	switch isRefused := errors.As(err, &refused); {
	case err == nil:
		if r.problem != "" {
			r.Log.Info("the hub has the report again")
		}
		r.failures, r.problem = 0, ""
		return between(fleet.ReportInterval*9/10, fleet.ReportInterval)
	case isRefused && refused.Status == http.StatusConflict && r.failures == 0:
		r.failures++ // a second conflict is a failure
		return between(0, minDelay)
	}
	kind := "unreachable"
	if refused != nil {
		kind = fmt.Sprint(refused.Status)
	}
	if kind != r.problem {
		r.Log.Error(err, "the hub does not have the report; nothing else is affected, and it is sent again")
		r.problem = kind
	}
	r.failures++
	mean := min(float64(firstRetry)*math.Pow(2, float64(min(r.failures, 10)-1)), float64(maxRetry))
	wait := between(time.Duration(mean/2), time.Duration(mean*3/2))
	if refused != nil {
		wait = max(wait, refused.RetryAfter)
	}
	return wait
}

// send sends a report: without the summary if the hub has it.
func (r *Reporter) send(ctx context.Context) error {
	began := r.Now()
	s, err := r.Summarize(ctx)
	if err != nil {
		return err
	}
	at := s.Time
	s.Time = time.Time{}
	s = fit(s)
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if content := sha256.Sum256(b); content != r.content {
		r.content, r.accepted = content, false
		r.sequence++
	}
	r.took = r.Now().Sub(began)
	report := fleet.Report{Cluster: r.Cluster, Instance: r.instance, Sequence: r.sequence}
	if s.Time = at; !r.accepted {
		report.Summary = s
	}
	body, err := json.Marshal(report)
	if err != nil {
		return err
	}
	err = r.Client.Report(ctx, body)
	r.count(err, report.Summary == nil)
	if refused := (*client.RefusedError)(nil); errors.As(err, &refused) && refused.Status == http.StatusConflict {
		r.accepted = false
		if report.Summary != nil { // another process reported in between: begin again
			r.instance, r.sequence = rand.Text(), r.sequence+1
		}
	}
	if err == nil {
		r.accepted = true
	}
	return err
}

// fit returns a summary whose report is not larger than a hub accepts.
func fit(s *fleet.Summary) *fleet.Summary {
	const rest = 2 << 10 // of the report, and of the time
	for {
		b, err := json.Marshal(s)
		n := max(len(s.Revisions), len(s.Problems), len(s.Changes))
		if err != nil || len(b) <= fleet.MaxBytes-rest || n == 0 {
			return s
		}
		small := *s
		small.Revisions, small.Omitted.Revisions = cut(s.Revisions, n, s.Omitted.Revisions)
		small.Problems, small.Omitted.Problems = cut(s.Problems, n, s.Omitted.Problems)
		small.Changes, small.Omitted.Changes = cut(s.Changes, n, s.Omitted.Changes)
		s = &small
	}
}

// cut removes the last of n entries.
func cut[T any](all []T, n, omitted int) ([]T, int) {
	if len(all) < n {
		return all, omitted
	}
	return slices.Clone(all[:n-1]), omitted + 1
}

// between returns a random time.
func between(low, high time.Duration) time.Duration {
	return low + mathrand.N(max(high-low, 1))
}
