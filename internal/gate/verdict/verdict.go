// Package verdict says whether a gate is open: by its default, what was asked of it, its calendar, approvals
// and checks, at a time. It remembers nothing: a gate that nobody looked at for a while is as it would be had
// somebody.
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

// Case is all that a verdict depends on.
type Case struct {
	Opened      bool          // by default
	Window      time.Duration // of requests; zero: they hold until the opposite one
	Calendar    *calendar.Calendar
	Overridable bool // requests win over the calendar
	Requests    Requests
	Rule        *Rule // nil: it needs no approvals
	Approvals   []Approval
	Checks      []Check
}

// Check is what is known of a check.
type Check struct {
	Name    string
	Holds   bool
	Message string
}

// Verdict is what a gate is, and why.
type Verdict struct {
	Open      bool
	Message   string   // of the condition
	Reason    string   // of status.why
	Why       string   // for people
	Revisions []string // the only ones let through; all when empty
	By, From  string   // who asked for it, and by what client, where somebody did

	RequestedAt, ResetAt time.Time // of the latest request that took effect
	Approvals            []gatingv1.ObservedApproval

	Next time.Time // when the clock alone makes it the opposite; zero: not in sight
	Look time.Time // when something of the verdict may change; zero: not in sight
}

// maxBoundaries bounds the search for the next transition.
const maxBoundaries = 100

// Of returns the verdict at a time.
func Of(c Case, now time.Time) Verdict {
	v := c.at(now)
	if c.Rule != nil {
		v.Approvals = c.Rule.observe(c.Approvals, c.closedAt(now), now)
	}
	v.Look = c.boundary(now)
	for t, i := v.Look, 0; !t.IsZero() && i < maxBoundaries; t, i = c.boundary(t), i+1 {
		if c.at(t).Open != v.Open {
			v.Next = t
			break
		}
	}
	return v
}

// at returns the verdict at t but for what comes after.
func (c Case) at(t time.Time) Verdict {
	if o := c.Requests.Override; o != nil && o.holds(c.Window, t) && !c.closedAt(t).After(o.At) {
		v := c.requested(o, true, false, t)
		v.Reason, v.Why = gatingv1.WhyOverridden, "Overridden by "+o.By+": "+o.Reason
		return v
	}
	v := c.base(t)
	var approved tally
	if c.Rule != nil {
		approved = c.Rule.count(c.Approvals, c.closedAt(t), t)
		if !v.Open && approved.enough() && c.approvable(t) {
			v.Open, v.Reason, v.By, v.From = true, gatingv1.WhyApproved, "", ""
			v.Message = "Gate opened by approval"
			v.Why = "Approved by " + people(approved.users)
		}
	}
	if v.Open && c.Rule != nil {
		v.limit(c.Rule, approved)
	}
	if v.Open {
		v.check(c.Checks)
	}
	return v
}

// approvable tells whether approvals open the gate at t by themselves: where the calendar neither closes it
// nor opens it at times.
func (c Case) approvable(t time.Time) bool {
	scheduled, _ := c.Calendar.At(t)
	return scheduled == calendar.None && !c.Calendar.Opens()
}

// limit closes a gate that lacks approvals, or has them for other revisions.
func (v *Verdict) limit(rule *Rule, approved tally) {
	if !approved.enough() || !approved.all && len(v.Revisions) > 0 &&
		!slices.Contains(approved.revisions, v.Revisions[0]) {
		v.Open, v.Revisions, v.Reason = false, nil, gatingv1.WhyApprovalRequired
		v.Message = "Gate closed: it has " + rule.missing(approved)
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

// check closes a gate whose checks do not all hold.
func (v *Verdict) check(checks []Check) {
	for _, check := range checks {
		if !check.Holds {
			v.Open, v.Revisions, v.Reason, v.By, v.From = false, nil, gatingv1.WhyCheckFailed, "", ""
			v.Message = fmt.Sprintf("Gate closed: check '%s' does not hold", check.Name)
			v.Why = v.Message + ": " + check.Message
			return
		}
	}
}

// base is the verdict by default, calendar and requests.
func (c Case) base(t time.Time) Verdict {
	open := c.Opened
	v := Verdict{Reason: gatingv1.WhyDefault}
	scheduled, entry := c.Calendar.At(t)
	if scheduled != calendar.None {
		open, v.Reason = scheduled == calendar.Opened, gatingv1.WhyScheduled
	}
	request, opens := c.latest(t)
	if request != nil && (scheduled == calendar.None || c.Overridable) {
		if request.holds(c.Window, t) || scheduled == calendar.None && opens == open {
			return c.requested(request, opens, open, t)
		}
		v.RequestedAt, v.ResetAt = request.At, request.end(c.Window)
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

// requested is the verdict of a request that is in force, where the gate would be otherwise without it.
func (c Case) requested(r *Request, opens, otherwise bool, t time.Time) Verdict {
	v := Verdict{Open: opens, Reason: gatingv1.WhyRequested, By: r.By, From: r.From, RequestedAt: r.At}
	v.Message = "Gate close requested"
	if opens {
		v.Message = "Gate open requested"
		if r.Revision != "" {
			v.Revisions = []string{r.Revision}
		}
	}
	if opens == otherwise {
		v.ResetAt = r.At
	} else if end := c.ends(r, opens, t); !end.IsZero() {
		v.ResetAt = end
		v.Message = "Gate scheduled for opening at " + stamp(end)
		if opens {
			v.Message = "Gate scheduled for closing at " + stamp(end)
		}
	}
	v.Why = v.Message
	if r.By != "" {
		v.Why += ", as " + r.By + " asked"
	}
	if r.Reason != "" {
		v.Why += ": " + r.Reason
	}
	return v
}

// ends returns when a request in force ends: with its window, or when the opposite one takes effect that was
// made for a time to come.
func (c Case) ends(r *Request, opens bool, t time.Time) time.Time {
	end, opposite := r.end(c.Window), c.Requests.Open
	if opens {
		opposite = c.Requests.Close
	}
	if opposite != nil && opposite.At.After(t) && (end.IsZero() || opposite.At.Before(end)) {
		return opposite.At
	}
	return end
}

// latest returns the latest request to open or to close that took effect by t, and whether it opens.
func (c Case) latest(t time.Time) (*Request, bool) {
	opening, closing := c.Requests.Open, c.Requests.Close
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

// closedAt is when the gate was last asked to close, by t; zero: never.
func (c Case) closedAt(t time.Time) time.Time {
	if r := c.Requests.Close; r != nil && !r.At.After(t) {
		return r.At
	}
	return time.Time{}
}

// boundary returns the first time after t at which the clock may change the verdict; zero: not in sight.
func (c Case) boundary(t time.Time) time.Time {
	times := []time.Time{c.Calendar.Next(t)}
	for _, r := range []*Request{c.Requests.Open, c.Requests.Close, c.Requests.Override} {
		if r != nil {
			times = append(times, r.At, r.end(c.Window))
		}
	}
	if c.Rule != nil {
		for _, a := range c.Approvals {
			times = append(times, a.At, c.Rule.until(a))
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

// State is what the API calls it.
func State(open bool) gatingv1.State {
	if open {
		return gatingv1.Opened
	}
	return gatingv1.Closed
}

func word(open bool) string { return string(State(open)) }

func at(t time.Time) meta.Time { return meta.TimeOf(t.UTC().Truncate(time.Second)) }

// people lists names, some of them.
func people(names []string) string {
	const most = 5
	if len(names) > most {
		return clip(strings.Join(names[:most], ", ")) + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return clip(strings.Join(names, ", "))
}
