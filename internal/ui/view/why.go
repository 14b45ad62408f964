package view

import (
	"slices"
	"time"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
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
	Ahead   StepState = "ahead"   // not reached
	Skipped StepState = "skipped" // the change went on without it
)

// Step is a part of the way of a change.
type Step struct {
	Name   string    `json:"name"`
	Object string    `json:"object,omitempty"` // ID
	State  StepState `json:"state"`
	Text   string    `json:"text"`
	URL    string    `json:"url,omitempty"`
	Trace  string    `json:"trace,omitempty"` // ID of the OpenTelemetry trace of the change
	From   time.Time `json:"from,omitzero"`   // when the step began, if that is known
	At     time.Time `json:"at,omitzero"`     // when it ended; of a step that is not done: zero
	Until  time.Time `json:"until,omitzero"`  // when it ends by itself, if that is known
	Do     string    `json:"do,omitempty"`    // what to do about it
}

// Chain is the way of a change to one object that deploys.
type Chain struct {
	Target *Item  `json:"target"`
	Live   bool   `json:"live"`
	Steps  []Step `json:"steps"`
}

// Answer says why a change is or is not live.
type Answer struct {
	Chains  []Chain `json:"chains"`
	Omitted int     `json:"omitted"` // chains above the limit
	Note    string  `json:"note,omitempty"`
}

// Why answers where a change is. The query is a commit, a revision, a pull request, an image, or words that name
// objects. Targets are IDs of objects that the query is about, too, such as those that applied a workload.
func Why(items []*Item, query string, targets ...string) *Answer {
	w := &whyer{byID: make(map[string]*Item, len(items)), question: newQuestion(query)}
	w.words, w.targets = w.isWords(), targets
	if w.text == "" {
		return &Answer{Chains: []Chain{}, Note: "Enter a commit, a revision, a pull request, an image or the name of " +
			"an object or workload."}
	}
	for _, i := range items {
		w.byID[i.ID] = i
		if i.Kind == receiverKind {
			w.receivers = append(w.receivers, i)
		}
	}
	made := w.addCommits(items)
	a := &Answer{Chains: []Chain{}}
	for _, i := range items {
		if i.deploys() && w.concerns(i) {
			a.add(w.chain(i))
		}
	}
	for _, i := range made {
		if !w.isFetched(items, i) {
			a.add(w.unmerged(i))
		}
	}
	if len(a.Chains) == 0 {
		a.Note = w.noMatch()
	}
	slices.SortStableFunc(a.Chains, func(x, y Chain) int { return order(x.Live) - order(y.Live) })
	return a
}

func (a *Answer) add(c Chain) {
	if len(a.Chains) == maxChains {
		a.Omitted++
		return
	}
	a.Chains = append(a.Chains, c)
}

func order(live bool) int {
	if live {
		return 1
	}
	return 0
}

func (w *whyer) noMatch() string {
	switch {
	case w.pull != "":
		return "No source has fetched a commit that names this pull request. It is not merged, it was merged into a " +
			"branch that no source follows, its commit does not name it, or a later commit followed. Ask for its " +
			"commit instead."
	case len(w.revisions) > 0:
		return "No source has fetched this revision. It is not pushed, it is on a branch that no source follows, the " +
			"source has not looked since, or a later revision replaced it. Check the sources for failures, or " +
			"reconcile the source now."
	}
	return "Nothing that deploys matches. Enter a part of a name, namespace, image or revision, or a workload as " +
		"Deployment/namespace/name."
}

// deploys reports whether the object applies other objects.
func (i *Item) deploys() bool {
	return i.Kind == kustomizev1.KustomizationKind || i.Kind == helmv2.HelmReleaseKind
}

// commits reports whether the object commits to git.
func (i *Item) commits() bool {
	return i.Kind == imagev1.ImageUpdateAutomationKind || i.Kind == imagev1alpha1.ImageUpdateJobKind
}

type whyer struct {
	question
	words     bool // the question is about words
	byID      map[string]*Item
	receivers []*Item
}

// addCommits adds to the question the commits that bring an image or a pull request, and returns what made them.
func (w *whyer) addCommits(items []*Item) []*Item {
	var made []*Item
	for _, i := range items {
		isAsked := w.opened(i) || w.words && i.Image != "" && i.commits() && i.Matches(w.text)
		switch {
		case i.commits() && isAsked:
			made = append(made, i)
			if i.Revision != "" {
				w.revisions = append(w.revisions, i.Revision)
			}
		case w.isMerged(i):
			if digest := digestOf(i.Revision); digest != "" {
				w.revisions = append(w.revisions, digest)
			}
		}
	}
	return made
}

// isFetched reports whether a source has the commit that an object made.
func (w *whyer) isFetched(items []*Item, made *Item) bool {
	only := question{revisions: []string{made.Revision}}
	return slices.ContainsFunc(items, func(i *Item) bool {
		return !i.commits() && (made.Revision != "" && only.has(i.Revision) || w.isMerged(i))
	})
}

// concerns reports whether the question is about an object that deploys: about itself or one of its sources.
func (w *whyer) concerns(i *Item) bool {
	if slices.Contains(w.targets, i.ID) {
		return true
	}
	for _, o := range append(w.sources(i), i) {
		reverted := o.Reverted != nil && w.has(o.Reverted.From)
		if reverted || w.has(o.Revision) || w.has(o.Pending) || w.words && o.Matches(w.text) {
			return true
		}
	}
	return false
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
	for n, s := range sources {
		if n == 0 {
			c.add(w.pushSteps(s)...)
		}
		c.add(w.sourceStep(s))
	}
	if len(sources) == 0 && len(i.Sources) > 0 {
		c.add(Step{Name: "source", Object: i.Sources[0], State: Blocked,
			Text: "the source does not exist, or you may not see it", Do: "check spec.sourceRef"})
	}
	if len(i.Gates) > 0 {
		c.add(w.gateStep(i))
	}
	if len(i.DependsOn) > 0 {
		c.add(w.dependencyStep(i))
	}
	if i.Kind == kustomizev1.KustomizationKind {
		c.add(w.buildStep(i))
	}
	c.add(w.applyStep(i), healthStep(i))
	c.Live = !slices.ContainsFunc(c.Steps, func(s Step) bool { return !s.isPassed() })
	return c
}

// isPassed reports whether the change went on behind the step.
func (s Step) isPassed() bool { return s.State == Done || s.State == Skipped }

// add appends steps. Behind a step that is not done, nothing is reached. A step begins when the one before ended.
func (c *Chain) add(steps ...Step) {
	for _, s := range steps {
		last := time.Time{}
		reached := true
		for _, before := range c.Steps {
			reached = reached && before.isPassed()
			if before.State == Done && !before.At.IsZero() {
				last = before.At
			}
		}
		switch {
		case !reached:
			s = Step{Name: s.Name, Object: s.Object, State: Ahead, Text: "not reached"}
		case s.State == Done && s.At.Before(last):
			s.From, s.At = time.Time{}, time.Time{} // an earlier pass did it: nothing was left to do
		case s.State == Skipped:
			s.From, s.At = time.Time{}, time.Time{}
		default:
			if s.From.Before(last) {
				s.From = last
			}
			if s.State != Done {
				s.At = time.Time{}
			} else if s.From.IsZero() || s.At.Before(s.From) {
				s.From = s.At
			}
		}
		c.Steps = append(c.Steps, s)
	}
}
