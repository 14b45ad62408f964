// Package guard contains the failures of one piece of work, so that the process goes on: panics become errors, and
// memory is shared by a budget.
//
// All goroutines of the product start here. The linter hack/guarded refuses go statements, errgroups, singleflights,
// wait groups and timers with functions elsewhere.
package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// ReasonInternalError is the reason of the fault in a [PanicError].
const ReasonInternalError = "InternalError"

// Hint says how to report an internal error.
const Hint = "This is a bug in Sluice: report it with the controller's log"

var panics = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "sluice_panics_total",
	Help: "Panics that were turned into errors, by the work that they ended.",
}, []string{"work"})

// PanicError is the error of work that panicked. Its text contains nothing of the panic, as that may be secret. The
// panic and its stack are in the log.
type PanicError struct {
	Work string // what the code did, such as "checking the health of an object"
}

func (e *PanicError) Error() string { return e.fault().Error() }

// Unwrap returns the error as a [fault.Fault].
func (e *PanicError) Unwrap() error { return e.fault() }

func (e *PanicError) fault() *fault.Fault {
	return fault.New(ReasonInternalError, "internal error while %s", e.Work).WithHint(Hint)
}

// IsPanic reports whether err's chain contains a [PanicError].
func IsPanic(err error) bool { return errors.As(err, new(*PanicError)) }

// Do calls f and returns its error. If f panics, Do logs the panic with its stack and returns a [PanicError]. Work says
// what f does, after "while"; it is also the value of a label, so it names no object.
func Do(work string, f func() error) (err error) {
	defer Recover(work, &err)
	inject(work)
	return f()
}

// DoContext is [Do] with the logger of ctx, which names the object.
func DoContext(ctx context.Context, work string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			report(klog.FromContext(ctx), work, p)
			err = &PanicError{work}
		}
	}()
	inject(work)
	return f()
}

// Run is [Do] for functions without an error. It reports whether f returned.
func Run(work string, f func()) (returned bool) {
	return Do(work, func() error { f(); return nil }) == nil
}

// Recover turns a panic of the calling function into its error. It must be deferred.
func Recover(work string, err *error) {
	if p := recover(); p != nil {
		report(klog.Background(), work, p)
		*err = &PanicError{work}
	}
}

func report(logger klog.Logger, work string, p any) {
	panics.WithLabelValues(work).Inc()
	logger.Error(fmt.Errorf("panic: %v", p), "internal error", "work", work, "stack", string(debug.Stack()))
}

// Go starts a goroutine. A panic ends the goroutine only. Code that waits for its result must be woken by a deferred
// call in f, or get the error of [Do] in f.
func Go(work string, f func()) {
	go contain(work, f)
}

// contain is [Run] for goroutines: others may wait for a deferred call in f, so a panic is injected after it.
func contain(work string, f func()) {
	var err error
	defer Recover(work, &err)
	f()
	inject(work)
}

// restartDelay is how long Keep waits after the first panic. The delay doubles up to maxRestartDelay.
var restartDelay = time.Second

const maxRestartDelay = time.Minute

// Keep calls f until it returns without a panic, or ctx ends. It waits after each panic.
func Keep(ctx context.Context, work string, f func()) {
	for delay := restartDelay; !Run(work, f) && ctx.Err() == nil; delay = min(2*delay, maxRestartDelay) {
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// AfterFunc is [time.AfterFunc] with a guarded function.
func AfterFunc(work string, d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() { contain(work, f) })
}

// AfterDone is [context.AfterFunc] with a guarded function.
func AfterDone(ctx context.Context, work string, f func()) (stop func() bool) {
	return context.AfterFunc(ctx, func() { contain(work, f) })
}

// WaitGroup is a [sync.WaitGroup] with guarded goroutines.
type WaitGroup struct{ group sync.WaitGroup }

// Go calls f in a new goroutine.
func (w *WaitGroup) Go(work string, f func()) {
	w.group.Go(func() { contain(work, f) })
}

// Wait waits until all goroutines ended.
func (w *WaitGroup) Wait() { w.group.Wait() }

// Handler returns an HTTP handler that answers with status 500 when h panics. If h has begun to answer, the connection
// is closed instead, so that the client does not take the answer for complete.
func Handler(work string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &answer{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(http.ErrAbortHandler) // net/http closes the connection
			}
			report(klog.FromContext(r.Context()), work, p)
			if answer.begun {
				panic(http.ErrAbortHandler)
			}
			http.Error(w, (&PanicError{work}).Error(), http.StatusInternalServerError)
		}()
		inject(work)
		h.ServeHTTP(answer, r)
	})
}

// answer records whether an answer has begun.
type answer struct {
	http.ResponseWriter
	begun bool
}

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	a.begun = true
	a.ResponseWriter.WriteHeader(status)
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// ReadFrom implements [io.ReaderFrom], so that files are sent without a copy in memory.
func (a *answer) ReadFrom(r io.Reader) (int64, error) {
	a.begun = true
	return io.Copy(a.ResponseWriter, r)
}

// Unwrap returns the writer for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// Libraries makes the goroutines of client-go log a panic and go on, as far as they support it. They would end the
// process otherwise. Call it before they start.
var Libraries = sync.OnceFunc(func() {
	runtime.ReallyCrash = false
	runtime.PanicHandlers = append(runtime.PanicHandlers, func(context.Context, any) {
		panics.WithLabelValues("running a library").Inc()
	})
})
