package egress

import (
	"net"
	"sync/atomic"
)

// Stats counts what a policy let out and in.
type Stats struct {
	Requests      int64 // that were sent, redirects included
	Connections   int64 // that were opened, to proxies included
	BytesReceived int64 // off the wire, so TLS and headers included
	BytesSent     int64
}

// Stats returns the counts so far.
func (p *Policy) Stats() Stats {
	return Stats{p.counts.requests.Load(), p.counts.connections.Load(), p.counts.received.Load(), p.counts.sent.Load()}
}

type counts struct{ requests, connections, received, sent atomic.Int64 }

// countedConn counts what goes through a connection.
type countedConn struct {
	net.Conn
	counts *counts
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.counts.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.counts.sent.Add(int64(n))
	return n, err
}
