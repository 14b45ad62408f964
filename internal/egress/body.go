package egress

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	dripWindow = time.Minute
	// minPerWindow is less than git's keep-alive packets bring while a server counts objects, 5 bytes each 5 seconds.
	minPerWindow = 30
)

// body is the content of an answer. It holds the request's slot until it was read, closed, or the request's context ended; and it
// gives up on a host that stops sending, or drips. Only the time spent in Read counts: a slow reader is not the host's fault.
type body struct {
	io.ReadCloser
	host   *host
	cancel context.CancelCauseFunc
	end    func()
	timer  *time.Timer

	spent time.Duration // reading, in this window
	got   int64         // bytes, in this window
	once  sync.Once
	hung  chan struct{} // closed when the host stopped sending
}

func newBody(resp *http.Response, h *host, cancel context.CancelCauseFunc, stop func() bool, end func()) io.ReadCloser {
	done := func() { stop(); end() }
	if resp.Body == http.NoBody || resp.ContentLength == 0 && resp.StatusCode != http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		done()
		return http.NoBody
	}
	b := &body{ReadCloser: resp.Body, host: h, cancel: cancel, end: done, hung: make(chan struct{})}
	b.timer = time.AfterFunc(time.Hour, b.giveUp)
	b.timer.Stop()
	return b
}

func (b *body) giveUp() {
	b.once.Do(func() { close(b.hung) })
	b.cancel(nil)
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	began := time.Now()
	b.timer.Reset(b.host.timeouts.Idle)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if n > 0 {
		b.host.alive()
	}
	if err == nil && b.drips(time.Since(began), n) {
		b.giveUp()
	}
	select {
	case <-b.hung:
		err = failed("%s stopped sending", b.host.name).WithHint("Check the host, and the network on the way")
	default:
	}
	if err != nil {
		b.end()
	}
	return n, err
}

// drips tells whether a host sends, but next to nothing.
func (b *body) drips(d time.Duration, n int) bool {
	b.spent += d
	b.got += int64(n)
	if b.spent < dripWindow {
		return false
	}
	dripped := b.got < minPerWindow
	b.spent, b.got = 0, 0
	return dripped
}

// Close implements io.Closer.
func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.timer.Stop()
	b.end()
	return err
}
