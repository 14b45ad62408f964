package git

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// httpServer serves repositories over the smart HTTP protocol (git's gitprotocol-http), and its counts at /-/stats.
type httpServer struct {
	root               string // as resolve returned it
	username, password string // basic authentication when set
	token              string // bearer authentication when set
	stats              stats
	pulls              pulls
	api                http.Handler // of pulls
}

func (h *httpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/-/stats" { // the counters are public
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(h.stats.counts()) // the client may have closed the connection
		return
	}
	if !h.authorized(r) {
		w.Header().Set("WWW-Authenticate", `Basic realm="playground"`)
		http.Error(w, "wrong credentials", http.StatusUnauthorized)
		return
	}
	if strings.HasPrefix(r.URL.Path, apiPath) {
		h.api.ServeHTTP(w, r)
		return
	}
	for _, route := range []struct {
		method, suffix string
		serve          func(http.ResponseWriter, *http.Request, string)
	}{
		{http.MethodGet, "/info/refs", h.advertise},
		{http.MethodPost, "/" + uploadPack, h.fetch},
		{http.MethodPost, "/" + receivePack, h.push},
	} {
		if name, ok := strings.CutSuffix(r.URL.Path, route.suffix); ok && r.Method == route.method {
			dir, err := repository(h.root, name)
			if err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
				return
			}
			route.serve(w, r, dir)
			return
		}
	}
	http.NotFound(w, r)
}

func (h *httpServer) authorized(r *http.Request) bool {
	equal := func(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
	if h.token != "" && equal(r.Header.Get("Authorization"), "Bearer "+h.token) {
		return true
	}
	if h.username == "" && h.password == "" {
		return h.token == ""
	}
	user, password, ok := r.BasicAuth()
	return ok && equal(user, h.username) && equal(password, h.password)
}

func (h *httpServer) advertise(w http.ResponseWriter, r *http.Request, dir string) {
	service := r.URL.Query().Get("service")
	if service != uploadPack && service != receivePack {
		http.Error(w, "only the smart protocol is served", http.StatusForbidden)
		return
	}
	var banner string
	if !versionTwo(r) || service == receivePack { // under version 2 the references are asked for later
		h.stats.advertisements.Add(1)
		line := "# service=" + service + "\n"
		banner = fmt.Sprintf("%04x%s0000", len(line)+4, line)
	}
	h.run(w, r, http.NoBody, service, dir, service+"-advertisement", banner, "--stateless-rpc", "--advertise-refs")
}

func versionTwo(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Git-Protocol"), "version=2")
}

func (h *httpServer) fetch(w http.ResponseWriter, r *http.Request, dir string) {
	h.rpc(w, r, dir, uploadPack)
}
func (h *httpServer) push(w http.ResponseWriter, r *http.Request, dir string) {
	h.rpc(w, r, dir, receivePack)
	h.pulls.pushed()
}

func (h *httpServer) rpc(w http.ResponseWriter, r *http.Request, dir, service string) {
	body := bufio.NewReader(counted{r.Body, &h.stats})
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, "the body is not gzip as its header says", http.StatusBadRequest)
			return
		}
		body = bufio.NewReader(z)
	}
	switch {
	case service == receivePack:
		h.stats.pushes.Add(1)
	case versionTwo(r) && listsReferences(body):
		h.stats.advertisements.Add(1)
	default:
		h.stats.fetches.Add(1)
	}
	h.run(w, r, body, service, dir, service+"-result", "", "--stateless-rpc")
}

// listsReferences tells the request of version 2 of the protocol that takes the place of the advertisement.
func listsReferences(body *bufio.Reader) bool {
	line, err := body.Peek(len("0014command=ls-refs"))
	return err == nil && bytes.HasSuffix(line, []byte("command=ls-refs"))
}

// run answers with what git prints. Once a part of it is out, a failure can only cut the answer short.
func (h *httpServer) run(w http.ResponseWriter, r *http.Request, body io.Reader, service, dir, kind, banner string,
	args ...string) {
	var trouble bytes.Buffer
	out := &answer{w: w, body: sent{w, &h.stats}, kind: kind, banner: banner}
	cmd := command(r.Context(), service, dir, r.Header.Get("Git-Protocol"), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = body, out, &trouble
	if err := cmd.Run(); err != nil && !out.begun {
		http.Error(w, strings.TrimSpace(trouble.String()), http.StatusInternalServerError)
	}
}

// answer sends what is written as it comes, after a header and a banner.
type answer struct {
	w            http.ResponseWriter
	body         sent
	kind, banner string
	begun        bool
}

func (a *answer) Write(p []byte) (int, error) {
	if !a.begun {
		a.begun = true
		a.w.Header().Set("Content-Type", "application/x-"+a.kind)
		a.w.Header().Set("Cache-Control", "no-cache")
		if _, err := a.body.Write([]byte(a.banner)); err != nil {
			return 0, err
		}
	}
	n, err := a.body.Write(p)
	if f, ok := a.w.(http.Flusher); ok {
		f.Flush()
	}
	return n, err
}
