package egress

import (
	"net"
	"sync/atomic"
)

// Stats are the counts of a policy since its start.
type Stats struct {
	Requests      int64 // sent, including redirects
	Connections   int64 // opened, including those to proxies
	BytesReceived int64 // on the network, including TLS and headers
	BytesSent     int64
}

// Stats returns the current counts.
func (p *Policy) Stats() Stats {
	return Stats{Requests: p.counts.requests.Load(), Connections: p.counts.connections.Load(),
		BytesReceived: p.counts.received.Load(), BytesSent: p.counts.sent.Load()}
}

type counts struct{ requests, connections, received, sent atomic.Int64 }

// countedConn counts the bytes of a connection.
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
