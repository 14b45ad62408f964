package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// minDrip is how many bytes a body must bring in Timeouts.Drip.
const minDrip = 30

// body is the content of an answer. It holds the request's slot until it was read, was closed, or the
// request's context ended; and it gives up on a host that stops sending, or drips. Only the time spent in
// Read counts: a slow reader is not the host's fault.
type body struct {
	io.ReadCloser
	ctx    context.Context // of the request
	route  route
	host   *host
	cancel func() // ends a Read
	end    func()
	timer  *time.Timer
	hung   atomic.Bool

	spent time.Duration // in Read, since the count of bytes began
	got   int           // bytes
}

func newBody(resp *http.Response, route route, h *host, cancel, end func()) io.ReadCloser {
	if resp.Body == http.NoBody || resp.ContentLength == 0 || resp.Request.Method == http.MethodHead {
		_ = resp.Body.Close()
		end()
		return http.NoBody
	}
	ctx := resp.Request.Context()
	stop := context.AfterFunc(ctx, end)
	b := &body{ReadCloser: resp.Body, ctx: ctx, route: route, host: h, cancel: cancel, end: func() { stop(); end() }}
	b.timer = time.AfterFunc(h.timeouts.Idle, b.giveUp)
	b.timer.Stop()
	return b
}

func (b *body) giveUp() {
	b.hung.Store(true)
	b.cancel()
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	done := b.host.expect()
	began := time.Now()
	b.timer.Reset(b.host.timeouts.Idle)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	done()
	if n > 0 {
		b.host.alive()
	}
	if err == nil && b.drips(time.Since(began), n) {
		b.giveUp()
	}
	switch {
	case errors.Is(err, io.EOF):
	case b.hung.Load():
		b.host.hung(began)
		err = failed("%s stopped sending", b.host.name).WithHint("Check the host, and the network on the way")
	case err != nil:
		err = explain(b.ctx, err, b.route)
	}
	if err != nil {
		b.end()
	}
	return n, err
}

// drips tells whether the host sends, but next to nothing.
func (b *body) drips(d time.Duration, n int) bool {
	b.spent += d
	b.got += n
	if b.spent < b.host.timeouts.Drip {
		return false
	}
	dripped := b.got < minDrip
	b.spent, b.got = 0, 0
	return dripped
}

// Close implements io.Closer.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}
