package helm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	repo "helm.sh/helm/v4/pkg/repo/v1"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// newChart returns a chart with a template and values.
func newChart(name, version string, dependencies ...*chart.Chart) *chart.Chart {
	file := func(name, text string) *common.File {
		return &common.File{Name: name, Data: []byte(text), ModTime: epoch}
	}
	c := &chart.Chart{
		Metadata:  &chart.Metadata{APIVersion: "v2", Name: name, Version: version},
		Templates: []*common.File{file("templates/config.yaml", "kind: ConfigMap\n")},
		Raw:       []*common.File{file("values.yaml", "color: red\nsize: {w: 1, h: 2}\n")},
		Files:     []*common.File{file("values-prod.yaml", "size: {w: 9}\n")},
	}
	c.SetDependencies(dependencies...)
	return c
}

// packaged packages a chart with Helm's packager.
func packaged(t *testing.T, c *chart.Chart) []byte {
	t.Helper()
	file, err := chartutil.Save(c, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// chartServer is a chart repository over HTTPS that wants a login.
type chartServer struct {
	*httptest.Server
	dir string

	mu   sync.Mutex
	seen []string // method, path, and what came of it
}

const user, password = "user", "pa55"

func newChartServer(t *testing.T) *chartServer {
	s := &chartServer{dir: t.TempDir()}
	files := http.FileServer(http.Dir(s.dir))
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		if u, p, _ := r.BasicAuth(); u != user || p != password {
			status.WriteHeader(http.StatusUnauthorized)
		} else {
			files.ServeHTTP(status, r)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen = append(s.seen, fmt.Sprintf("%s %s %d", r.Method, r.URL.RequestURI(), status.status))
	}))
	t.Cleanup(s.Close)
	return s
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// requests returns what was asked since the last call.
func (s *chartServer) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

// publish packages charts and makes an index of all of them with Helm's indexer.
func (s *chartServer) publish(t *testing.T, charts ...*chart.Chart) {
	t.Helper()
	for _, c := range charts {
		if _, err := chartutil.Save(c, s.dir); err != nil {
			t.Fatal(err)
		}
	}
	index, err := repo.IndexDirectory(s.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := index.WriteFile(filepath.Join(s.dir, "index.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// write puts a file beside the charts.
func (s *chartServer) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *chartServer) client() *HTTP {
	return &HTTP{URL: s.URL, Username: user, Password: password, Transport: s.Client().Transport, Limits: DefaultLimits}
}

// indexed returns a client that has the index.
func (s *chartServer) indexed(t *testing.T) *HTTP {
	t.Helper()
	h := s.client()
	f, err := h.FetchIndex(t.Context(), Validators{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if h.Index, err = f.Parse(h.Limits); err != nil {
		t.Fatal(err)
	}
	return h
}

// contents returns the files of a package by name, and fails on one that is there twice.
func contents(t *testing.T, data []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := found[h.Name]; twice {
			t.Fatalf("%s is there twice", h.Name)
		}
		found[h.Name] = string(text)
	}
}

// archiveOf makes a .tgz of entries; those without a type are files.
func archiveOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range entries {
		text := h.Uname // stands for the content
		h.Uname, h.Mode, h.Size = "", 0o644, int64(len(text))
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Typeflag != tar.TypeReg {
			h.Size, text = 0, ""
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const chartYAML = "apiVersion: v2\nname: app\nversion: 1.2.3\n"

// treeOf makes a tree of a chart's files below a directory, and of others.
func treeOf(dir string, more map[string]string) *artifact.Tree {
	all := map[string]string{
		dir + "/Chart.yaml": chartYAML, dir + "/values.yaml": "color: red\n", dir + "/templates/config.yaml": "kind: ConfigMap\n",
	}
	for name, text := range more {
		all[name] = text
	}
	return artifact.FromMap(all)
}

// wants fails unless err is a fault with the reason whose text contains the words.
func wants(t *testing.T, err error, reason string, words ...string) {
	t.Helper()
	if err == nil || fault.Reason(err, "") != reason {
		t.Fatalf("got %v with reason %q, want reason %q", err, fault.Reason(err, ""), reason)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("%q does not say %q", err, w)
		}
	}
	for _, secret := range []string{password, "s3cret"} {
		if strings.Contains(err.Error(), secret) {
			t.Fatalf("the error tells a secret: %v", err)
		}
	}
}

func keys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
