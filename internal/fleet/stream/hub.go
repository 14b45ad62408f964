package stream

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/sluice-gitops/sluice/internal/fleet"
	"github.com/sluice-gitops/sluice/internal/guard"
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
	once   sync.Once
	closed chan struct{}
}

func (w *watched) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.Conn.Close()
}

// IsLinked reports whether a cluster has a stream to this replica.
func (h *Hub) IsLinked(cluster string) bool { return h.link(cluster) != nil }

func (h *Hub) link(cluster string) *link {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams[cluster]
}

// Accept serves the request by which an authenticated cluster opens its stream, until the stream ends. The stream
// replaces the one that the cluster had.
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
	defer func() { _ = conn.Close() }()
	l, err := newLink(r.Context(), conn)
	if err != nil {
		h.Log.Info("a cluster did not speak HTTP/2 on its stream", "cluster", cluster, "reason", err.Error())
		return
	}
	h.add(cluster, l)
	h.Log.Info("a cluster opened its stream", "cluster", cluster)
	h.keep(r.Context(), cluster, l)
	h.remove(cluster, l)
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
	return &watched{Conn: conn, closed: make(chan struct{})}, nil
}

// newLink makes a connection one on which requests can be sent.
func newLink(ctx context.Context, conn *watched) (*link, error) {
	t := &http.Transport{Protocols: protocols(), HTTP2: settings(), DisableCompression: true,
		MaxResponseHeaderBytes: maxHeader, ResponseHeaderTimeout: answerTimeout,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	client, err := t.NewClientConn(ctx, "http", "cluster:80")
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

// keep returns when the stream ends. It closes one that is too old, and that of a cluster that is no longer known.
func (h *Hub) keep(ctx context.Context, cluster string, l *link) {
	check := time.NewTicker(pingAfter)
	defer check.Stop()
	for {
		select {
		case <-l.conn.closed:
			return
		case <-ctx.Done():
			return
		case <-check.C:
			if time.Since(l.opened) > maxAge || !h.IsKnown(cluster) {
				return
			}
		}
	}
}

// fail answers with an error.
func fail(w http.ResponseWriter, status int, text, hint string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(fleet.Error{Error: text, Hint: hint}) // the client is gone if this fails
}
