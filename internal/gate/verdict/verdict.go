// Package verdict decides whether a gate is open at a time, by its default, requests, calendar, approvals and
// checks. It is stateless: the verdict does not depend on when or how often a gate was evaluated before.
package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/calendar"
)

// Input is everything that a verdict depends on.
type Input struct {
	Opened      bool          // by default
	Window      time.Duration // of requests; zero: until the opposite is requested
	Calendar    *calendar.Calendar
	Overridable bool // requests take precedence over the calendar
	Requests    Requests
	Rule        *Rule // nil: no approvals are required
	Approvals   []Approval
	Checks      []Check
	Failures    []gatingv1.FailedChange // changes that the gate let through and that became unhealthy
	Reverts     bool                    // failed revisions are refused until they are named
}

// Check is the result of a check.
type Check struct {
	Name      string
	Passes    bool
	Message   string
	Promotion *Promotion // of a check of revisions
}

// Verdict is whether a gate is open, and why.
type Verdict struct {
	Open      bool
	Message   string   // of the condition
	Reason    string   // of status.why
	Why       string   // message of status.why
	Revisions []string // the only allowed revisions; empty: all
	By, From  string   // requester or approvers, and the field manager of the request; may be empty

	Failures  []gatingv1.FailedChange // those that were not answered
	HeldSince time.Time               // when the failure that closes the gate happened; zero if none closes it

	RequestedAt, ResetAt time.Time // of the latest request that took effect
	Approvals            []gatingv1.ObservedApproval

	Next   time.Time // when the gate changes its state without further events; zero: unknown
	Review time.Time // when anything in the verdict may change without further events; zero: unknown
}

// maxBoundaries bounds the search for the next transition.
const maxBoundaries = 100

// Of returns the verdict at a time.
func Of(in Input, now time.Time) Verdict {
	v := in.at(now)
	if in.Rule != nil {
		v.Approvals = in.Rule.Observe(in.Approvals, in.ClosedAt(now), now)
	}
	scheduled := changes{calendar: in.Calendar}
	v.Review = in.boundary(now, &scheduled)
	for t, i := v.Review, 0; !t.IsZero() && i < maxBoundaries; t, i = in.boundary(t, &scheduled), i+1 {
		if in.at(t).Open != v.Open {
			v.Next = t
			break
		}
	}
	return v
}

// at returns the verdict at t without Next, Review and Approvals.
func (in Input) at(t time.Time) Verdict {
	if o := in.Requests.Override; o != nil && o.active(in.Window, t) && !in.ClosedAt(t).After(o.At) {
		v := in.requested(o, true, false, t)
		v.Reason, v.Why = gatingv1.WhyOverridden, "Overridden by "+o.By+": "+o.Reason
		v.Failures = in.left(t)
		return v
	}
	v := in.base(t)
	var approved tally
	if in.Rule != nil {
		approved = in.Rule.count(in.Approvals, in.ClosedAt(t), t)
		if !v.Open && approved.enough() && in.approvable(t) {
			v.Open, v.Reason, v.By, v.From = true, gatingv1.WhyApproved, "", ""
			v.Message = "Gate opened by approval"
			v.Why = "Approved by " + people(approved.users)
		}
	}
	if v.Open && in.Rule != nil {
		v.limit(in.Rule, approved)
	}
	if v.Open {
		v.check(in.Checks, t)
	}
	v.hold(in, t)
	return v
}

// approvable reports whether approvals alone open the gate at t. They do not if the calendar closes it at t
// or has windows that open it.
func (in Input) approvable(t time.Time) bool {
	scheduled, _ := in.Calendar.At(t)
	return scheduled == calendar.None && !in.Calendar.Opens()
}

// limit closes a gate without enough approvals, or with approvals of other revisions.
func (v *Verdict) limit(rule *Rule, approved tally) {
	if !approved.enough() || !approved.all && len(v.Revisions) > 0 &&
		!slices.Contains(approved.revisions, v.Revisions[0]) {
		v.Open, v.Revisions, v.Reason = false, nil, gatingv1.WhyApprovalRequired
		v.Message = "Gate closed: " + rule.missing(approved)
		v.Why = v.Message
		return
	}
	if v.Reason == gatingv1.WhyApproved {
		v.By = people(approved.users)
	}
	if len(v.Revisions) == 0 {
		v.Revisions = approved.revisions
	}
}

// check closes a gate unless all checks pass at t, and limits it to the revisions that they allow.
func (v *Verdict) check(checks []Check, t time.Time) {
	for _, check := range checks {
		revision := check.Promotion.at(t)
		if !check.Passes && revision == "" {
			v.closeFor(fmt.Sprintf("check '%s' does not pass", check.Name), check)
			return
		}
		if check.Promotion != nil && !v.narrow(revision) {
			v.closeFor(fmt.Sprintf("check '%s' does not allow revision '%s'", check.Name,
				strings.Join(v.Revisions, "', '")), check)
			return
		}
	}
	for _, check := range checks {
		if check.Promotion != nil {
			text := fmt.Sprintf("; check '%s' %s", check.Name, check.Message)
			v.Message, v.Why = v.Message+text, v.Why+text
		}
	}
}

// closeFor closes a gate because of a check. The message of the condition contains that of a check of revisions, which
// changes only with what the check observes.
func (v *Verdict) closeFor(cause string, check Check) {
	v.Open, v.Revisions, v.Reason, v.By, v.From = false, nil, gatingv1.WhyCheckFailed, "", ""
	v.Message = "Gate closed: " + cause
	v.Why = v.Message + ": " + check.Message
	if check.Promotion != nil {
		v.Message = v.Why
	}
}

