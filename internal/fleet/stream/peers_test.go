package stream

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// peerList are replicas of a hub.
type peerList struct {
	http.RoundTripper
	all []*url.URL
}

func (p *peerList) Addresses(context.Context) ([]*url.URL, error) { return p.all, nil }

func TestOtherReplicaHasTheStream(t *testing.T) {
	a := newSite(t)
	peers := &peerList{RoundTripper: a.server.Client().Transport, all: []*url.URL{a.url()}}
	b := newSite(t, func(h *Hub) { h.Peers = peers })
	peers.all = append(peers.all, b.url())
	stop := a.cluster("edge-7", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "sluice-session", Value: "x", Path: "/"})
		sendJSON(w, fmt.Sprintf("%s %s", r.URL, r.Header.Get("Cookie")))
	})
	a.linked("edge-7")
	for range 2 {
		r := b.do("edge-7", http.MethodGet, "/api/v1/objects/a%2Fb?x=1", "", func(r *http.Request) {
			r.Header.Set("Cookie", "sluice-at.edge-7.sluice-session=own; hub=h")
		})
		if r.body != "/api/v1/objects/a%2Fb?x=1 sluice-session=own" || len(r.header.Values("Set-Cookie")) != 1 ||
			!strings.HasPrefix(r.header.Get("Set-Cookie"), "sluice-at.edge-7.sluice-session=x; Path=/fleet/") {
			t.Errorf("by the other replica: %d %s %v", r.status, r.body, r.header)
		}
	}
	stop()
	eventually(t, "the stream is gone", func() bool { return !a.IsLinked("edge-7") })
	for range 2 {
		if r := b.do("edge-7", http.MethodGet, "/api/v1/me", ""); r.status != http.StatusServiceUnavailable {
			t.Errorf("without a stream: %d %s", r.status, r.body)
		}
	}
}
