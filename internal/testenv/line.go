package testenv

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Line is the network to a server. It can be cut, and lead to the one that takes its place: the address that
// it has stays.
type Line struct {
	listener net.Listener

	mu   sync.Mutex
	to   string // host:port
	cut  bool
	open map[net.Conn]bool
}

// NewLine lays a line to host:port.
func NewLine(tb testing.TB, to string) *Line {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &Line{listener: listener, to: to, open: map[net.Conn]bool{}}
	tb.Cleanup(func() {
		_ = listener.Close()
		l.Cut(true)
	})
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // the test is over
			}
			go l.carry(c)
		}
	}()
	return l
}

// Address returns the host:port at which the server is reached.
func (l *Line) Address() string { return l.listener.Addr().String() }

// Lead makes new connections lead to another host:port.
func (l *Line) Lead(to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
}

// Cut cuts the line, and what is open over it, or mends it.
func (l *Line) Cut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for c := range l.open {
		_ = c.Close()
	}
}

func (l *Line) carry(from net.Conn) {
	defer from.Close() // both sides are done
	l.mu.Lock()
	address := l.to
	l.mu.Unlock()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close() // both sides are done
	if !l.note(from, to) {
		return
	}
	defer l.forget(from, to)
	go func() {
		_, _ = io.Copy(to, from) // until either side closes
		_ = to.Close()
	}()
	_, _ = io.Copy(from, to)
}

// note takes connections in, unless the line is cut.
func (l *Line) note(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		if !l.cut {
			l.open[c] = true
		}
	}
	return !l.cut
}

func (l *Line) forget(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.open, c)
	}
}
