package decision

import (
	"fmt"
	"strings"
	"time"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// Code identifies why a gate holds a change. The empty code is that of a gate which does not.
type Code string

// Codes. Each has an entry in the table of outcomes.
const (
	Closed          Code = "Closed"
	ClosedByCheck   Code = "ClosedByCheck"
	ClosedByFailure Code = "ClosedByFailure"
	AllowsOnly      Code = "AllowsOnly"
	AllowsPromoted  Code = "AllowsPromoted"
	NotEvaluated    Code = "NotEvaluated"

	NotFound       Code = "NotFound"
	Unreadable     Code = "Unreadable"
	OtherNamespace Code = "OtherNamespace"

	NoRuleApplies     Code = "NoRuleApplies"
	DeniedByRule      Code = "DeniedByRule"
	RequiresApprovals Code = "RequiresApprovals"
	UnknownOutcome    Code = "UnknownOutcome"
	RulesFailed       Code = "RulesFailed"
	ChangeUnknown     Code = "ChangeUnknown"
	ChangeFailed      Code = "ChangeFailed"
	NotAboutObjects   Code = "NotAboutObjects"

	HoldsAll Code = "HoldsAll"
	Refuses  Code = "Refuses"

	WaveUndecided     Code = "WaveUndecided"
	WaveElsewhere     Code = "WaveElsewhere"
	WavesInvalid      Code = "WavesInvalid"
	WaveOtherRevision Code = "WaveOtherRevision"
	WaveObstructed    Code = "WaveObstructed"
	WaveFull          Code = "WaveFull"
	WaveBusy          Code = "WaveBusy"
	WaveSoaks         Code = "WaveSoaks"
	WaveNotReady      Code = "WaveNotReady"

	Recorded Code = "Recorded"
)

// Args are the details of a cause. Which of them are set depends on the code.
type Args struct {
	Revision      string
	Revisions     []string // the only ones that the gate allows
	Rule          string   // that holds the change
	Count         int32    // required approvals
	Message       string
	Why           string // why the gate is in its state
	Wave, Current string // names of the wave of the object and of the one in progress; empty for the last one
	Max           string // how many objects may move at a time
	Until         time.Time
}

// Cause is why a gate holds a change.
type Cause struct {
	Code Code
	Args Args
}

// Outcomes of simulated decisions that no rule makes.
const (
	OutcomeOpen    gatingv1.Outcome = "open"    // no rule applies, and the gate is open
	OutcomeClosed  gatingv1.Outcome = "closed"  // no rule applies, and the gate is closed
	OutcomeWaits   gatingv1.Outcome = "waits"   // the gate would let it through, but its waves hold it at first
	OutcomeUnknown gatingv1.Outcome = "unknown" // the gate or the change is not known, so the change is held
)

// outcome is how a code is shown.
type outcome struct {
	sentence func(Args) string // follows the name of the gate
	alone    func(Args) string // without the name of the gate; nil if that is the same
	lacksWhy bool              // the sentence does not say why the gate is in its state
	reason   string            // of the condition; empty: [meta.GateClosedReason]
	result   gatingv1.Outcome  // of a simulation, unless a rule applies; empty: [OutcomeClosed]
	example  Args              // for tests and documentation
}

// outcomes has all codes. It is the only place that makes text of a decision.
//
//exhaustive:enforce
var outcomes = map[Code]outcome{
	Closed: {sentence: says("is closed"), alone: why, lacksWhy: true, example: Args{Why: "Gate closed by default"}},
	ClosedByCheck: {alone: why, example: Args{Message: "no object matches"},
		sentence: func(a Args) string { return "is closed: " + a.Message }},
	ClosedByFailure: {alone: why, example: Args{Why: "Gate closed: revision 'main@sha1:0c1d' failed"},
		sentence: func(a Args) string { return "is closed: " + withoutState(a.Why) }},
	AllowsOnly: {alone: onlyApproved, lacksWhy: true, example: Args{Revisions: []string{"main@sha1:0c1d"}},
		sentence: func(a Args) string { return "allows only " + quoted(a.Revisions) }},
	AllowsPromoted: {sentence: message, alone: onlyApproved,
		example: Args{Revisions: []string{"sha1:0c1d"}, Message: "allows only revision 'main@sha1:0c1d'"}},
	NotEvaluated: {reason: meta.GateNotEvaluatedReason,
		sentence: func(a Args) string { return with("is not evaluated yet", withoutState(a.Why)) }},

	NotFound: {sentence: says("is not found"), alone: says("the gate does not exist"),
		reason: meta.GateNotFoundReason, result: OutcomeUnknown},
	Unreadable: {sentence: says("you may not read the gate, so it counts as closed"), result: OutcomeUnknown},
	OtherNamespace: {reason: meta.AccessDeniedReason,
		sentence: says("is in another namespace: cross-namespace references have been blocked")},

	NoRuleApplies: {sentence: says("is closed, and none of its rules applies"), lacksWhy: true},
	DeniedByRule: {example: Args{Rule: "no-claims", Message: "ask the storage team"},
		sentence: func(a Args) string {
			return with(fmt.Sprintf("denies the change by rule '%s'", a.Rule), a.Message)
		}},
	RequiresApprovals: {example: Args{Rule: "four-eyes", Count: 2},
		sentence: func(a Args) string {
			return with(fmt.Sprintf("requires %s of this change by rule '%s'", approvals(a.Count), a.Rule), a.Message)
		}},
	UnknownOutcome: {example: Args{Rule: "new", Message: "later"},
		sentence: func(a Args) string {
			return fmt.Sprintf("has rule '%s' with outcome '%s', which this version does not know", a.Rule, a.Message)
		}},
	RulesFailed: {sentence: message, result: OutcomeUnknown,
		example: Args{Message: "its rule 'broken' cannot be evaluated: no such key: nothing"}},
	ChangeUnknown: {sentence: says("has rules, which decide when the change is known"), result: OutcomeUnknown,
		alone: says("it has rules, which decide when the change is known")},
	ChangeFailed: {example: Args{Message: "the build failed"},
		sentence: func(a Args) string { return "has rules, but the change cannot be computed: " + a.Message }},
	NotAboutObjects: {
		sentence: says("has rules about changes of objects, which only a Kustomization or a HelmRelease makes")},

	HoldsAll: {example: Args{Revision: "main@sha1:0c1d", Message: "Kustomization 'apps/web' is unhealthy: it crashed"},
		sentence: func(a Args) string {
			return fmt.Sprintf("holds all changes, as revision '%s' failed: %s", a.Revision, a.Message)
		}},
	Refuses: {example: Args{Revision: "main@sha1:0c1d", Message: "Kustomization 'apps/web' is unhealthy: it crashed"},
		sentence: func(a Args) string {
			return "refuses revision '" + a.Revision + "', which failed: " + a.Message
		}},

	WaveUndecided: {sentence: says("has not decided about the wave of the object yet"), result: OutcomeWaits},
	WaveElsewhere: {result: OutcomeWaits,
		sentence: says("has waves, which need the gating controller in the process of the object's controller")},
	WavesInvalid: {sentence: message, result: OutcomeWaits,
		example: Args{Message: "spec.waves divides 1001 objects, but at most 1000 can be divided"}},
	WaveOtherRevision: {result: OutcomeWaits, example: Args{Revision: "main@sha1:0c1d"},
		sentence: func(a Args) string {
			return fmt.Sprintf("lets its waves move to revision '%s' first", a.Revision)
		}},
	WaveObstructed: {result: OutcomeWaits, example: Args{Wave: "canary", Message: "Kustomization 'apps/web' is suspended"},
		sentence: func(a Args) string { return fmt.Sprintf("holds %s: %s", WaveTitle(a.Wave), a.Message) }},
	WaveFull: {result: OutcomeWaits, example: Args{Wave: "canary", Max: "2"},
		sentence: func(a Args) string {
			return fmt.Sprintf("lets at most %s of %s move at a time", a.Max, WaveTitle(a.Wave))
		}},
	WaveBusy: {result: OutcomeWaits, example: Args{Wave: "canary"},
		sentence: func(a Args) string { return "holds " + WaveTitle(a.Wave) + " until its other objects are Ready" }},
	WaveSoaks: {result: OutcomeWaits, example: Args{Current: "canary", Until: time.Unix(1795255200, 0)},
		sentence: func(a Args) string {
			return fmt.Sprintf("holds %s until %s, when the soak of %s ends", WaveTitle(a.Wave),
				a.Until.UTC().Format(time.RFC3339), WaveTitle(a.Current))
		}},
	WaveNotReady: {result: OutcomeWaits, example: Args{Current: "canary"},
		sentence: func(a Args) string {
			return with(fmt.Sprintf("holds %s until %s is Ready", WaveTitle(a.Wave), WaveTitle(a.Current)), a.Message)
		}},

	Recorded: {sentence: message, example: Args{Message: "is closed"}},
}

// Holds reports whether there is a cause: the gate holds the change.
func (c Cause) Holds() bool { return c.Code != "" }

// Text returns why the gate holds the change, for a sentence that begins with the gate, such as "is closed". It is
// empty if the gate does not.
func (c Cause) Text() string {
	o, known := outcomes[c.Code]
	if !known {
		return string(c.Code)
	}
	return o.sentence(c.Args)
}

// Alone returns why the gate holds the change, as a text that does not begin with the gate.
func (c Cause) Alone() string {
	if alone := outcomes[c.Code].alone; alone != nil {
		return alone(c.Args)
	}
	return c.Text()
}

// Detail returns the text, and why the gate is in its state.
func (c Cause) Detail() string {
	switch {
	case outcomes[c.Code].lacksWhy:
		return with(c.Text(), c.Args.Why)
	case c.Code == NotFound:
		return c.Alone()
	}
	return c.Text()
}

// Result returns the outcome of a simulated decision about a change to which no rule applies.
func (c Cause) Result() gatingv1.Outcome {
	switch {
	case !c.Holds():
		return OutcomeOpen
	case outcomes[c.Code].result == "":
		return OutcomeClosed
	}
	return outcomes[c.Code].result
}

// WaveTitle returns what messages call a wave.
func WaveTitle(name string) string {
	if name == "" {
		return "the last wave (objects that no wave selects)"
	}
	return "wave '" + name + "'"
}

func says(text string) func(Args) string { return func(Args) string { return text } }

func message(a Args) string { return a.Message }

func why(a Args) string { return a.Why }

func onlyApproved(a Args) string { return "only approved for " + strings.Join(a.Revisions, ", ") }

// with adds a detail to a sentence.
func with(text, detail string) string {
	if detail == "" {
		return text
	}
	return text + ": " + detail
}

// withoutState returns why a gate is closed without saying again that it is.
func withoutState(why string) string { return strings.TrimPrefix(why, "Gate closed: ") }

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
