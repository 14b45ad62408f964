package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Condition reasons that every kind shares.
const (
	ReasonProgressing          = "Progressing"
	ReasonProgressingWithRetry = "ProgressingWithRetry"
	ReasonFailed               = "Failed"
	ReasonDependencyNotReady   = "DependencyNotReady"
	ReasonSuspect              = "ControllerDied" // processes died during work on the object
)

type state int

const (
	ready       state = iota // at the desired state until the next interval or edge
	progressing              // work continues outside of the process until an edge or a deadline
	waiting                  // another object must change first; its edge enqueues the object
	failed                   // a retry may succeed
	stalled                  // only a change of the object or of what it refers to can help
	held                     // a gate is closed: the object stays as it is
)

// Outcome is the result of a step. The kernel turns it into conditions, an event and a requeue.
// It is made by [Ready], [Progressing], [Waiting], [Held] or [Failed].
type Outcome struct {
	state       state
	reason      string
	message     string
	after       time.Duration // progressing: the time left; failed: the wait that the remote asked for; else: see After
	err         error
	notes       []note
	metadata    map[string]string
	unchanged   bool
	keepReady   bool          // progressing: Ready stays as it is
	unhealthy   bool          // failed, stalled: see Unhealthy
	stalledBy   string        // stalled: the reason of Stalled, if it is another one
	watched     bool          // see Watched
	eventReason string        // the reason of an event that is emitted even if Ready did not change
	pending     *meta.Pending // held, watched: the change that waits
	traceparent string        // of the artifact, see WithArtifact
	counts      []any         // keys and numbers of changed objects, for the log
	emitted     func()        // see Emitted
}

// note is an event in addition to the one for a change of Ready.
type note struct {
	eventType, reason, message string
	isSummary                  bool              // of the objects that the pass changed
	isMinor                    bool              // if nothing was changed
	metadata                   map[string]string // in addition to that of the outcome
}

// Ready returns the outcome of an object that has reached its declared state.
func Ready(reason, format string, args ...any) Outcome {
	return Outcome{state: ready, reason: reason, message: fmt.Sprintf(format, args...)}
}

// Progressing returns the outcome of an object whose work continues outside of the process, such as a rollout. The
// object is reconciled again on an edge, or after the time left, which is at least 1 ms.
func Progressing(left time.Duration, format string, args ...any) Outcome {
	return Outcome{state: progressing, reason: ReasonProgressing, message: fmt.Sprintf(format, args...),
		after: max(left, time.Millisecond)}
}

// Waiting returns the outcome of an object that cannot continue until an object that it refers to changes.
func Waiting(reason, format string, args ...any) Outcome {
	return Outcome{state: waiting, reason: reason, message: fmt.Sprintf(format, args...)}
}

// Held returns the outcome of an object that gates hold. The object stays as it is, and the change waits; a zero
// change means that none waits.
func Held(pending meta.Pending) Outcome {
	return Outcome{state: held, pending: &pending} // the kernel adds the reason and the message
}

// Failed returns the outcome of a step that failed. A [fault.Fault] in the chain of err sets the reason and whether the
// object is retried. For the error of [Pass.Admit] it returns the outcome of [Held].
func Failed(err error) Outcome {
	if h := new(heldError); errors.As(err, &h) {
		return Held(meta.Pending{Revision: h.revision})
	}
	if errors.As(err, new(*waitingError)) {
		return Waiting(fault.Reason(err, ReasonProgressing), "%s", err.Error())
	}
	o := Outcome{state: failed, reason: ReasonFailed, message: err.Error(), err: err}
	var f *fault.Fault
	if errors.As(err, &f) {
		o.reason, o.after = fault.Reason(err, ReasonFailed), f.RetryAfter
		switch {
		case f.Terminal:
			o.state = stalled
		case f.Temporary:
			o = Progressing(o.after, "%s", o.message)
			o.keepReady = true
		}
	}
	return o
}

// waitingError is an error that only means that another object must change first.
type waitingError struct{ error }

