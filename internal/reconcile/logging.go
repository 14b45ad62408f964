package reconcile

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/api/meta"
)

// repeatInterval is how often a failure that does not change is logged.
const repeatInterval = time.Hour

// failureLog remembers when the failures of objects were logged. It is safe for concurrent use.
type failureLog struct {
	mu     sync.Mutex
	logged map[types.NamespacedName]time.Time
}

// isDue reports whether a failure must be logged: a new one at once, and an old one again each hour. It counts as
// logged then.
func (f *failureLog) isDue(object types.NamespacedName, isNew bool, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	last, known := f.logged[object]
	if known && !isNew && now.Sub(last) < repeatInterval && !now.Before(last) {
		return false
	}
	if f.logged == nil {
		f.logged = map[types.NamespacedName]time.Time{}
	}
	f.logged[object] = now
	return true
}

// reset ends the failure of an object, and reports whether it had one.
func (f *failureLog) reset(object types.NamespacedName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, failed := f.logged[object]
	delete(f.logged, object)
	return failed
}

// logOutcome logs what a pass has changed at INFO, one line a transition, and everything else at DEBUG. before is the
// object at the start of the pass.
func (l *loop[T]) logOutcome(ctx context.Context, obj, before T, o Outcome, duration time.Duration) {
	key := client.ObjectKeyFromObject(obj)
	logger := log.FromContext(ctx)
	if revision := revisionOf(o); revision != "" {
		logger = logger.WithValues("revision", revision)
	}
	for _, n := range o.notes {
		logger.Info(firstLine(n.message), "reason", n.reason)
	}
	logger = logger.WithValues("duration", duration.Round(time.Millisecond).String())
	was, is := readyOf(before), readyOf(obj)
	changed := was == nil || is == nil || was.Status != is.Status || was.Reason != is.Reason ||
		was.Message != is.Message
	switch o.state {
	case failed, stalled:
		if l.logged.isDue(key, changed, l.Clock.Now()) {
			logger.Error(errors.New(o.message), "failed", "reason", o.reason)
		} else {
			logger.V(1).Info("failed again", "reason", o.reason, "message", o.message)
		}
	case ready:
		recovered := l.logged.reset(key)
		logAt(logger, recovered || changed || o.eventReason != "").
			Info(firstLine(o.message), "reason", o.reason, "recovered", recovered)
	case held:
		if is != nil && is.Status != metav1.ConditionUnknown {
			o.message = is.Message
		}
		logAt(logger, changed).Info(firstLine(o.message), "reason", o.reason)
	case progressing: // the message changes with each step
		logAt(logger, was == nil || was.Reason != o.reason).Info(firstLine(o.message), "reason", o.reason)
	default:
		logAt(logger, changed).Info(firstLine(o.message), "reason", o.reason)
	}
}

func readyOf(obj Object) *metav1.Condition {
	return apimeta.FindStatusCondition(obj.CommonStatus().Conditions, TypeReady)
}

// revisionOf returns the revision that an outcome is about, which may be empty.
func revisionOf(o Outcome) string {
	if o.pending != nil {
		return firstLine(o.pending.Revision)
	}
	return o.metadata[meta.EventRevisionKey]
}

// logAt returns the logger for a transition, or that for details.
func logAt(logger logr.Logger, isTransition bool) logr.Logger {
	if isTransition {
		return logger
	}
	return logger.V(1)
}

// firstLine returns the first line of a text. The others list details that events and conditions have.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
