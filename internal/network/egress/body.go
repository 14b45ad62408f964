package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/hostguard"
)

// minDrip is the number of bytes that a body must deliver in Timeouts.Drip.
const minDrip = 30

// body is the content of an answer. It holds the request's slot until it is read to its end or closed, or the
// request's context ends. It fails if the host stops sending, or sends too slowly. Only time spent in Read counts:
// a slow reader is not the host's fault.
type body struct {
	io.ReadCloser
	ctx      context.Context // of the request
	route    hostguard.Route
	request  *hostguard.Request
	timeouts Timeouts
	cancel   func() // ends a Read
	end      func()
	timer    *time.Timer
	timedOut atomic.Bool

	spent    time.Duration // in Read, since received was reset
	received int           // bytes
}

// newBody returns the body of resp. It calls end once the request needs its slot no longer, and cancel to end a Read.
func (t *transport) newBody(resp *http.Response, route hostguard.Route, r *hostguard.Request, cancel, end func(),
) io.ReadCloser {
	if resp.Body == http.NoBody || resp.ContentLength == 0 || resp.Request.Method == http.MethodHead {
		_ = resp.Body.Close()
		end()
		return http.NoBody
	}
	ctx := resp.Request.Context()
	stop := guard.AfterDone(ctx, "ending a request", end)
	b := &body{ReadCloser: resp.Body, ctx: ctx, route: route, request: r, timeouts: t.timeouts, cancel: cancel,
		end: func() { stop(); end() }}
	b.timer = guard.AfterFunc("ending a request", b.timeouts.Idle, b.timeOut)
	b.timer.Stop()
	return b
}

func (b *body) timeOut() {
	b.timedOut.Store(true)
	b.cancel()
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	wait := b.request.Await()
	began := time.Now()
	b.timer.Reset(b.timeouts.Idle)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if n > 0 {
		b.request.Progress()
	}
	if err == nil && b.isTooSlow(time.Since(began), n) {
		b.timeOut()
	}
	if err == nil || errors.Is(err, io.EOF) || !b.timedOut.Load() {
		wait.Ended()
	} else {
		wait.TimedOut(b.ctx)
		err = failed("host '%s' stopped sending", b.route.Host).
			WithHint("Check the host, and the network path to it")
	}
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = explain(b.ctx, err, b.route)
		}
		b.end()
	}
	return n, err
}

// isTooSlow records the duration and the bytes of a Read, and reports whether the body delivers too few bytes.
func (b *body) isTooSlow(d time.Duration, n int) bool {
	b.spent += d
	b.received += n
	if b.spent < b.timeouts.Drip {
		return false
	}
	tooSlow := b.received < minDrip
	b.spent, b.received = 0, 0
	return tooSlow
}

// Close implements [io.Closer].
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
