package testenv

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy is a TCP proxy that can interrupt connections and switch to another server. Its address does not change.
type Proxy struct {
	listener net.Listener

	mu          sync.Mutex
	target      string // host:port
	interrupted bool
	connections map[net.Conn]bool
}

// NewProxy starts a proxy for a server at host:port.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{listener: listener, target: target, connections: map[net.Conn]bool{}}
	tb.Cleanup(func() {
		_ = listener.Close()
		p.Interrupt(true)
	})
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // the test ended
			}
			go p.serve(c)
		}
	}()
	return p
}

// Address returns the host:port of the proxy.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// SetTarget directs new connections to another host:port.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Interrupt closes all connections, and refuses new ones while interrupted is true.
func (p *Proxy) Interrupt(interrupted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interrupted = interrupted
	for c := range p.connections {
		_ = c.Close()
	}
}

func (p *Proxy) serve(from net.Conn) {
	defer from.Close()
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer to.Close()
	if !p.add(from, to) {
		return
	}
	defer p.remove(from, to)
	go func() {
		_, _ = io.Copy(to, from) // until either side closes
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// add registers connections and reports whether they may proceed.
func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if !p.interrupted {
			p.connections[c] = true
		}
	}
	return !p.interrupted
}

func (p *Proxy) remove(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.connections, c)
	}
}
