package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
)

const receiverKind = notificationv1.ReceiverKind

// clockSkew is how much later the clock of who commits may be than that of the cluster.
const clockSkew = time.Minute

// digestOf returns the commit or digest in a revision; empty if there is none.
func digestOf(revision string) string {
	digest := revision[strings.LastIndexByte(revision, ':')+1:]
	if !commitPattern.MatchString(digest) {
		return ""
	}
	return digest
}

// pushSteps returns the steps before a source from git fetches: the pull request, the push and the webhook.
func (w *whyer) pushSteps(s *Item) []Step {
	var steps []Step
	if w.pull != "" && w.isMerged(s) {
		steps = append(steps, Step{Name: "pull request", State: Done, Text: fmt.Sprintf("#%s is merged: %s", w.pull,
			s.Subject)})
	}
	if made := w.madeBy(s); made != nil && made.PullRequest != "" {
		steps = append(steps, Step{Name: "pull request", Object: made.ID, State: Done, URL: made.PullRequest,
			Text: "the commit is merged"})
	}
	t := s.Times
	if t == nil || t.Committed.IsZero() || s.Pending != "" {
		return steps // what waits at the gate of a source is not fetched, so its commit is not known
	}
	push := Step{Name: "push", Object: s.ID, State: Done, At: t.Committed, From: t.Committed, Text: "committed"}
	if s.Author != "" {
		push.Text += " by " + s.Author
	}
	if s.Subject != "" {
		push.Text += ": " + s.Subject
	}
	return append(steps, push, w.webhookStep(s))
}

// madeBy returns what made the commit of a source, if an object did.
func (w *whyer) madeBy(s *Item) *Item {
	digest := digestOf(s.Revision)
	for _, i := range w.byID {
		if i.commits() && digest != "" && i.Revision == digest {
			return i
		}
	}
	return nil
}

// webhookStep says whether a webhook asked for the commit of a source.
func (w *whyer) webhookStep(s *Item) Step {
	step := Step{Name: "webhook", Object: s.ID, State: Skipped}
	every := "at its interval"
	if s.Times.interval > 0 {
		every = "every " + s.Times.interval.String()
	}
	r := w.receiverOf(s)
	if r == nil {
		step.Text = "no Receiver selects this source: it looks " + every
		step.Do = "create a Receiver, so that a push is fetched at once"
		return step
	}
	step.Object = r.ID
	switch {
	case r.State == Failed || r.State == Suspended:
		step.Text = fmt.Sprintf("the Receiver is %s, so the source looks %s: %s", r.State, every, r.Message)
		step.Do = "correct the Receiver"
	case s.Times.Asked.Before(s.Times.Committed.Add(-clockSkew)):
		step.Text = "no webhook came for this commit: the source looks " + every
		step.Do = "look at the deliveries of the webhook at the git host"
	case s.Times.Asked.After(s.Changed):
		step.Text = "the last webhook came after the commit was fetched"
	default:
		step.State, step.At, step.Text = Done, s.Times.Asked, "asked for the commit"
	}
	return step
}

// receiverOf returns the Receiver that selects a source; one that works, if there are several.
func (w *whyer) receiverOf(s *Item) *Item {
	var found *Item
	for _, r := range w.receivers {
		for _, id := range r.Triggers {
			if id != s.ID && id != ID(s.Kind, s.Namespace, notificationv1.AnyName) {
				continue
			}
			if found == nil || r.State == Ready {
				found = r
			}
		}
	}
	return found
}

func (w *whyer) sourceStep(s *Item) Step {
	step := Step{Name: "source", Object: s.ID, From: s.Since}
	switch {
	case s.Pending != "" && (w.has(s.Pending) || len(w.revisions) == 0):
		w.hold(&step, s)
	case s.State == Failed:
		step.State, step.Text = Blocked, s.Message
		step.Do = Advise(s.Namespace, s.Message, "correct what the message names, then reconcile the source")
	case s.State == Suspended:
		step.State, step.Text, step.Do = Blocked, "is suspended", "resume it"
	case s.Revision == "":
		step.State, step.Text = Current, s.Message
	default:
		step.State, step.Text, step.At, step.From = Done, "fetched "+s.Revision, s.Changed, time.Time{}
		if step.Trace = s.trace; s.trace != "" {
			step.Text += "; trace " + s.trace
		}
	}
	return step
}

