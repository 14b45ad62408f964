package listen

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// pipe is a connection of an address.
type pipe struct {
	net.Conn
	closed bool
}

func (p *pipe) Close() error { p.closed = true; return nil }

// crowd accepts connections without a network.
type crowd struct{ *listener }

func newCrowd() crowd { return crowd{&listener{byAddress: map[netip.Prefix][]*conn{}}} }

// join returns the connection of a newcomer, nil if it was refused, and the one that was closed for it.
func (l crowd) join(address string) (c, evicted *conn) {
	c = &conn{Conn: &pipe{}, listener: l.listener, address: addressOf(net.TCPAddrFromAddrPort(
		netip.MustParseAddrPort(address)))}
	ok, evicted := l.admit(c)
	if !ok {
		return nil, evicted
	}
	return c, evicted
}

func (l crowd) check(t *testing.T) {
	t.Helper()
	total, waiting := 0, 0
	for address, all := range l.byAddress {
		if len(all) == 0 {
			t.Errorf("%s is kept without a connection", address)
		}
		total += len(all)
		for _, c := range all {
			if !c.handles {
				waiting++
			}
		}
	}
	if total != l.total || waiting != l.waiting || total > maxConnections || waiting > maxWaiting {
		t.Errorf("counts %d connections, %d waiting; there are %d and %d", l.total, l.waiting, total, waiting)
	}
}

func TestFloodClosesItsOwnConnections(t *testing.T) {
	l := newCrowd()
	victim, _ := l.join("192.0.2.1:1")
	var flood []*conn
	for n := range 10_000 {
		c, evicted := l.join(fmt.Sprintf("192.0.2.2:%d", n%60_000+1))
		if c == nil || evicted == victim {
			t.Fatalf("connection %d: accepted %v, closed %v for it", n, c, evicted)
		}
		if evicted != nil && evicted != flood[0] {
			t.Fatalf("connection %d: the closed connection is not the oldest", n)
		}
		if flood = append(flood, c); evicted != nil {
			flood = flood[1:]
		}
	}
	l.check(t)
	if c, evicted := l.join("192.0.2.3:1"); c == nil || evicted == nil || evicted.address == victim.address {
		t.Errorf("a newcomer got %v, and %v was closed", c, evicted)
	}
	if victim.isClosed {
		t.Error("the flood closed the connection of another address")
	}
}

// TestRequestsInWorkAreNotClosed has addresses whose requests do not end: each has at most half of what the others
// leave, and a newcomer finds room.
func TestRequestsInWorkAreNotClosed(t *testing.T) {
	l := newCrowd()
	var all []*conn
	has := map[string]int{}
	for _, address := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		for {
			c, evicted := l.join(address + ":1")
			if evicted != nil {
				t.Fatalf("a connection in work was closed for %s", address)
			}
			if c == nil {
				break
			}
			c.setHandling(true)
			has[address]++
			all = append(all, c)
		}
	}
	l.check(t)
	if has["192.0.2.1"] != maxConnections/2 || has["192.0.2.2"] != maxConnections/4 ||
		has["192.0.2.3"] != maxConnections/8 {
		t.Errorf("the addresses have %v", has)
	}
	if c, _ := l.join("192.0.2.4:1"); c == nil {
		t.Error("a newcomer is refused")
	}
	for _, c := range all {
		c.setHandling(false)
		_ = c.Close()
		_ = c.Close() // net/http may close twice
		c.setHandling(true)
	}
	l.check(t)
	if l.total != 1 {
		t.Errorf("%d connections are counted after they ended", l.total)
	}
}

func TestAddressesAreNetworksOfClients(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{a: "192.0.2.1:1", b: "192.0.2.1:2", same: true},
		{a: "192.0.2.1:1", b: "192.0.2.2:1"},
		{a: "[::ffff:192.0.2.1]:1", b: "192.0.2.1:1", same: true},
		{a: "[2001:db8::1]:1", b: "[2001:db8::ffff:1]:1", same: true},
		{a: "[2001:db8::1]:1", b: "[2001:db8:0:1::1]:1"},
		{a: "[fe80::1%eth0]:1", b: "[fe80::2%eth1]:1", same: true},
	} {
		a, b := netip.MustParseAddrPort(test.a), netip.MustParseAddrPort(test.b)
		if same := addressOf(net.TCPAddrFromAddrPort(a)) == addressOf(net.TCPAddrFromAddrPort(b)); same != test.same {
			t.Errorf("%s and %s: the same is %t", test.a, test.b, same)
		}
	}
	if addressOf(&net.UnixAddr{Name: "/x"}) != (netip.Prefix{}) {
		t.Error("a client without an address has one")
	}
}

// TestDetachedConnectionsAreNotCounted takes a connection over: its address may have another one instead.
func TestDetachedConnectionsAreNotCounted(t *testing.T) {
	l, err := TCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		Detach(r)
		guard.Go("a connection", func() {
			_, _ = io.WriteString(c, "taken over")
			_, _ = io.Copy(io.Discard, c) // until the client closes it
			_ = c.Close()
		})
	}))
	guard.Go("a server", func() { _ = server.Serve(l) })
	t.Cleanup(func() { _ = server.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := io.ReadFull(c, make([]byte, len("taken over"))); err != nil {
		t.Fatal(err)
	}
	counted := l.(*listener)
	counted.mu.Lock()
	defer counted.mu.Unlock()
	if counted.total != 0 || counted.waiting != 0 || len(counted.byAddress) != 0 {
		t.Errorf("%d connections of %d addresses, %d waiting, are counted", counted.total, len(counted.byAddress),
			counted.waiting)
	}
}

// TestEndsAreCounted has requests of all ends: answered, cut off, too large, kept alive.
func TestEndsAreCounted(t *testing.T) {
	l, err := TCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := Server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	guard.Go("a server", func() { _ = server.Serve(l) })
	t.Cleanup(func() { _ = server.Close() })
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost", "", "nonsense\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX: " + string(slices.Repeat([]byte("x"), 20<<10)) + "\r\n\r\n",
	} {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, request)
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(3 * time.Minute))
		_, _ = io.Copy(io.Discard, c) // until the server closes it
		_ = c.Close()
	}
	counted := l.(*listener)
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Millisecond) {
		counted.mu.Lock()
		total, waiting, addresses := counted.total, counted.waiting, len(counted.byAddress)
		counted.mu.Unlock()
		if total == 0 && waiting == 0 && addresses == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections of %d addresses, %d waiting, are counted", total, addresses, waiting)
		}
	}
}
