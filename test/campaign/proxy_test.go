package campaign

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// apiProxy is between a controller and the API server. It answers as the administrator would be answered.
type apiProxy struct {
	server     *httptest.Server
	kubeconfig string

	mu     sync.Mutex
	cut    bool                                    // closes all connections, and answers nothing
	mutate func(r *http.Request, body body) []byte // nil: answers are not changed
	seen   func(r *http.Request)                   // of each request
}

// body is an answer, or an event of a watch.
type body struct {
	data    []byte
	isWatch bool
}

// newAPIProxy starts a proxy for the test cluster.
func newAPIProxy(t *testing.T) *apiProxy {
	t.Helper()
	cfg := testenv.Cluster(t)
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	p := &apiProxy{}
	proxy := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, ModifyResponse: p.answer,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		cut, seen := p.cut, p.seen
		p.mu.Unlock()
		if cut {
			panic(http.ErrAbortHandler)
		}
		if seen != nil {
			seen(r)
		}
		r.Header.Del("Accept-Encoding")  // so that answers can be changed
		defer func() { _ = recover() }() // the proxy panics when the answer is cut off
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
	})
	p.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.server.URL}
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	config.CurrentContext = "proxy"
	if err := clientcmd.WriteToFile(*config, p.kubeconfig); err != nil {
		t.Fatal(err)
	}
	return p
}

// partition cuts the controller off from the API server, or connects it again.
func (p *apiProxy) partition(cut bool) {
	p.mu.Lock()
	p.cut = cut
	p.mu.Unlock()
	if cut {
		p.server.CloseClientConnections()
	}
}

// setMutation changes all further answers.
func (p *apiProxy) setMutation(mutate func(r *http.Request, b body) []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mutate = mutate
}

// answer changes an answer of the API server.
func (p *apiProxy) answer(resp *http.Response) error {
	p.mu.Lock()
	mutate := p.mutate
	p.mu.Unlock()
	r := resp.Request
	if r.URL.Query().Get("watch") != "" {
		resp.Body = &watchBody{ReadCloser: resp.Body, proxy: p, request: r}
		return nil
	}
	if mutate == nil {
		return nil
	}
	data, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return err
	}
	data = mutate(r, body{data: data})
	resp.Body = io.NopCloser(bytes.NewReader(data))
	resp.ContentLength = int64(len(data))
	resp.Header.Del("Content-Length")
	return nil
}

// watchBody changes the events of a watch.
type watchBody struct {
	io.ReadCloser
	proxy   *apiProxy
	request *http.Request
	left    []byte
}

// Read implements [io.Reader].
func (w *watchBody) Read(p []byte) (int, error) {
	if len(w.left) == 0 {
		buf := make([]byte, 64<<10)
		n, err := w.ReadCloser.Read(buf)
		if err != nil {
			return 0, err
		}
		w.left = buf[:n]
		w.proxy.mu.Lock()
		mutate := w.proxy.mutate
		w.proxy.mu.Unlock()
		if mutate != nil {
			w.left = mutate(w.request, body{data: w.left, isWatch: true})
		}
	}
	n := copy(p, w.left)
	w.left = w.left[n:]
	return n, nil
}
