package git

import (
	"bytes"
	"io"
	"slices"
	"strings"
)

// received counts what a client sends over SSH, and what it asks for with that.
type received struct {
	counted
	seen    int    // bytes
	tail    []byte // of what was seen, where a marker may begin
	markers []marker
}

// marker is a text in what a client sends, and what it asks for.
type marker struct {
	text  string
	after int // bytes before it
	count func()
}

// newReceived counts a session: under version 2 of the protocol every command is one request; before it, the references
// always come first, and a client that wants no more says so with an empty packet.
func newReceived(channel io.Reader, service, protocol string, s *stats) *received {
	r := &received{counted: counted{channel, s}}
	references, fetch, push := func() { s.advertisements.Add(1) }, func() { s.fetches.Add(1) },
		func() { s.pushes.Add(1) }
	if service == uploadPack && strings.Contains(protocol, "version=2") {
		r.markers = []marker{{text: "command=ls-refs", count: references}, {text: "command=fetch", count: fetch}}
		return r
	}
	references()
	const flush = "0000"
	r.markers = []marker{{after: len(flush), count: fetch}}
	if service == receivePack {
		r.markers[0].count = push
	}
	return r
}

func (r *received) Read(p []byte) (int, error) {
	n, err := r.counted.Read(p)
	if len(r.markers) == 0 {
		return n, err
	}
	r.seen += n
	r.tail = append(r.tail, p[:n]...)
	r.markers = slices.DeleteFunc(r.markers, func(m marker) bool {
		found := r.seen > m.after && bytes.Contains(r.tail, []byte(m.text))
		if found {
			m.count()
		}
		return found
	})
	const longest = len("command=ls-refs")
	r.tail = append(r.tail[:0], r.tail[max(0, len(r.tail)-longest):]...)
	return n, err
}
