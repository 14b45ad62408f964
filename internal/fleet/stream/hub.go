package stream

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/listen"
)

// Hub is the side of the hub: the streams of clusters to this replica, one each.
type Hub struct {
	// IsKnown reports whether a cluster is registered. The stream of one that is not is closed.
	IsKnown func(cluster string) bool
	// OnChange is called when a cluster gets its first stream or loses the last one; nil to do nothing.
	OnChange func(cluster string)
	// LoginHosts are hosts of login providers, to which a login at a cluster may lead.
	LoginHosts []string
	// Peers are the other replicas of the hub; nil if there is only one.
	Peers Peers
	Log   logr.Logger

	requests guard.Counter // by cluster
	mu       sync.Mutex
	streams  map[string]*link
	found    map[string]string // peers that have the stream of a cluster
}

// link is an open stream.
type link struct {
	client *http.ClientConn
	conn   *watched
	opened time.Time
}

// watched is a connection that says when it is closed.
type watched struct {
	net.Conn
	closed context.Context // done when it is closed
	cancel func()
}

func (w *watched) Close() error {
	w.cancel()
	return w.Conn.Close()
}

// IsLinked reports whether a cluster has a stream to this replica.
func (h *Hub) IsLinked(cluster string) bool { return h.link(cluster) != nil }

func (h *Hub) link(cluster string) *link {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams[cluster]
}

// Accept makes the connection of a request, by which an authenticated cluster opens its stream, that stream. It replaces
// the one that the cluster had.
func (h *Hub) Accept(w http.ResponseWriter, r *http.Request, cluster string) {
	if r.Method != http.MethodPost || r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), protocol) {
		w.Header().Set("Upgrade", protocol)
		fail(w, http.StatusUpgradeRequired, "a stream is opened by POST with HTTP/1.1 and Upgrade: "+protocol,
			"A proxy before the hub must use HTTP/1.1 and pass on the header Upgrade")
		return
	}
	if old := h.link(cluster); old != nil && time.Since(old.opened) < minAge {
		fail(w, http.StatusTooManyRequests, "the cluster has opened a stream just now",
			"If two processes report as this cluster, give each a name of its own")
		return
	}
	conn, err := hijack(w)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error(), "")
		return
	}
	l, err := newLink(r.Context(), conn)
	if err != nil {
		_ = conn.Close()
		h.Log.Info("a cluster did not speak HTTP/2 on its stream", "cluster", cluster, "reason", err.Error())
		return
	}
	listen.Detach(r) // each cluster has one stream, and all may come through one proxy
	h.Log.Info("a cluster opened its stream", "cluster", cluster)
	h.keep(cluster, l)
}

// keep has a stream as the one of a cluster until it is closed.
func (h *Hub) keep(cluster string, l *link) {
	h.add(cluster, l)
	guard.AfterDone(l.conn.closed, "removing a stream", func() { h.remove(cluster, l) })
	h.check(cluster, l)
}

// Close closes all streams.
func (h *Hub) Close() {
	h.mu.Lock()
	all := slices.Collect(maps.Values(h.streams))
	h.mu.Unlock()
	for _, l := range all {
		_ = l.conn.Close()
	}
}

// hijack takes the connection of a request over, and confirms the upgrade.
func hijack(w http.ResponseWriter) (*watched, error) {
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	if buffer.Reader.Buffered() > 0 {
		_ = conn.Close()
		return nil, errors.New("the cluster did not wait for the answer")
	}
	_ = conn.SetDeadline(time.Time{})
	_ = conn.SetWriteDeadline(time.Now().Add(writeByte))
	if _, err := conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol +
		"\r\n\r\n")); err != nil {
		_ = conn.Close()
		return nil, err
	}
	closed, cancel := context.WithCancel(context.Background())
	return &watched{Conn: conn, closed: closed, cancel: cancel}, nil
}

// transport has the settings of all links. What it dials is the connection that the context has.
var transport = &http.Transport{Protocols: protocols(), HTTP2: settings(), DisableCompression: true,
	MaxResponseHeaderBytes: maxHeader, ResponseHeaderTimeout: answerTimeout,
	DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return ctx.Value(connKey{}).(net.Conn), nil }}

type connKey struct{}

// newLink makes a connection one on which requests can be sent.
func newLink(ctx context.Context, conn *watched) (*link, error) {
	client, err := transport.NewClientConn(context.WithValue(ctx, connKey{}, conn), "http", "cluster:80")
	if err != nil {
		return nil, err
	}
	_ = conn.SetWriteDeadline(time.Time{})
	return &link{client: client, conn: conn, opened: time.Now()}, nil
}

// add makes a stream the one of a cluster. Requests on the former one may end.
func (h *Hub) add(cluster string, l *link) {
	h.mu.Lock()
	if h.streams == nil {
		h.streams = map[string]*link{}
	}
	old := h.streams[cluster]
	h.streams[cluster] = l
	h.mu.Unlock()
	if old == nil {
		h.notify(cluster)
		return
	}
	if old.client.InFlight() == 0 {
		_ = old.conn.Close()
		return
	}
	guard.AfterFunc("closing a stream that was replaced", drainTimeout, func() { _ = old.conn.Close() })
}

func (h *Hub) remove(cluster string, l *link) {
	h.mu.Lock()
	isLast := h.streams[cluster] == l
	if isLast {
		delete(h.streams, cluster)
	}
	h.mu.Unlock()
	if isLast {
		h.Log.Info("the stream of a cluster ended", "cluster", cluster)
		h.notify(cluster)
	}
}

func (h *Hub) notify(cluster string) {
	if h.OnChange != nil {
		h.OnChange(cluster)
	}
}

// check closes a stream that is too old, and that of a cluster that is no longer known. It has no goroutine: with 1,000
// streams, their stacks would be most of the memory of the hub.
func (h *Hub) check(cluster string, l *link) {
	switch {
	case l.conn.closed.Err() != nil:
	case time.Since(l.opened) > maxAge || !h.IsKnown(cluster):
		_ = l.conn.Close()
	default:
		guard.AfterFunc("checking a stream", pingAfter, func() { h.check(cluster, l) })
	}
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, text, hint string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(fleet.Error{Error: text, Hint: hint}) // the client is gone if this fails
}