func (e *waitingError) Unwrap() error { return e.error }

// WaitingFor returns an error for which [Failed] returns the outcome of [Waiting]: it is not a problem that a person
// must solve.
func WaitingFor(err error) error { return &waitingError{err} }

// String returns the message of the outcome.
func (o Outcome) String() string { return o.message }

// Note adds an event, such as a summary of changes, to the one for a change of Ready.
func (o Outcome) Note(reason, format string, args ...any) Outcome {
	return o.note(normal, reason, fmt.Sprintf(format, args...))
}

// Finished adds an event that the pass has reached the declared state, with the time that it took. Its metadata says
// that it is for commit statuses: providers for people do not send it. It is minor if nothing was changed.
func (o Outcome) Finished(took, next time.Duration) Outcome {
	o = o.Note(o.reason, "Reconciliation finished in %s, next run in %s", took.Round(time.Millisecond), next)
	n := &o.notes[len(o.notes)-1]
	n.metadata = map[string]string{meta.EventCommitStatusKey: meta.EventCommitStatusUpdate}
	n.isMinor = true
	return o
}

// Warn adds an event of type Warning, for problems that do not affect Ready.
func (o Outcome) Warn(reason, format string, args ...any) Outcome {
	return o.note(warning, reason, fmt.Sprintf(format, args...))
}

func (o Outcome) note(eventType, reason, message string) Outcome {
	o.notes = append(o.notes[:len(o.notes):len(o.notes)], note{eventType: eventType, reason: reason, message: message})
	return o
}

// Changed adds a note about changed objects, and their numbers by action for the log, such as "created", 2.
func (o Outcome) Changed(reason string, counts []any, summary string) Outcome {
	o.counts = counts
	o = o.Note(reason, "%s", summary)
	o.notes[len(o.notes)-1].isSummary = true
	return o
}

// After makes the kernel reconcile an object again after a delay, which is at least 1 ms, instead of at its interval.
// It is for objects that are Ready, that wait, or that gates hold.
func (o Outcome) After(delay time.Duration) Outcome {
	o.after = max(delay, time.Millisecond)
	return o
}

// Unchanged marks an outcome of a pass that changed nothing. If the object was Ready and still is, its event is minor.
func (o Outcome) Unchanged() Outcome {
	o.unchanged = true
	return o
}

// StalledBy gives the condition Stalled another reason than Ready, such as that no retries are left.
func (o Outcome) StalledBy(reason string) Outcome {
	o.stalledBy = reason
	return o
}

// WithEvent makes the kernel emit an event with this reason even if Ready did not change.
func (o Outcome) WithEvent(reason string) Outcome {
	o.eventReason = reason
	return o
}

// Emitted makes the kernel call a function after it has emitted the events of the outcome.
func (o Outcome) Emitted(then func()) Outcome {
	o.emitted = then
	return o
}

// WithArtifact adds the metadata of an artifact to the outcome's events: revision, origin, commit author and message.
// The pass belongs to the trace of the artifact.
func (o Outcome) WithArtifact(a *meta.Artifact) Outcome {
	for key, value := range map[string]string{
		meta.EventRevisionKey:       a.Revision,
		meta.EventOriginRevisionKey: a.OriginRevision(),
		meta.EventOriginURLKey:      cmp.Or(a.Metadata[meta.RepositoryURLKey], a.Metadata[meta.OriginURLKey]),
		meta.EventCommitAuthorKey:   a.Metadata[meta.CommitAuthorKey],
		meta.EventCommitMessageKey:  a.Metadata[meta.CommitSubjectKey],
		meta.EventNoteKey:           a.Metadata[meta.CommitNoteKey],
	} {
		if value != "" {
			o = o.WithMetadata(key, value)
		}
	}
	o.traceparent = traceparentOf(a)
	return o
}

// WithMetadata adds metadata to the outcome's events. Values that are already set win.
func (o Outcome) WithMetadata(key, value string) Outcome {
	m := map[string]string{key: value}
	maps.Copy(m, o.metadata)
	o.metadata = m
	return o
}