func (w *whyer) gateStep(i *Item) Step {
	step := Step{Name: "gate", Object: i.Gates[0], State: Done, Text: "let the revision through"}
	switch {
	case w.isReverted(i):
		return revertedStep(i)
	case i.Pending != "":
		w.hold(&step, i)
	case i.Times != nil && !i.Times.Same:
		step.At = i.Times.Started
	}
	return step
}

// dependencyStep says which dependency an object waits for.
func (w *whyer) dependencyStep(i *Item) Step {
	step := Step{Name: "dependencies", Object: i.DependsOn[0], State: Done, Text: "are ready"}
	if i.State != Waiting || i.Pending != "" {
		return step
	}
	blocks := slices.IndexFunc(i.DependsOn, func(id string) bool {
		_, name, _ := strings.Cut(id, "/")
		return strings.Contains(i.Message, "'"+id+"'") || strings.Contains(i.Message, "'"+name+"'")
	})
	if blocks < 0 {
		blocks = max(0, slices.IndexFunc(i.DependsOn, func(id string) bool {
			d := w.byID[id]
			return d == nil || d.State != Ready
		}))
	}
	step.Object = i.DependsOn[blocks]
	step.State, step.From, step.Text = Blocked, i.Since, i.Message
	step.Do = "ask why that is not ready: sluice why " + step.Object
	if w.byID[step.Object] == nil {
		step.Do = "create it, or correct what the message names" // of another kind, or missing
	}
	return step
}

// buildStep says when the objects of a Kustomization were built from the source.
func (w *whyer) buildStep(i *Item) Step {
	step := Step{Name: "build", Object: i.ID, State: Done, Text: "built"}
	switch {
	case i.State == Failed && (i.Reason == meta.BuildFailedReason || i.Reason == meta.ArtifactFailedReason):
		step.State, step.From, step.Text = Blocked, i.Since, i.Message
		step.Do = Advise(i.Namespace, i.Message, "correct what the message names in git")
	case i.State == Suspended || !w.isApplied(i) && i.State != Failed && i.State != Ready:
		step.State, step.Text = Current, cmp.Or(i.Message, "not built yet")
	case i.Times == nil:
	case i.Times.Same:
		step.Text = "the revision changes nothing in what is built"
	default:
		step.From, step.At = i.Times.Started, i.Times.Built
	}
	if i.State == Suspended {
		step.State, step.Text, step.Do = Blocked, "is suspended", "resume it"
	}
	return step
}

// isApplied reports whether the revision in question is applied.
func (w *whyer) isApplied(i *Item) bool {
	revision := i.applied()
	if len(w.revisions) == 0 && revision != "" && (i.Attempted == "" || i.Attempted == revision) || w.has(revision) {
		return true
	}
	// A chart has a version, not a commit: what was released from a source that is current is current.
	return revision != "" && slices.ContainsFunc(i.Sources, func(id string) bool {
		return w.byID[id] != nil && w.byID[id].Revision == revision
	})
}

func (w *whyer) applyStep(i *Item) Step {
	step := Step{Name: "apply", Object: i.ID, From: i.Since, Text: i.Message}
	switch {
	case i.State == Suspended:
		step.State, step.Text, step.Do = Blocked, "is suspended", "resume it"
	case i.State == Failed && !isHealthFailure(i.Reason):
		step.State, step.Do = Blocked, Advise(i.Namespace, i.Message, "correct what the message names")
	case i.State == Waiting && i.Pending == "":
		step.State, step.Do = Blocked, "look at what it waits for"
	case w.isApplied(i) || i.State == Ready || i.State == Failed:
		step.State, step.Text, step.From = Done, "applied "+i.applied(), time.Time{}
		if step.At = i.Changed; i.Times != nil && i.Times.Same {
			step.At = time.Time{}
		}
	default:
		step.State = Current
	}
	return step
}

// isHealthFailure reports whether objects were applied, but are not healthy.
func isHealthFailure(reason string) bool {
	return reason == meta.HealthCheckFailedReason || reason == meta.HealthCheckCanceledReason ||
		reason == helmv2.TestFailedReason
}

