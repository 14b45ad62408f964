package decision

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// Code is a reason for which a gate holds a change, and the only place of its text. A text in braces is replaced by the
// field of [Args] that it names; see [Cause.render].
type Code struct {
	Name     string
	sentence string // follows the name of the gate
	alone    string // without the name of the gate; empty if that is the same
	lacksWhy bool   // the sentence does not say why the gate is in its state

	reason string           // of the condition; empty: GateClosed
	result gatingv1.Outcome // of a simulation, unless a rule applies; empty: [OutcomeClosed]
}

// codes are all codes, for tests.
var codes []*Code

func define(c Code) *Code {
	codes = append(codes, &c)
	return &c
}

const onlyApproved = "only approved for {revisions}"

// Reasons that the state of a gate has.
var (
	Closed          = define(Code{Name: "Closed", sentence: "is closed", alone: "{why}", lacksWhy: true})
	ClosedByCheck   = define(Code{Name: "ClosedByCheck", sentence: "is closed: {message}", alone: "{why}"})
	ClosedByFailure = define(Code{Name: "ClosedByFailure", sentence: "is closed{: cause}", alone: "{why}"})
	AllowsOnly      = define(Code{Name: "AllowsOnly", sentence: "allows only {allowed}", alone: onlyApproved,
		lacksWhy: true})
	AllowsPromoted = define(Code{Name: "AllowsPromoted", sentence: "{message}", alone: onlyApproved})
	NotEvaluated   = define(Code{Name: "NotEvaluated", sentence: "is not evaluated yet{: cause}"})
	NotFound       = define(Code{Name: "NotFound", sentence: "is not found", alone: "the gate does not exist",
		reason: meta.GateNotFoundReason, result: OutcomeUnknown})
	Unreadable = define(Code{Name: "Unreadable", result: OutcomeUnknown,
		sentence: "you may not read the gate, so it counts as closed"})
	OtherNamespace = define(Code{Name: "OtherNamespace", reason: meta.AccessDeniedReason,
		sentence: "is in another namespace: cross-namespace references have been blocked"})
	Refuses = define(Code{Name: "Refuses", sentence: "refuses revision '{revision}', which failed: {message}"})
	// RefusesForObject is what a person refused, so that one object goes back.
	RefusesForObject = define(Code{Name: "RefusesForObject", sentence: "refuses revision '{revision}': {message}"})
	HoldsAll         = define(Code{Name: "HoldsAll",
		sentence: "holds all changes, as revision '{revision}' failed: {message}"})
)

// Reasons that the rules of a gate have.
var (
	NoRuleApplies = define(Code{Name: "NoRuleApplies", sentence: "is closed, and none of its rules applies",
		lacksWhy: true})
	DeniedByRule      = define(Code{Name: "DeniedByRule", sentence: "denies the change by rule '{rule}'{: message}"})
	RequiresApprovals = define(Code{Name: "RequiresApprovals",
		sentence: "requires {approvals} of this change by rule '{rule}'{: message}"})
	UnknownOutcome = define(Code{Name: "UnknownOutcome",
		sentence: "has rule '{rule}' with outcome '{message}', which this version does not know"})
	RulesFailed   = define(Code{Name: "RulesFailed", sentence: "{message}", result: OutcomeUnknown})
	ChangeUnknown = define(Code{Name: "ChangeUnknown", sentence: "has rules, which decide when the change is known",
		alone: "it has rules, which decide when the change is known", result: OutcomeUnknown})
	ChangeFailed = define(Code{Name: "ChangeFailed",
		sentence: "has rules, but the change cannot be computed: {message}"})
	NotAboutObjects = define(Code{Name: "NotAboutObjects",
		sentence: "has rules about changes of objects, which only a Kustomization or a HelmRelease makes"})
)

