package view

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
)

// maxChains bounds the answer to one question.
const maxChains = 50

// StepState is how far a change is at a step.
type StepState string

// States of a step.
const (
	Done    StepState = "done"
	Current StepState = "current"
	Blocked StepState = "blocked"
	Ahead   StepState = "ahead" // not reached
)

// Step is a part of the way of a change.
type Step struct {
	Name   string    `json:"name"` // source, gate, apply or health
	Object string    `json:"object"`
	State  StepState `json:"state"`
	Text   string    `json:"text"`
	At     time.Time `json:"at,omitzero"` // when the step ended, or when it became blocked
	Do     string    `json:"do,omitempty"`
}

// Chain is the way of a change to one object that deploys.
type Chain struct {
	Target *Item  `json:"target"`
	Live   bool   `json:"live"`
	Steps  []Step `json:"steps"`
}

// Answer says why a change is or is not live.
type Answer struct {
	Chains []Chain `json:"chains"`
	Note   string  `json:"note,omitempty"`
}

// commitPattern matches the beginning of a commit or digest.
var commitPattern = regexp.MustCompile(`^[0-9a-f]{7,64}$`)

// Why answers where a change is. The query is a commit, a revision, an image, or words that name objects.
func Why(items []*Item, query string) *Answer {
	query = strings.ToLower(strings.TrimSpace(query))
	byID := make(map[string]*Item, len(items))
	for _, i := range items {
		byID[i.ID] = i
	}
	if query == "" {
		return &Answer{Note: "Enter a commit, a revision, an image or the name of an object."}
	}
	revision := query
	if i := strings.LastIndexByte(query, ':'); i >= 0 && commitPattern.MatchString(query[i+1:]) {
		revision = query[i+1:]
	}
	if !commitPattern.MatchString(revision) {
		revision = ""
	}
	w := &whyer{byID: byID, revision: revision}
	a := &Answer{Chains: []Chain{}}
	for _, i := range items {
		if i.deploys() && w.concerns(i, query) && len(a.Chains) < maxChains {
			a.Chains = append(a.Chains, w.chain(i))
		}
	}
	if len(a.Chains) == 0 {
		a.Note = noMatch(revision != "")
	}
	slices.SortStableFunc(a.Chains, func(x, y Chain) int { return order(x.Live) - order(y.Live) })
	return a
}

func order(live bool) int {
	if live {
		return 1
	}
	return 0
}

func noMatch(isCommit bool) string {
	if isCommit {
		return "No source has fetched this revision. It is not pushed, it is on a branch that no source follows, the " +
			"source has not looked since, or a later revision replaced it. Check the sources for failures, or " +
			"reconcile the source now."
	}
	return "Nothing that deploys matches. Enter a part of a name, namespace, image or revision."
}

// deploys reports whether the object applies other objects.
func (i *Item) deploys() bool {
	return i.Kind == kustomizev1.KustomizationKind || i.Kind == helmv2.HelmReleaseKind
}

type whyer struct {
	byID     map[string]*Item
	revision string // commit or digest; empty for other queries
}

// concerns reports whether a query is about an object that deploys: about itself or one of its sources.
func (w *whyer) concerns(i *Item, query string) bool {
	for _, o := range append(w.sources(i), i) {
		if w.revision != "" && (w.has(o.Revision) || w.has(o.Pending)) || w.revision == "" && o.Matches(query) {
			return true
		}
	}
	return false
}

// has reports whether a revision is the one of the query.
func (w *whyer) has(revision string) bool {
	_, digest, found := strings.Cut(revision, ":")
	return found && w.revision != "" && strings.HasPrefix(digest, w.revision)
}

// sources returns what an object is built from, directly and indirectly, nearest first. It stops at cycles.
func (w *whyer) sources(i *Item) []*Item {
	var found []*Item
	seen := map[string]bool{i.ID: true}
	for queue := slices.Clone(i.Sources); len(queue) > 0; queue = queue[1:] {
		if s := w.byID[queue[0]]; s != nil && !seen[s.ID] {
			seen[s.ID] = true
			found = append(found, s)
			queue = append(queue, s.Sources...)
		}
	}
	return found
}

