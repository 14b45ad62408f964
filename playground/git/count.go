package git

import (
	"io"
	"sync/atomic"
)

// stats counts what was asked of a server. Its zero value is ready.
type stats struct {
	advertisements atomic.Int64 // of references
	fetches        atomic.Int64 // packs sent
	pushes         atomic.Int64
	bytesSent      atomic.Int64
	bytesReceived  atomic.Int64
}

func (s *stats) counts() map[string]int64 {
	return map[string]int64{
		"advertisements": s.advertisements.Load(), "fetches": s.fetches.Load(), "pushes": s.pushes.Load(),
		"bytesSent": s.bytesSent.Load(), "bytesReceived": s.bytesReceived.Load(),
	}
}

// counted counts what a client sends.
type counted struct {
	io.Reader
	stats *stats
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.stats.bytesReceived.Add(int64(n))
	return n, err
}

// sent counts what is sent to a client, before the client can have it.
type sent struct {
	io.Writer
	stats *stats
}

func (s sent) Write(p []byte) (int, error) {
	s.stats.bytesSent.Add(int64(len(p)))
	return s.Writer.Write(p)
}