// base returns the verdict by default, calendar and requests.
func (in Input) base(t time.Time) Verdict {
	open := in.Opened
	v := Verdict{Reason: gatingv1.WhyDefault}
	scheduled, entry := in.Calendar.At(t)
	if scheduled != calendar.None {
		open, v.Reason = scheduled == calendar.Opened, gatingv1.WhyScheduled
	}
	request, opens := in.latest(t)
	if request != nil && (scheduled == calendar.None || in.Overridable) {
		if request.active(in.Window, t) || scheduled == calendar.None && opens == open {
			return in.requested(request, opens, open, t)
		}
		v.RequestedAt, v.ResetAt = request.At, request.end(in.Window)
	}
	v.Open, v.Message = open, "Gate "+word(open)+" by default"
	v.Why = v.Message
	if scheduled != calendar.None {
		v.Message = "Gate " + word(open) + " by schedule"
		v.Why = v.Message
		if entry != "" {
			v.Why += " '" + entry + "'"
		}
	}
	return v
}

// requested returns the verdict of a request that is in force. Otherwise is the state without the request.
func (in Input) requested(r *Request, opens, otherwise bool, t time.Time) Verdict {
	v := Verdict{Open: opens, Reason: gatingv1.WhyRequested, By: r.By, From: r.From, RequestedAt: r.At}
	verb, by := "close", " by "
	if opens {
		verb = "open"
		if r.Revision != "" {
			v.Revisions = []string{r.Revision}
		}
	}
	v.Message = "Gate " + verb + " requested"
	if opens == otherwise {
		v.ResetAt = r.At
	} else if end := in.ends(r, opens, t); !end.IsZero() {
		v.ResetAt, by = end, ", requested by "
		v.Message = "Gate scheduled for opening at " + stamp(end)
		if opens {
			v.Message = "Gate scheduled for closing at " + stamp(end)
		}
	}
	if v.Why = v.Message; r.By != "" {
		v.Why += by + r.By
	}
	if r.Reason != "" {
		v.Why += ": " + r.Reason
	}
	return v
}

// ends returns when a request in force ends: with its window, or when an opposite request for a later time
// takes effect.
func (in Input) ends(r *Request, opens bool, t time.Time) time.Time {
	end, opposite := r.end(in.Window), in.Requests.Open
	if opens {
		opposite = in.Requests.Close
	}
	if opposite != nil && opposite.At.After(t) && (end.IsZero() || opposite.At.Before(end)) {
		return opposite.At
	}
	return end
}

// latest returns the latest request that took effect by t, and whether it opens the gate.
func (in Input) latest(t time.Time) (*Request, bool) {
	opening, closing := in.Requests.Open, in.Requests.Close
	if opening != nil && opening.At.After(t) {
		opening = nil
	}
	if closing != nil && closing.At.After(t) {
		closing = nil
	}
	if opening == nil || closing != nil && closing.At.After(opening.At) {
		return closing, false
	}
	return opening, true
}

// ClosedAt returns the time of the latest request to close that took effect by t; zero: none.
func (in Input) ClosedAt(t time.Time) time.Time {
	if r := in.Requests.Close; r != nil && !r.At.After(t) {
		return r.At
	}
	return time.Time{}
}

// changes are the changes of the state of a calendar, in the order of time. Each is searched once.
type changes struct {
	calendar *calendar.Calendar
	next     time.Time
	searched bool
}

// after returns the first change after t, which is not before the last time asked for; zero if it is unknown, then also
// for all later times.
func (c *changes) after(t time.Time) time.Time {
	if !c.searched || !c.next.IsZero() && !c.next.After(t) {
		c.next, c.searched = c.calendar.Next(t), true
	}
	return c.next
}

// boundary returns the first time after t at which the verdict may change without further events; zero: unknown.
func (in Input) boundary(t time.Time, scheduled *changes) time.Time {
	times := []time.Time{scheduled.after(t)}
	for _, r := range []*Request{in.Requests.Open, in.Requests.Close, in.Requests.Override} {
		if r != nil {
			times = append(times, r.At, r.end(in.Window))
		}
	}
	if in.Rule != nil || len(in.Failures) > 0 {
		for _, a := range in.Approvals {
			times = append(times, a.At, in.expiry(a))
		}
	}
	for _, c := range in.Checks {
		if c.Promotion != nil {
			times = append(times, c.Promotion.NextAt)
		}
	}
	var first time.Time
	for _, at := range times {
		if at.After(t) && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// expiry returns when an approval expires; zero: never.
func (in Input) expiry(a Approval) time.Time {
	if in.Rule == nil {
		return Rule{}.expiry(a)
	}
	return in.Rule.expiry(a)
}

// State returns the name of the state in the API.
func State(open bool) gatingv1.State {
	if open {
		return gatingv1.Opened
	}
	return gatingv1.Closed
}

func word(open bool) string { return string(State(open)) }

// seconds returns a time with the precision of the API.
func seconds(t time.Time) meta.Time { return meta.TimeOf(t.UTC().Truncate(time.Second)) }

// people lists up to 5 names, and the number of others.
func people(names []string) string {
	const most = 5
	if len(names) > most {
		return clip(strings.Join(names[:most], ", ")) + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return clip(strings.Join(names, ", "))
}