// Reasons that the waves of a gate have.
var (
	WaveUndecided = define(Code{Name: "WaveUndecided", result: OutcomeWaits,
		sentence: "has not decided about the wave of the object yet"})
	WaveElsewhere = define(Code{Name: "WaveElsewhere", result: OutcomeWaits,
		sentence: "has waves, which need the gating controller in the process of the object's controller"})
	WavesInvalid      = define(Code{Name: "WavesInvalid", result: OutcomeWaits, sentence: "{message}"})
	WaveOtherRevision = define(Code{Name: "WaveOtherRevision", result: OutcomeWaits,
		sentence: "lets its waves move to revision '{revision}' first"})
	WaveObstructed = define(Code{Name: "WaveObstructed", result: OutcomeWaits, sentence: "holds {wave}: {message}"})
	WaveFull       = define(Code{Name: "WaveFull", result: OutcomeWaits,
		sentence: "lets at most {max} of {wave} move at a time"})
	WaveBusy = define(Code{Name: "WaveBusy", result: OutcomeWaits,
		sentence: "holds {wave} until its other objects are Ready"})
	WaveSoaks = define(Code{Name: "WaveSoaks", result: OutcomeWaits,
		sentence: "holds {wave} until {until}, when the soak of {current} ends"})
	WaveNotReady = define(Code{Name: "WaveNotReady", result: OutcomeWaits,
		sentence: "holds {wave} until {current} is Ready{: message}"})
)

// Outcomes of simulated decisions that no rule makes.
const (
	OutcomeOpen    gatingv1.Outcome = "open"    // no rule applies, and the gate is open
	OutcomeClosed  gatingv1.Outcome = "closed"  // no rule applies, and the gate is closed
	OutcomeWaits   gatingv1.Outcome = "waits"   // the gate would let it through, but its waves hold it at first
	OutcomeUnknown gatingv1.Outcome = "unknown" // the gate or the change is not known, so the change is held
)

// Args are the details of a cause. Which of them are set depends on the code.
type Args struct {
	Revision      string
	Revisions     []string // the only ones that the gate allows
	Rule          string   // that holds the change
	Count         int32    // required approvals
	Message       string
	By            string // who refused it
	Why           string // why the gate is in its state
	Wave, Current string // names of the wave of the object and of the one in progress; empty for the last one
	Max           string // how many objects may move at a time
	Until         time.Time
}

// Cause is why a gate holds a change. The zero Cause is that it does not.
type Cause struct {
	Code *Code
	Args Args
}

// Holds reports whether there is a cause: the gate holds the change.
func (c Cause) Holds() bool { return c.Code != nil }

// Text returns why the gate holds the change, for a sentence that begins with the gate, such as "is closed". It is
// empty if the gate does not.
func (c Cause) Text() string {
	if !c.Holds() {
		return ""
	}
	return c.render(c.Code.sentence)
}

// Alone returns why the gate holds the change, as a text that does not begin with the gate.
func (c Cause) Alone() string {
	if !c.Holds() || c.Code.alone == "" {
		return c.Text()
	}
	return c.render(c.Code.alone)
}

// Detail returns the text, and why the gate is in its state.
func (c Cause) Detail() string {
	switch {
	case c.Holds() && c.Code.lacksWhy:
		return c.Text() + detail(c.Args.Why)
	case c.Code == NotFound:
		return c.Alone()
	}
	return c.Text()
}

// Result returns the outcome of a simulated decision about a change to which no rule applies.
func (c Cause) Result() gatingv1.Outcome {
	if !c.Holds() {
		return OutcomeOpen
	}
	return cmp.Or(c.Code.result, OutcomeClosed)
}

// render replaces the names of arguments in a text.
func (c Cause) render(text string) string {
	a := c.Args
	return strings.NewReplacer("{revision}", a.Revision, "{revisions}", strings.Join(a.Revisions, ", "),
		"{allowed}", quoted(a.Revisions), "{rule}", a.Rule, "{approvals}", approvals(a.Count),
		"{message}", a.Message, "{: message}", detail(a.Message), "{why}", a.Why,
		"{: cause}", detail(strings.TrimPrefix(a.Why, "Gate closed: ")),
		"{wave}", WaveTitle(a.Wave), "{current}", WaveTitle(a.Current), "{max}", a.Max,
		"{until}", a.Until.UTC().Format(time.RFC3339)).Replace(text)
}

// WaveTitle returns what messages call a wave.
func WaveTitle(name string) string {
	if name == "" {
		return "the last wave (objects that no wave selects)"
	}
	return "wave '" + name + "'"
}

func detail(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}

// approvals describes a number of approvals, such as "2 approvals".
func approvals(n int32) string {
	if n == 1 {
		return "1 approval"
	}
	return fmt.Sprintf("%d approvals", n)
}

// maxQuoted bounds how many revisions a message lists.
const maxQuoted = 3

func quoted(revisions []string) string {
	word := "revision"
	if len(revisions) > 1 {
		word = "revisions"
	}
	text := word + " '" + strings.Join(revisions[:min(len(revisions), maxQuoted)], "', '") + "'"
	if more := len(revisions) - maxQuoted; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
