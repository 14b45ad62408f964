package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
)

const (
	openGate = "open or approve the gate, or wait for its schedule"
	fixInGit = "commit a fix: it passes by the rules of the gate. To try this revision again, open or approve the " +
		"gate for it by its name"
)

// isReverted reports whether the question is about a revision from which gates made an object go back.
func (w *whyer) isReverted(i *Item) bool {
	r := i.Reverted
	return r != nil && (w.has(r.From) || len(w.revisions) == 0 && (i.Pending == "" || sameContent(i.Pending, r.From)))
}

// revertedStep is the step of a gate that made an object go back.
func revertedStep(i *Item) Step {
	r := i.Reverted
	return Step{Name: "gate", Object: r.Gate, State: Blocked, From: r.Since,
		Text: fmt.Sprintf("%s was reverted to %s because %s", r.From, r.To, r.Reason), Do: fixInGit}
}

// sameContent reports whether two revisions are the same commit or digest, by any branch or tag.
func sameContent(a, b string) bool {
	return a != "" && (a == b || digestOf(a) != "" && digestOf(a) == digestOf(b))
}

// hold makes a step say which gate holds the change of an object, why, until when, and what to do.
func (w *whyer) hold(step *Step, i *Item) {
	step.State, step.From, step.Text, step.Do = Blocked, i.PendingSince, i.Pending+" waits", openGate
	if i.Risk != "" {
		step.Text += ", " + i.Risk + " risk"
	}
	why := i.Held
	if g := w.holder(i); g != nil {
		step.Object = g.ID
		why = cmp.Or(why, g.Gate.Why)
		step.Do, step.Until = g.Gate.next(i)
	}
	if why != "" {
		step.Text += ": " + why
	}
}

// holder returns the first gate that holds the change of an object; nil if there is none that the user may see.
func (w *whyer) holder(i *Item) *Item {
	for _, id := range i.HeldBy {
		if g := w.byID[id]; g != nil && g.Gate != nil {
			return g
		}
	}
	return nil
}

// next returns what to do about a change that waits at the gate, and when it goes on by itself, if that is known.
func (g *Gate) next(i *Item) (do string, until time.Time) {
	if slices.ContainsFunc(g.Failures, func(f Failure) bool { return sameContent(f.Revision, i.Pending) }) {
		return fixInGit, time.Time{}
	}
	if g.Reason == gatingv1.WhyRevisionFailed {
		return "repair the objects that failed, or let one revision pass: open or approve the gate for it by its name",
			time.Time{}
	}
	for _, w := range g.Waiting {
		if w.ID == i.ID && w.Rule != "" {
			return g.satisfy(w.Rule), time.Time{}
		}
	}
	for _, c := range g.Checks {
		if do := c.next(i.Pending); do != "" {
			return do, c.until(i.Pending)
		}
	}
	for _, w := range g.Waves {
		if !w.Complete && sameContent(w.Revision, i.Pending) {
			return "wait for its wave, or repair what holds the wave before: " + w.Message, w.Until
		}
	}
	switch {
	case g.Open:
		return "look at which revisions the gate allows", time.Time{}
	case g.Reason == gatingv1.WhyApprovalRequired:
		return "ask those to approve it who may: the page of the gate names them", time.Time{}
	case !g.Until.IsZero():
		return "wait until the gate opens by itself, or open it", g.Until
	}
	return openGate, time.Time{}
}

// satisfy returns what to do about a rule that holds a change.
func (g *Gate) satisfy(name string) string {
	for _, r := range g.Rules {
		if r.Name != name {
			continue
		}
		//exhaustive:enforce
		switch gatingv1.Outcome(r.Outcome) {
		case gatingv1.OutcomePass, gatingv1.OutcomeDeny:
		case gatingv1.OutcomeApprovals:
			return fmt.Sprintf("have the change approved, as rule '%s' requires: by %s", name, r.approvers())
		}
	}
	return fmt.Sprintf("change it in git, so that rule '%s' lets it pass", name)
}

// approvers names who may approve by a rule.
func (r Rule) approvers() string {
	const most = 5
	who := slices.Clone(r.Users)
	for _, group := range r.Groups {
		who = append(who, "members of "+group)
	}
	if len(who) == 0 {
		return "anybody who may create a GateApproval"
	}
	text := strings.Join(who[:min(len(who), most)], " or ")
	if n := len(who) - most + r.Omitted; n > 0 {
		text += fmt.Sprintf(" or %d others", n)
	}
	return text
}

// next returns what to do until a check lets a revision pass; nothing if it does.
func (c Check) next(revision string) string {
	switch {
	case c.By == "" && c.Holds, c.By != "" && sameContent(c.Promoted, revision):
		return ""
	case c.By == "":
		return fmt.Sprintf("make check '%s' pass, or override the gate", c.Name)
	case sameContent(c.Soaks, revision):
		return fmt.Sprintf("wait: it goes on by itself if %s stays Ready until then. Or override the gate", c.By)
	}
	return fmt.Sprintf("look at %s: the revision passes when that has been Ready at it for long enough. Or override "+
		"the gate", c.By)
}

// until returns when a check lets a revision pass that soaks; zero if that is not known.
func (c Check) until(revision string) time.Time {
	if !sameContent(c.Soaks, revision) {
		return time.Time{}
	}
	return c.Until
}
