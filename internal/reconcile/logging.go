package reconcile

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/api/meta"
)

// logOutcome logs what a pass has changed at INFO, one line a transition, and everything else at DEBUG. It reports
// whether the pass was news. before is the object at the start of the pass.
func (l *loop[T]) logOutcome(ctx context.Context, obj, before T, o Outcome, duration time.Duration) (isNews bool) {
	key := client.ObjectKeyFromObject(obj)
	logger := log.FromContext(ctx)
	if revision := revisionOf(o); revision != "" {
		logger = logger.WithValues("revision", revision)
	}
	logger = logger.WithValues(o.counts...)
	inOneLine := o.state == ready && len(o.counts) > 0 // the line of the outcome says what changed
	for _, n := range o.notes {
		if inOneLine && n.reason == meta.ProgressingReason {
			continue
		}
		logger.Info(firstLine(n.message), "reason", n.reason)
	}
	logger = logger.WithValues("duration", duration.Round(time.Millisecond).String())
	was, is := readyOf(before), readyOf(obj)
	changed := was == nil || is == nil || was.Status != is.Status || was.Reason != is.Reason ||
		was.Message != is.Message
	switch o.state {
	case failed, stalled:
		if isNews = l.known.isLogDue(key, fingerprint(o.reason, o.message), l.Clock.Now()); isNews {
			logger.Error(errors.New(o.message), "failed", "reason", o.reason)
		} else {
			logger.V(1).Info("failed again", "reason", o.reason, "message", o.message)
		}
		return isNews
	case ready:
		recovered := l.known.reset(key)
		logger = logger.WithValues("recovered", recovered)
		isNews = recovered || changed || inOneLine || o.eventReason != ""
	case held:
		if is != nil && is.Status != metav1.ConditionUnknown {
			o.message = is.Message
		}
		isNews = changed
	case progressing: // the message changes with each step
		isNews = was == nil || was.Reason != o.reason
	default:
		isNews = changed
	}
	logAt(logger, isNews).Info(firstLine(o.message), "reason", o.reason)
	return isNews
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
