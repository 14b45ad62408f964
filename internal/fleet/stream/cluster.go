package stream

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/fleet/client"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
)

// spread is the time over which clusters connect again when a hub was away.
const spread = 30 * time.Second

// Cluster is the side of a cluster.
type Cluster struct {
	Client  *client.Client // by which the cluster reports
	Handler http.Handler   // of the requests of users
	// IsActive reports whether this process has the stream of the cluster; nil if it always does.
	IsActive func() bool
	// OnChange is called when the first stream was opened, and when the last one ended; nil to do nothing.
	OnChange func()
	Log      logr.Logger

	spread  time.Duration // for tests; 0 is the default
	streams atomic.Int32  // that are open
}

// IsOpen reports whether the cluster has a stream.
func (c *Cluster) IsOpen() bool { return c.streams.Load() > 0 }

// count adds to the number of open streams.
func (c *Cluster) count(n int32) {
	wasOpen := c.IsOpen()
	c.streams.Add(n)
	if c.OnChange != nil && wasOpen != c.IsOpen() {
		c.OnChange()
	}
}

// Run keeps a stream open until the context ends. A stream that lasts is replaced by a newer one before the hub closes
// it, so that the hub sees a token of today.
func (c *Cluster) Run(ctx context.Context) {
	over := c.spread
	if over == 0 {
		over = spread
	}
	var last string
	failures := 0
	for ctx.Err() == nil {
		if c.IsActive != nil && !c.IsActive() {
			wait(ctx, time.Second)
			failures = 0
			continue
		}
		wasOpen, err := c.once(ctx)
		if wasOpen {
			failures = 0
		}
		if err == nil {
			last = ""
			continue // the stream was old
		}
		if text := err.Error(); ctx.Err() == nil && text != last {
			c.Log.Info("the stream to the hub is closed", "hub", c.Client.URL, "reason", text)
			last = text
		}
		if !wait(ctx, pause(failures, over)) {
			return
		}
		failures++
	}
}

// pause returns the time until the next attempt: a random one at first, as all clusters lost their streams at once. Then
// each keeps its time in the interval, so that they come evenly whenever the hub is back.
func pause(failures int, over time.Duration) time.Duration {
	if failures == 0 {
		return rand.N(over)
	}
	return over
}

// once opens a stream and serves it. The error is nil if the stream is so old that the next one must be opened: the
// former one serves until the hub has no request on it.
func (c *Cluster) once(ctx context.Context) (wasOpen bool, err error) {
	conn, err := c.open(ctx)
	if err != nil {
		return false, err
	}
	c.Log.Info("the stream to the hub is open", "hub", c.Client.URL)
	c.count(1)
	ended := make(chan struct{})
	guard.Go("serving the stream to the hub", func() {
		defer close(ended)
		defer c.count(-1)
		c.serve(ctx, conn)
	})
	renew := time.NewTimer(renewMin + rand.N(renewMax-renewMin))
	defer renew.Stop()
	select {
	case <-ended:
		return true, errors.New("the connection ended")
	case <-renew.C:
		return true, nil
	}
}

// open asks the hub for a stream.
func (c *Cluster) open(ctx context.Context) (net.Conn, error) {
	r, err := c.Client.Request(ctx, http.MethodPost, fleet.StreamPath, nil)
	if err != nil {
		return nil, err
	}
	config, err := c.Client.TLS()
	if err != nil {
		return nil, err
	}
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", protocol)
	p := &http.Protocols{}
	p.SetHTTP1(true) // HTTP/2 has no Upgrade
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, Protocols: p,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: pingAfter}).DialContext,
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: dialTimeout, DisableKeepAlives: true,
		MaxResponseHeaderBytes: maxHeader}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return nil, c.Client.Explain(err)
	}
	body, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok ||
		!strings.EqualFold(resp.Header.Get("Upgrade"), protocol) {
		defer func() { _ = resp.Body.Close() }()
		return nil, client.Refused(resp, "a proxy before the hub must pass on the header Upgrade, and the address must be "+
			"that of a hub")
	}
	return &upgraded{ReadWriteCloser: body, closed: make(chan struct{})}, nil
}

// serve answers requests on a connection until it is closed.
func (c *Cluster) serve(ctx context.Context, conn net.Conn) {
	server := listen.Server(onlyAPI(c.Handler))
	server.Protocols, server.HTTP2 = protocols(), settings()
	server.WriteTimeout, server.IdleTimeout = answerTimeout, 2*maxAge
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := guard.AfterDone(ctx, "closing the stream to the hub", func() { _ = server.Close() })
	defer stop()
	_ = server.Serve(&single{conn: conn}) // it ends when the connection does
}

// onlyAPI refuses requests for pages: those of the hub are shown. Bodies must arrive in time.
func onlyAPI(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isAPI(r.URL.Path) {
			http.Error(w, "not found", http.StatusNotFound)
			return
		}
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(takeTimeout))
		next.ServeHTTP(w, r)
	})
}

// isAPI reports whether a path is one of the UI's API or of its login.
func isAPI(path string) bool {
	return strings.HasPrefix(path, "/api/v1/") || strings.HasPrefix(path, "/login/") || path == "/logout"
}

// upgraded is a connection after the Upgrade. Its deadlines do nothing: pings find out that the hub is gone.
type upgraded struct {
	io.ReadWriteCloser
	once   sync.Once
	closed chan struct{}
}

func (u *upgraded) Close() error {
	u.once.Do(func() { close(u.closed) })
	return u.ReadWriteCloser.Close()
}

func (*upgraded) LocalAddr() net.Addr              { return hubAddr{} }
func (*upgraded) RemoteAddr() net.Addr             { return hubAddr{} }
func (*upgraded) SetDeadline(time.Time) error      { return nil }
func (*upgraded) SetReadDeadline(time.Time) error  { return nil }
func (*upgraded) SetWriteDeadline(time.Time) error { return nil }

type hubAddr struct{}

func (hubAddr) Network() string { return "stream" }
func (hubAddr) String() string  { return "hub" }

// single is a listener with one connection. It ends when that is closed.
type single struct {
	conn net.Conn
	once sync.Once
}

func (s *single) Accept() (c net.Conn, err error) {
	s.once.Do(func() { c = s.conn })
	if c != nil {
		return c, nil
	}
	<-s.conn.(*upgraded).closed
	return nil, io.EOF
}

func (s *single) Close() error   { return s.conn.Close() }
func (s *single) Addr() net.Addr { return hubAddr{} }
