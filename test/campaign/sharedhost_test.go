package campaign

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// waysToHarm are what a host does below a path that a tenant chooses.
var waysToHarm = map[string]http.HandlerFunc{
	"hang": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	"drip": func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			_, _ = w.Write([]byte("0"))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(time.Second):
			}
		}
	},
	"limited":     answerAfter(http.StatusTooManyRequests),
	"unavailable": answerAfter(http.StatusServiceUnavailable),
	"forbidden":   answerAfter(http.StatusForbidden),
	"reset":       func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	"loop": func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/harm/loop"+r.URL.Path[len("/harm/loop"):]+"x", http.StatusFound)
	},
	"endless": func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat("0", 32<<10)); err != nil {
				return
			}
		}
	},
	"timeout": func(w http.ResponseWriter, r *http.Request) { // with spec.timeout of 6 ms
		select {
		case <-r.Context().Done():
		case <-time.After(100 * time.Millisecond):
		}
		w.WriteHeader(http.StatusNotFound)
	},
	"nonsense": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "001e# service=nonsense") },
}

func answerAfter(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(status)
	}
}

// TestCampaignSharedHost has three tenants with repositories at one host. One of them makes the host fail for it in ten
// ways: the fetches of the others take at most twice as long.
func TestCampaignSharedHost(t *testing.T) {
	const short, full = 2, 50
	e := begin(t, short, full)
	git := testenv.NewGit(t)
	target, err := url.Parse(git.URL)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for way, handler := range waysToHarm {
		mux.HandleFunc("/harm/"+way+"/", handler)
	}
	mux.Handle("/", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	host := httptest.NewServer(mux)
	t.Cleanup(host.CloseClientConnections)
	c := start(t, settings{namespace: "flux-system"})
	victims, hostile := []*tenant{newTenant(t, git), newTenant(t, git)}, newTenant(t, git)
	for _, v := range victims {
		v.commit("first")
		atHost := func(g *sourcev1.GitRepository) { g.Spec.URL = host.URL + "/" + v.repo }
		v.create(v.source("app", atHost), v.app("app"))
		v.has(c, "first")
	}
	fetch := func(value string) (slowest time.Duration) {
		for _, v := range victims {
			v.commit(value)
			began := time.Now()
			v.fetch()
			v.has(c, value)
			slowest = max(slowest, time.Since(began))
		}
		return slowest
	}
	before := time.Duration(0)
	for n := range max(5, e.want) {
		before = max(before, fetch(fmt.Sprint("before ", n)))
	}
	for way := range waysToHarm {
		hostile.create(hostile.harm(host.URL, way))
	}
	during := time.Duration(0)
	e.each(func(i int, _ *rand.Rand) {
		for way := range waysToHarm {
			hostile.request(&sourcev1.GitRepository{}, way)
		}
		during = max(during, fetch(fmt.Sprint("during ", i)))
		c.mustLive()
	})
	for way := range waysToHarm {
		if err := hostile.client.Get(context.Background(), client.ObjectKey{Namespace: hostile.namespace, Name: way},
			&sourcev1.GitRepository{}); err != nil {
			t.Error(err)
		}
	}
	e.note("%d ways, a fetch takes at most %s, before %s", len(waysToHarm), during.Round(time.Millisecond),
		before.Round(time.Millisecond))
	if during > 2*before+time.Second {
		t.Errorf("a fetch of another tenant took up to %s, before %s", during, before)
	}
}

// harm returns a source that makes the shared host fail.
func (n *tenant) harm(host, way string) *sourcev1.GitRepository {
	timeout := 20 * time.Second
	if way == "timeout" {
		timeout = 6 * time.Millisecond
	}
	return n.source(way, func(g *sourcev1.GitRepository) {
		g.Spec.URL, g.Spec.Timeout = host+"/harm/"+way+"/x", &meta.Duration{Duration: timeout}
		g.Spec.Interval = meta.Duration{Duration: time.Second}
	})
}
