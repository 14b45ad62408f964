// Package chartrepo provides tests with a Helm repository and with charts.
package chartrepo

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	repo "helm.sh/helm/v4/pkg/repo/v1"
)

// The login of a repository.
const (
	User     = "user"
	Password = "pa55"
)

// Server is a chart repository over HTTPS with basic authentication. Helm's library writes its index. It serves
// files with ETags.
type Server struct {
	tb     testing.TB
	URL    string
	CA     []byte // PEM of the certificate authority
	Dir    string // with the files
	server *httptest.Server

	mu       sync.Mutex
	requests []string
}

// New starts an empty repository.
func New(tb testing.TB) *Server {
	h := &Server{tb: tb, Dir: tb.TempDir()}
	h.server = httptest.NewTLSServer(http.HandlerFunc(h.serve))
	tb.Cleanup(h.server.Close)
	h.URL = h.server.URL
	h.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw})
	return h
}

func (h *Server) serve(w http.ResponseWriter, r *http.Request) {
	response := &statusWriter{w, http.StatusOK}
	if user, password, _ := r.BasicAuth(); user != User || password != Password {
		response.WriteHeader(http.StatusUnauthorized)
	} else {
		response.Header().Set("ETag", etag(filepath.Join(h.Dir, filepath.Base(r.URL.Path))))
		http.FileServer(http.Dir(h.Dir)).ServeHTTP(response, r)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests = append(h.requests, fmt.Sprintf("%s %s %d", r.Method, r.URL.RequestURI(), response.status))
}

// etag returns the ETag of a file, or "" if it cannot be read.
func etag(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return ""
	}
	return fmt.Sprintf("%q", hex.EncodeToString(sum.Sum(nil)))
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Requests returns the requests since the last call, as method, path and status.
func (h *Server) Requests() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	requests := h.requests
	h.requests = nil
	return requests
}

// Transport returns a transport that trusts the server's certificate.
func (h *Server) Transport() http.RoundTripper { return h.server.Client().Transport }

// Stop stops the server.
func (h *Server) Stop() { h.server.Close() }

// Publish adds packaged charts and updates the index.
func (h *Server) Publish(charts ...*chart.Chart) {
	h.tb.Helper()
	for _, c := range charts {
		if _, err := chartutil.Save(c, h.Dir); err != nil {
			h.tb.Fatal(err)
		}
	}
	index, err := repo.IndexDirectory(h.Dir, "")
	if err == nil {
		err = index.WriteFile(filepath.Join(h.Dir, "index.yaml"), 0o600)
	}
	if err != nil {
		h.tb.Fatal(err)
	}
}

// Write writes a file next to the charts.
func (h *Server) Write(name string, content []byte) {
	h.tb.Helper()
	if err := os.WriteFile(filepath.Join(h.Dir, name), content, 0o600); err != nil {
		h.tb.Fatal(err)
	}
}

// NewChart returns a chart with a template, values, and other values in values-prod.yaml.
func NewChart(name, version string, dependencies ...*chart.Chart) *chart.Chart {
	modTime := time.Unix(0, 0) // constant, so that packaging is reproducible
	file := func(name, text string) *common.File {
		return &common.File{Name: name, Data: []byte(text), ModTime: modTime}
	}
	c := &chart.Chart{
		ModTime:   modTime,
		Metadata:  &chart.Metadata{APIVersion: "v2", Name: name, Version: version},
		Templates: []*common.File{file("templates/config.yaml", "kind: ConfigMap\n")},
		Raw:       []*common.File{file("values.yaml", "color: red\nsize: {w: 1, h: 2}\n")},
		Files:     []*common.File{file("values-prod.yaml", "size: {w: 9}\n")},
	}
	c.SetDependencies(dependencies...)
	return c
}

// Package returns a chart packaged by Helm's library.
func Package(tb testing.TB, c *chart.Chart) []byte {
	tb.Helper()
	dir := tb.TempDir()
	file, err := chartutil.Save(c, dir)
	data, readErr := os.ReadFile(file)
	if err := errors.Join(err, readErr); err != nil {
		tb.Fatal(err)
	}
	return data
}
