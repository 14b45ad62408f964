// Package listen is how the process serves HTTP: listeners that bound the connections of everyone and of each address,
// and servers that bound the header of a request. All clients are unknown when a connection is accepted, so nothing
// that a client sends before its first complete request may cost much memory.
package listen

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	// MaxHeader is the most that the header of a request may have, in bytes. net/http reads 4 KiB more.
	MaxHeader = 8 << 10
	// HeaderTimeout bounds how long a client may take to send the header of a request.
	HeaderTimeout = 10 * time.Second
	// IdleTimeout bounds how long a connection may wait for its next request.
	IdleTimeout = time.Minute

	// maxConnections is the maximum number of connections of a listener.
	maxConnections = 2048
	// maxWaiting is the maximum number of connections of a listener on which no request is handled. A waiting
	// connection can take 200 KiB for a header that does not end.
	maxWaiting = 256
)

// TCP listens on an address. The number of connections is bounded.
func TCP(addr string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &listener{Listener: l, byAddress: map[netip.Prefix][]*conn{}}, nil
}

// Server returns a server for a listener of [TCP]. Callers add the timeouts for bodies and answers.
func Server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: handling(h), MaxHeaderBytes: MaxHeader, ReadHeaderTimeout: HeaderTimeout, IdleTimeout: IdleTimeout,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(interface{ NetConn() net.Conn }); ok { // of TLS
				c = t.NetConn()
			}
			return context.WithValue(ctx, connKey{}, c)
		},
	}
}

type connKey struct{}

// handling marks the connections on which a request is handled.
func handling(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*conn); ok {
			c.setHandling(true)
			defer c.setHandling(false)
		}
		next.ServeHTTP(w, r)
	})
}

// Detach no longer counts the connection of a request, which its handler has hijacked. The handler bounds how many of
// them there are.
func Detach(r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); ok {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.remove(c)
	}
}

// listener accepts connections while there is room for them. If there is none, it closes the oldest connection on which
// no request is handled, of the address that has most of them. So a flood of one address closes its own connections.
type listener struct {
	net.Listener

	mu        sync.Mutex
	total     int
	waiting   int // of total: no request is handled
	byAddress map[netip.Prefix][]*conn
}

// conn is an accepted connection. The mutex of the listener guards its fields.
type conn struct {
	net.Conn
	listener *listener
	address  netip.Prefix
	handles  bool
	isClosed bool
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: accepted, listener: l, address: addressOf(accepted.RemoteAddr())}
		ok, evicted := l.admit(c)
		if evicted != nil {
			_ = evicted.Conn.Close() // its server sees that it is closed
		}
		if ok {
			return c, nil
		}
		_ = accepted.Close() // the listener is full
	}
}

// admit reports whether a connection may be served, and the connection to close for it.
func (l *listener) admit(c *conn) (ok bool, evicted *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := len(l.byAddress[c.address])
	if own >= guard.ShareOf(maxConnections, l.total-own) || l.waiting >= maxWaiting {
		if evicted = l.oldestWaiting(c.address); evicted == nil {
			return false, nil
		}
		l.remove(evicted)
	}
	l.total++
	l.waiting++
	l.byAddress[c.address] = append(l.byAddress[c.address], c)
	return true, evicted
}

// oldestWaiting returns the oldest waiting connection of the address that has most of them, nil if there is none.
// Of equal addresses it is that of the newcomer.
func (l *listener) oldestWaiting(newcomer netip.Prefix) (oldest *conn) {
	most := 0
	for address, all := range l.byAddress {
		n := 0
		for _, c := range all {
			if !c.handles {
				n++
			}
		}
		if n > most || n == most && n > 0 && address == newcomer {
			most = n
			oldest = all[slices.IndexFunc(all, func(c *conn) bool { return !c.handles })]
		}
	}
	return oldest
}

// remove forgets a connection. It is called with the mutex held.
func (l *listener) remove(c *conn) {
	if c.isClosed {
		return
	}
	c.isClosed = true
	l.total--
	if !c.handles {
		l.waiting--
	}
	rest := slices.DeleteFunc(l.byAddress[c.address], func(other *conn) bool { return other == c })
	if l.byAddress[c.address] = rest; len(rest) == 0 {
		delete(l.byAddress, c.address)
	}
}

func (c *conn) setHandling(handles bool) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	if c.isClosed || c.handles == handles {
		return
	}
	if c.handles = handles; handles {
		c.listener.waiting--
	} else {
		c.listener.waiting++
	}
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// addressOf returns the network of a client: its address, or the /64 of an IPv6 address, which one client has whole.
func addressOf(a net.Addr) netip.Prefix {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Prefix{} // all clients without an address share the connections of one
	}
	bits, ip := 32, at.Addr().Unmap()
	if ip.Is6() {
		bits = 64
	}
	p, err := ip.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// Bearer returns the bearer token of a request; empty if it has none.
func Bearer(h http.Header) string {
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