func healthStep(i *Item) Step {
	step := Step{Name: HealthStep, Object: i.ID, From: i.Since, Text: i.Message}
	switch i.State {
	case Ready:
		step.State, step.Text, step.From = Done, "all applied objects are healthy", time.Time{}
		if !i.checked && i.Kind == kustomizev1.KustomizationKind {
			step.Text = "is not waited for: spec.wait and spec.healthChecks are not set"
		}
		step.At = i.Since
	case Failed:
		step.State = Blocked
		step.Do = Advise(i.Namespace, i.Message, "look at the objects that are not healthy, and their logs")
	default:
		step.State, step.From, step.Do = Current, time.Time{}, Advise(i.Namespace, i.Message, "")
	}
	return step
}

// applied returns the revision that was applied last, also if it is not healthy yet.
func (i *Item) applied() string {
	if i.Attempted != "" && (i.waits || isHealthFailure(i.Reason)) {
		return i.Attempted
	}
	return i.Revision
}

// deletionStep says what holds the deletion of an object.
func deletionStep(i *Item) Step {
	step := Step{Name: "deletion", Object: i.ID, State: Blocked, From: i.Deleting, Text: "was requested; " + i.Message}
	step.Do = DeletionAdvice(i.Kind, i.Namespace, i.Name, i.Finalizers)
	if len(i.Finalizers) > 0 {
		step.Text = "was requested; finalizers hold the object: " + strings.Join(i.Finalizers, ", ") + ". " + i.Message
	}
	return step
}

// gateItself says whether a gate is open, and what waits at it.
func (w *whyer) gateItself(i *Item) Step {
	step := Step{Name: "gate", Object: i.ID, State: Done, From: i.Since, Text: "is open"}
	if i.State == Failed {
		step.State, step.Text = Blocked, i.Message
		step.Do = Advise(i.Namespace, i.Message, "correct what the message names")
		return step
	}
	if g := i.Gate; g != nil && !g.Open {
		step.Text = "is closed; nothing waits: " + g.Why
		if len(g.Waiting) > 0 {
			step.State, step.Text, step.Until = Blocked, "is closed: "+g.Why, g.Until
			step.Do, step.Until = g.next(&Item{Pending: g.Waiting[0].Revision, ID: g.Waiting[0].ID})
		}
	}
	return step
}

// itselfStep is the only step of an object that neither deploys nor is deployed from.
func itselfStep(i *Item) Step {
	step := Step{Name: "state", Object: i.ID, From: i.Since, Text: i.Message}
	switch i.State {
	case Ready:
		step.State = Done
	case Suspended:
		step.State, step.Text, step.Do = Blocked, "is suspended", "resume it"
	case Failed, Waiting:
		step.State, step.Do = Blocked, Advise(i.Namespace, i.Message, "correct what the message names")
	default:
		step.State = Current
	}
	return step
}

// unmerged returns the way of a commit that an object made and that no source has fetched.
func (w *whyer) unmerged(i *Item) Chain {
	c := Chain{Target: i}
	switch {
	case i.Pending != "":
		step := Step{Name: "gate", Object: i.ID}
		w.hold(&step, i)
		c.add(step)
	case i.State == Failed:
		c.add(Step{Name: "commit", Object: i.ID, State: Blocked, From: i.Since, Text: i.Message,
			Do: "correct what the message names"})
	case i.State == Suspended:
		c.add(Step{Name: "commit", Object: i.ID, State: Blocked, Text: "is suspended", Do: "resume it"})
	case i.Revision == "":
		c.add(Step{Name: "commit", Object: i.ID, State: Current, From: i.Since, Text: i.Message})
	default:
		c.add(Step{Name: "commit", Object: i.ID, State: Done, At: i.Changed, Text: "pushed " + i.Revision})
	}
	if i.PullRequest != "" {
		c.add(Step{Name: "pull request", Object: i.ID, State: Current, URL: i.PullRequest,
			Text: "it is not merged, or no source has fetched the merge", Do: "review and merge it"})
	}
	c.add(Step{Name: "source", State: Current, Text: "no source has fetched the commit",
		Do: "check which branch the sources follow, and reconcile the source"})
	return c
}
