package stream

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// forwardedHeader marks requests from another replica of the hub, which are not forwarded again. Anybody can set it,
// and gets nothing by it.
const forwardedHeader = "X-Sluice-Hub-Forwarded"

const probeTimeout = 5 * time.Second

// Peers are the other replicas of a hub. A cluster has a stream to one of them, which gets the requests for it.
type Peers interface {
	// Addresses returns the addresses of the other replicas.
	Addresses(ctx context.Context) ([]*url.URL, error)
	http.RoundTripper
}

// isProbe reports whether another replica asks whether a cluster has a stream here.
func isProbe(r *http.Request) bool { return r.Method == http.MethodHead && r.URL.Path == "/" }

func answerProbe(w http.ResponseWriter, isLinked bool) {
	if !isLinked {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// toPeer lets the replica that has the stream of a cluster answer. It reports false if no replica has it.
func (h *Hub) toPeer(w http.ResponseWriter, r *http.Request, cluster string) bool {
	if h.Peers == nil {
		return false
	}
	peer := h.peer(r.Context(), cluster)
	if peer == nil {
		return false
	}
	proxy := &httputil.ReverseProxy{Transport: h.Peers, FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
		p.Out.URL.Scheme, p.Out.URL.Host = peer.Scheme, peer.Host
		p.Out.URL.Path, p.Out.URL.RawPath = Prefix(cluster)+r.URL.Path, ""
		if raw := r.URL.RawPath; raw != "" {
			p.Out.URL.RawPath = Prefix(cluster) + raw
		}
		p.Out.Host = r.Host
		p.Out.Header.Set(forwardedHeader, "1")
		p.Out.Header.Del("Upgrade")
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
		h.forget(cluster)
		fail(w, http.StatusBadGateway, "the replica of the hub that has the stream of cluster '"+cluster+
			"' did not answer: "+err.Error(), "Try again")
	}, ModifyResponse: func(resp *http.Response) error {
		if resp.StatusCode == http.StatusServiceUnavailable {
			h.forget(cluster)
		}
		return nil
	}}
	proxy.ServeHTTP(&patient{ResponseWriter: w}, r)
	return true
}

// patient is the answer to a user who must take its parts in time, for as long as there are parts.
type patient struct{ http.ResponseWriter }

func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *patient) Write(b []byte) (int, error) {
	_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(takeTimeout))
	return p.ResponseWriter.Write(b)
}

func (h *Hub) forget(cluster string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.found, cluster)
}

// peer returns the replica that has the stream of a cluster, nil if none has.
func (h *Hub) peer(ctx context.Context, cluster string) *url.URL {
	all, err := h.Peers.Addresses(ctx)
	if err != nil {
		h.Log.Info("the other replicas of the hub are not known", "reason", err.Error())
		return nil
	}
	h.mu.Lock()
	known := h.found[cluster]
	h.mu.Unlock()
	for _, u := range all {
		if u.Host == known {
			return u
		}
	}
	u := h.ask(ctx, all, cluster)
	if u != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.found == nil {
			h.found = map[string]string{}
		}
		h.found[cluster] = u.Host
	}
	return u
}

// ask asks all replicas for the stream of a cluster.
func (h *Hub) ask(ctx context.Context, all []*url.URL, cluster string) (found *url.URL) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var mu sync.Mutex
	var asked guard.WaitGroup
	for _, u := range all {
		asked.Go("asking a replica of the hub for a stream", func() {
			r, err := http.NewRequestWithContext(ctx, http.MethodHead, u.JoinPath(Prefix(cluster)).String()+"/", nil)
			if err != nil {
				return
			}
			r.Header.Set(forwardedHeader, "1")
			resp, err := h.Peers.RoundTrip(r)
			if err != nil {
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusNoContent {
				mu.Lock()
				defer mu.Unlock()
				found = u
				cancel()
			}
		})
	}
	asked.Wait()
	return found
}
