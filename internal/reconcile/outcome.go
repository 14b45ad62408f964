package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// Reasons that every kind shares.
const (
	ReasonProgressing          = "Progressing"
	ReasonProgressingWithRetry = "ProgressingWithRetry"
	ReasonFailed               = "Failed"
	ReasonDependencyNotReady   = "DependencyNotReady"
)

type state int

const (
	ready       state = iota // at the desired state until the next interval or edge
	progressing              // under way: an edge brings it on, a deadline ends it
	waiting                  // held up by something else: an edge brings it on
	failed                   // a retry may help
	stalled                  // only a change may help
	held                     // a gate is closed: the object stays as it is
)

// Outcome is what a domain step says of the object; the kernel turns it into conditions, an event and a requeue.
// Make one with [Ready], [Progressing], [Waiting] or [Failed].
type Outcome struct {
	state    state
	reason   string
	message  string
	after    time.Duration // progressing: the time left; failed: the wait that the remote asked for
	err      error
	notes    []note
	metadata map[string]string
	quiet    bool
	news     string        // the reason of the event, which is then sent though nothing changed about Ready
	pending  *meta.Pending // held: the change that waits
}

// note is an event beside the one for the transition of Ready.
type note struct{ kind, reason, message string }

// Ready says that the object is as declared.
func Ready(reason, format string, args ...any) Outcome {
	return Outcome{state: ready, reason: reason, message: fmt.Sprintf(format, args...)}
}

// Progressing says that work goes on outside of the process, such as a rollout: an edge or the end of left
// wakes the object.
func Progressing(left time.Duration, format string, args ...any) Outcome {
	return Outcome{state: progressing, reason: ReasonProgressing, message: fmt.Sprintf(format, args...),
		after: max(left, time.Millisecond)}
}

// Waiting says that the object cannot go on before something that it refers to changes; that edge wakes it.
func Waiting(reason, format string, args ...any) Outcome {
	return Outcome{state: waiting, reason: reason, message: fmt.Sprintf(format, args...)}
}

// Held says that gates hold the object back: it stays as it is, and the change waits; nothing does when
// pending is zero.
func Held(pending meta.Pending) Outcome {
	return Outcome{state: held, pending: &pending} // the kernel knows by which
}

// Failed says that the step failed. A [fault.Fault] in err's chain gives the reason, and tells whether a
// retry can help. The error of [Pass.Admit] is no failure: the object is held.
func Failed(err error) Outcome {
	if waits := new(heldError); errors.As(err, &waits) {
		return Held(meta.Pending{Revision: waits.revision})
	}
	o := Outcome{state: failed, reason: ReasonFailed, message: err.Error(), err: err}
	var f *fault.Fault
	if errors.As(err, &f) {
		o.reason, o.after = fault.Reason(err, ReasonFailed), f.RetryAfter
		if f.Terminal {
			o.state = stalled
		}
	}
	return o
}

// String is what the outcome says of the object.
func (o Outcome) String() string { return o.message }

// Note adds an event beside the one for the transition of Ready, such as a summary of what changed.
func (o Outcome) Note(reason, format string, args ...any) Outcome {
	return o.note(normal, reason, fmt.Sprintf(format, args...))
}

// Warn adds an event of the type Warning, for what does not keep the object from being Ready.
func (o Outcome) Warn(reason, format string, args ...any) Outcome {
	return o.note(warning, reason, fmt.Sprintf(format, args...))
}

func (o Outcome) note(kind, reason, message string) Outcome {
	o.notes = append(o.notes[:len(o.notes):len(o.notes)], note{kind, reason, message})
	return o
}

// Quietly says that nothing had to be done: an object that was Ready before, and is still, tells so as a minor event.
func (o Outcome) Quietly() Outcome {
	o.quiet = true
	return o
}

// News says that something new is there, though the object was Ready before and is still: the event has this
// reason, not the condition's.
func (o Outcome) News(reason string) Outcome {
	o.news = reason
	return o
}

// Of adds what is known of a revision to the outcome's events: its name, where it comes from, and who committed what.
func (o Outcome) Of(a *meta.Artifact) Outcome {
	for key, value := range map[string]string{
		event.Revision: a.Revision, event.OriginRevision: a.OriginRevision(),
		event.OriginURL:     cmp.Or(a.Metadata[sourcev1.URLMetadata], a.Metadata[meta.OriginURLKey]),
		event.CommitAuthor:  a.Metadata[sourcev1.CommitAuthorMetadata],
		event.CommitMessage: a.Metadata[sourcev1.CommitSubjectMetadata],
		event.Note:          a.Metadata[sourcev1.CommitNoteMetadata],
	} {
		if value != "" {
			o = o.About(key, value)
		}
	}
	return o
}

// About adds metadata to the outcome's events, such as the revision.
func (o Outcome) About(key, value string) Outcome {
	m := map[string]string{key: value}
	for k, v := range o.metadata {
		m[k] = v
	}
	o.metadata = m
	return o
}