// chain returns the steps of an object, first source first.
func (w *whyer) chain(i *Item) Chain {
	c := Chain{Target: i}
	sources := w.sources(i)
	slices.Reverse(sources)
	for _, s := range sources {
		c.add(w.sourceStep(s))
	}
	if len(sources) == 0 && len(i.Sources) > 0 {
		c.add(Step{Name: "source", Object: i.Sources[0], State: Blocked,
			Text: "the source does not exist, or you may not see it", Do: "check spec.sourceRef"})
	}
	if len(i.Gates) > 0 {
		c.add(w.gateStep(i))
	}
	c.add(w.applyStep(i))
	c.add(healthStep(i))
	c.Live = !slices.ContainsFunc(c.Steps, func(s Step) bool { return s.State != Done })
	return c
}

// add appends a step. Behind a step that is not done, nothing is reached.
func (c *Chain) add(s Step) {
	if slices.ContainsFunc(c.Steps, func(before Step) bool { return before.State != Done }) {
		s = Step{Name: s.Name, Object: s.Object, State: Ahead, Text: "not reached"}
	}
	c.Steps = append(c.Steps, s)
}

func (w *whyer) sourceStep(s *Item) Step {
	step := Step{Name: "source", Object: s.ID, At: s.Since}
	switch {
	case w.has(s.Pending):
		step.State, step.Text = Blocked, "waits at a gate: "+s.Message
		step.Do = "open or approve the gate, or wait for its schedule"
	case s.State == Failed:
		step.State, step.Text, step.Do = Blocked, s.Message, "correct what the message names, then reconcile the source"
	case s.State == Suspended:
		step.State, step.Text, step.Do = Blocked, "is suspended", "resume it"
	case s.Revision == "":
		step.State, step.Text = Current, s.Message
	default:
		step.State, step.Text, step.At = Done, "fetched "+s.Revision, s.Changed
	}
	return step
}

func (w *whyer) gateStep(i *Item) Step {
	step := Step{Name: "gate", Object: i.Gates[0], State: Done, Text: "let the revision through"}
	if i.Pending == "" {
		return step
	}
	var closed []string
	for _, id := range i.Gates {
		if g := w.byID[id]; g == nil || g.Gate == nil || !g.Gate.Open {
			closed = append(closed, id)
		}
	}
	if len(closed) > 0 {
		step.Object = closed[0]
	}
	step.State, step.At = Blocked, i.Since
	step.Text = fmt.Sprintf("%s waits", i.Pending)
	step.Do = "open or approve the gate, or wait for its schedule"
	if g := w.byID[step.Object]; g != nil && g.Gate != nil && g.Gate.Why != "" {
		step.Text += ": " + g.Gate.Why
	}
	return step
}

func (w *whyer) applyStep(i *Item) Step {
	step := Step{Name: "apply", Object: i.ID, At: i.Since, Text: i.Message}
	applied := w.revision == "" && i.Revision != "" || w.has(i.Revision)
	for _, s := range i.Sources {
		// A chart has a version, not a commit: what was released from a source that is current is current.
		applied = applied || w.byID[s] != nil && i.Revision != "" && w.byID[s].Revision == i.Revision
	}
	switch {
	case i.State == Suspended:
		step.State, step.Text, step.Do = Blocked, "is suspended", "resume it"
	case i.State == Failed:
		step.State, step.Do = Blocked, "correct what the message names"
	case i.State == Waiting && i.Pending == "":
		step.State, step.Do = Blocked, "look at what it waits for"
	case applied || i.State == Ready:
		step.State, step.Text, step.At = Done, "applied "+i.Revision, i.Changed
	default:
		step.State = Current
	}
	return step
}

func healthStep(i *Item) Step {
	step := Step{Name: "health", Object: i.ID, At: i.Since, Text: i.Message}
	switch i.State {
	case Ready:
		step.State, step.Text = Done, "all applied objects are healthy"
	case Failed:
		step.State = Blocked
	default:
		step.State = Current
	}
	return step
}
