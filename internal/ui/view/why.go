package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/model/kind"
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

// HealthStep is the name of the step about the health of what was applied.
const HealthStep = "health"

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
	Target   *Item  `json:"target"`
	Live     bool   `json:"live"`
	Blocking *Step  `json:"blocking,omitempty"` // the first step that the change has not passed; nil if it is live
	Steps    []Step `json:"steps"`

	exact bool // the question names its target
}

// Answer says why a change is or is not live.
type Answer struct {
	// Problems say why controllers may not work, so that all below is an old state.
	Problems []string `json:"problems,omitempty"`
	Object   *Step    `json:"object,omitempty"` // of an object that the question names and that others applied
	Chains   []Chain  `json:"chains"`
	Omitted  int      `json:"omitted"` // chains above the limit
	Note     string   `json:"note,omitempty"`
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
	a := &Answer{Chains: []Chain{}}
	if w.findExact(items); len(w.exact) > 0 {
		a.answerExact(w, items)
		return a
	}
	made := w.addCommits(items)
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
	a.Sort()
	return a
}

// answerExact answers a question that is the name of objects: by them, else by what is built from or held by them. A
// commit message that mentions the name is not an answer.
func (a *Answer) answerExact(w *whyer, items []*Item) {
	deploys := slices.ContainsFunc(w.exact, (*Item).deploys)
	for _, i := range w.exact {
		if !deploys || i.deploys() {
			c := w.chain(i)
			c.exact = true
			a.add(c)
		}
	}
	for _, i := range items {
		isNamed := func(id string) bool {
			return slices.ContainsFunc(w.exact, func(e *Item) bool { return e.ID == id })
		}
		isBuiltFrom := slices.ContainsFunc(w.sources(i), func(s *Item) bool { return isNamed(s.ID) })
		isHeldBy := i.Pending != "" && slices.ContainsFunc(i.Gates, isNamed)
		if !deploys && i.deploys() && (isBuiltFrom || isHeldBy) || slices.Contains(w.targets, i.ID) && !isNamed(i.ID) {
			a.add(w.chain(i))
		}
	}
	a.Sort()
}

// Sort puts chains that are not live first, and among them those of objects that the question names.
func (a *Answer) Sort() {
	slices.SortStableFunc(a.Chains, func(x, y Chain) int {
		return cmp.Or(order(x.Live)-order(y.Live), order(y.exact)-order(x.exact))
	})
}

func (a *Answer) add(c Chain) {
	if len(a.Chains) == maxChains {
		a.Omitted++
		return
	}
	a.Chains = append(a.Chains, c)
}

func order(later bool) int {
	if later {
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
	words     bool    // the question is about words
	exact     []*Item // whose name the question is
	byID      map[string]*Item
	receivers []*Item
}

// findExact finds the objects that the question names: as name, namespace/name, kind/name or kind/namespace/name. The
// kind may be a word of the command line, such as ks.
func (w *whyer) findExact(items []*Item) {
	parts := strings.Split(w.text, "/")
	k := kind.ByWord(parts[0])
	for _, i := range items {
		name, namespace := strings.ToLower(i.Name), strings.ToLower(i.Namespace)
		isKind := k != nil && k.Name() == i.Kind
		switch last := parts[len(parts)-1] == name; {
		case !last, len(parts) > 3:
		case len(parts) == 1,
			len(parts) == 2 && (isKind || parts[0] == namespace),
			len(parts) == 3 && isKind && parts[1] == namespace:
			w.exact = append(w.exact, i)
		}
	}
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
	switch {
	case !i.Deleting.IsZero():
		c.add(deletionStep(i))
	case i.deploys():
		w.addDeployment(&c, i)
	case i.Kind == gatingv1.GateKind:
		c.add(w.gateItself(i))
	case i.isSource():
		c.add(append(w.pushSteps(i), w.sourceStep(i))...)
	default:
		c.add(itselfStep(i))
	}
	c.SetBlocking()
	return c
}

// SetBlocking finds the step that blocks after steps changed.
func (c *Chain) SetBlocking() {
	c.Blocking = nil
	n := slices.IndexFunc(c.Steps, func(s Step) bool { return !s.isPassed() })
	if c.Live = n < 0; !c.Live {
		c.Blocking = &c.Steps[n]
	}
}

// isSource reports whether the object fetches what others are built from.
func (i *Item) isSource() bool {
	k := kind.ByName(i.Kind)
	if k == nil {
		return false
	}
	_, is := k.New().(sourcev1.Source)
	return is
}

// addDeployment adds the steps of an object that deploys.
func (w *whyer) addDeployment(c *Chain, i *Item) {
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
