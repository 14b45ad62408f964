package stream

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// settingsFrame is an empty SETTINGS frame of HTTP/2 (RFC 9113, section 6.5), the first one of each side.
var settingsFrame = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}

// hang is the other side of a stream, which takes what it gets and sends nothing any more.
func hang(conn net.Conn, first []byte) {
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	go func() { _, _ = conn.Write(first) }()
}

// noticed is how long a side that hangs may be taken for one that works.
const noticed = pingAfter + pingTimeout + time.Second

// TestHubThatHangs ends the stream of a cluster when the hub does not answer pings.
func TestHubThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, hub := net.Pipe()
		c := &Cluster{Handler: http.NotFoundHandler(), Log: logr.Discard()}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.serve(t.Context(), &upgraded{ReadWriteCloser: own, closed: make(chan struct{})})
		}()
		hang(hub, append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), settingsFrame...))
		select {
		case <-ended:
		case <-time.After(noticed):
			t.Errorf("the stream to a hub that hangs is open after %s", noticed)
			_ = own.Close()
			<-ended
		}
		_ = hub.Close()
	})
}

// TestClusterThatHangs removes the stream of a cluster that does not answer pings.
func TestClusterThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, cluster := net.Pipe()
		closed, cancel := context.WithCancel(t.Context())
		hang(cluster, settingsFrame)
		l, err := newLink(t.Context(), &watched{Conn: own, closed: closed, cancel: cancel})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-closed.Done():
		case <-time.After(noticed):
			t.Errorf("the stream of a cluster that hangs is open after %s", noticed)
			_ = l.conn.Close()
		}
		_ = cluster.Close()
	})
}

// TestOldStreamsAndThoseOfRemovedClustersAreClosed closes the stream of a cluster whose Secret was deleted, and one that
// is old: its token may have been stolen.
func TestOldStreamsAndThoseOfRemovedClustersAreClosed(t *testing.T) {
	for name, test := range map[string]struct {
		isKnown bool
		limit   time.Duration
	}{"removed": {false, 2 * pingAfter}, "old": {true, maxAge + 2*pingAfter}} {
		synctest.Test(t, func(t *testing.T) {
			own, cluster := net.Pipe()
			closed, cancel := context.WithCancel(t.Context())
			c := &Cluster{Handler: http.NotFoundHandler(), Log: logr.Discard()}
			go c.serve(t.Context(), &upgraded{ReadWriteCloser: cluster, closed: make(chan struct{})})
			l, err := newLink(t.Context(), &watched{Conn: own, closed: closed, cancel: cancel})
			if err != nil {
				t.Fatal(err)
			}
			h := &Hub{IsKnown: func(string) bool { return test.isKnown }, Log: logr.Discard()}
			h.keep("edge-7", l)
			select {
			case <-closed.Done():
			case <-time.After(test.limit):
				t.Errorf("%s: the stream is open after %s", name, test.limit)
				_ = l.conn.Close()
			}
			synctest.Wait()
			if h.IsLinked("edge-7") {
				t.Errorf("%s: the hub has the stream", name)
			}
		})
	}
}
