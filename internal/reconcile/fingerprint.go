package reconcile

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// repeatInterval is how often a failure that does not change is logged.
const repeatInterval = time.Hour

var (
	// measure matches counters, sizes, durations and times. Digits in names, such as web-1, are not matched.
	measure   = regexp.MustCompile(`(^|[^\w./-])\d[\w.:%+-]*`)
	separator = regexp.MustCompile(`[,;]? *\n|[;,] |: `)
)

// fingerprint identifies a failure by its reason and text, without the order of its parts, counters and times. Two
// texts with the same fingerprint tell a person the same.
func fingerprint(reason, message string) string {
	parts := separator.Split(measure.ReplaceAllString(withoutWaiting(message), "$1#"), -1)
	slices.Sort(parts)
	return reason + "\n" + strings.Join(slices.Compact(parts), "\n")
}

// isNews reports whether the outcome of a pass must be reported: Ready has changed, and not only the counters and times
// of a failure. A failure that comes back without the object having been Ready is not news either.
func (l *loop[T]) isNews(obj T, was, is *metav1.Condition, o Outcome) bool {
	key := client.ObjectKeyFromObject(obj)
	switch o.state {
	case failed, stalled:
		failure := fingerprint(is.Reason, is.Message)
		due := l.known.isReportDue(key, failure)
		return due && (was == nil || was.Status != is.Status || fingerprint(was.Reason, was.Message) != failure)
	case ready:
		l.known.forgetReport(key)
	}
	return was == nil || was.Status != is.Status || was.Reason != is.Reason ||
		withoutWaiting(was.Message) != withoutWaiting(is.Message)
}

// failureLog remembers the failures that objects have had since they were Ready, and when they were logged and
// reported. It is safe for concurrent use.
type failureLog struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]knownFailure
}

type knownFailure struct {
	reported, logged string // fingerprints
	loggedAt         time.Time
}

// isLogDue reports whether a failure must be logged: a new one at once, and an old one again each hour. It counts as
// logged then.
func (f *failureLog) isLogDue(object types.NamespacedName, failure string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.objects[object]
	if age := now.Sub(known.loggedAt); known.logged == failure && age >= 0 && age < repeatInterval {
		return false
	}
	known.logged, known.loggedAt = failure, now
	f.set(object, known)
	return true
}

// isReportDue reports whether an event of a failure must be emitted: it is not the last one that was reported since the
// object was Ready. It counts as reported then.
func (f *failureLog) isReportDue(object types.NamespacedName, failure string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.objects[object]
	if known.reported == failure {
		return false
	}
	known.reported = failure
	f.set(object, known)
	return true
}

// forgetReport lets the next failure be reported, whichever it is.
func (f *failureLog) forgetReport(object types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.objects[object]; ok {
		known.reported = ""
		f.set(object, known)
	}
}

func (f *failureLog) set(object types.NamespacedName, known knownFailure) {
	if f.objects == nil {
		f.objects = map[types.NamespacedName]knownFailure{}
	}
	f.objects[object] = known
}

// reset ends the failure of an object, and reports whether one was logged.
func (f *failureLog) reset(object types.NamespacedName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.objects[object]
	delete(f.objects, object)
	return known.logged != ""
}
