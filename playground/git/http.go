package git

import (
	"compress/gzip"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// HTTP serves repositories over the smart HTTP protocol (git's gitprotocol-http).
type HTTP struct {
	Root               string // as [Root] returned it
	Username, Password string // basic authentication when set
	Token              string // bearer authentication when set
	Stats              Stats
}

func (h *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/-/stats" {
		h.serveStats(w)
		return
	}
	if !h.authorized(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="playground"`)
		http.Error(w, "wrong credentials", http.StatusUnauthorized)
		return
	}
	switch {
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/info/refs"):
		h.advertise(w, r, strings.TrimSuffix(r.URL.Path, "/info/refs"))
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/"+uploadPack):
		h.Stats.Fetches.Add(1)
		h.serve(w, r, uploadPack, strings.TrimSuffix(r.URL.Path, "/"+uploadPack))
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/"+receivePack):
		h.Stats.Pushes.Add(1)
		h.serve(w, r, receivePack, strings.TrimSuffix(r.URL.Path, "/"+receivePack))
	default:
		http.NotFound(w, r)
	}
}

func (h *HTTP) authorized(r *http.Request) bool {
	equal := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	if h.Token != "" && equal(r.Header.Get("Authorization"), "Bearer "+h.Token) {
		return true
	}
	if h.Username == "" && h.Password == "" {
		return h.Token == ""
	}
	user, password, ok := r.BasicAuth()
	return ok && equal(user, h.Username) && equal(password, h.Password)
}

func (h *HTTP) advertise(w http.ResponseWriter, r *http.Request, name string) {
	service := r.URL.Query().Get("service")
	dir, err := repository(h.Root, name)
	if err != nil || service != uploadPack && service != receivePack {
		http.NotFound(w, r)
		return
	}
	h.Stats.Advertisements.Add(1)
	header(w, service+"-advertisement")
	protocol := r.Header.Get("Git-Protocol")
	if !strings.Contains(protocol, "version=2") || service == receivePack {
		line := "# service=" + service + "\n"
		fmt.Fprintf(w, "%04x%s0000", len(line)+4, line)
	}
	cmd := command(service, dir, protocol, "--stateless-rpc", "--advertise-refs")
	cmd.Stdout = &counter{w, &h.Stats}
	_ = cmd.Run() // the client sees a short answer
}

func (h *HTTP) serve(w http.ResponseWriter, r *http.Request, service, name string) {
	dir, err := repository(h.Root, name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = z
	}
	header(w, service+"-result")
	cmd := command(service, dir, r.Header.Get("Git-Protocol"), "--stateless-rpc")
	cmd.Stdin, cmd.Stdout = body, &counter{w, &h.Stats}
	_ = cmd.Run() // the client sees a short answer
}

func header(w http.ResponseWriter, kind string) {
	w.Header().Set("Content-Type", "application/x-"+kind)
	w.Header().Set("Cache-Control", "no-cache")
}

func (h *HTTP) serveStats(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]int64{ // a reader that went away is no error
		"advertisements": h.Stats.Advertisements.Load(), "fetches": h.Stats.Fetches.Load(),
		"pushes": h.Stats.Pushes.Load(), "bytesSent": h.Stats.BytesSent.Load(),
	})
}

// counter counts what goes out, and sends it as it comes.
type counter struct {
	io.Writer
	stats *Stats
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.stats.BytesSent.Add(int64(n))
	if f, ok := c.Writer.(http.Flusher); ok {
		f.Flush()
	}
	return n, err
}
