package helm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	chart "helm.sh/helm/v4/pkg/chart/v2"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

var newChart = chartrepo.NewChart

func packaged(t *testing.T, c *chart.Chart) []byte { return chartrepo.Package(t, c) }

// chartServer is a chart repository over HTTPS that requires a login.
type chartServer struct{ *chartrepo.Server }

const user, password = chartrepo.User, chartrepo.Password

func newChartServer(t *testing.T) chartServer { return chartServer{chartrepo.New(t)} }

func (s chartServer) client() *HTTP {
	return &HTTP{URL: s.URL, Username: user, Password: password, Transport: s.Transport(), Limits: DefaultLimits}
}

// indexed returns a client with the index.
func (s chartServer) indexed(t *testing.T) *HTTP {
	t.Helper()
	h := s.client()
	f, err := h.FetchIndex(t.Context(), Validators{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if h.Index, err = f.Parse(t.Context(), h.Limits); err != nil {
		t.Fatal(err)
	}
	return h
}

// contents returns the files of a package by name. It fails the test if a file is duplicate.
func contents(t *testing.T, data []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
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
			t.Fatalf("%s is duplicate", h.Name)
		}
		found[h.Name] = string(text)
	}
}

// archiveOf returns a .tgz archive of entries. An entry without a type is a file; its Uname is the content.
func archiveOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range entries {
		text := h.Uname
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

// treeOf returns a tree with a chart in a directory, and with more files.
func treeOf(dir string, more map[string]string) *artifact.Tree {
	all := map[string]string{
		dir + "/Chart.yaml": chartYAML, dir + "/values.yaml": "color: red\n", dir +
			"/templates/config.yaml": "kind: ConfigMap\n",
	}
	for name, text := range more {
		all[name] = text
	}
	return artifact.FromMap(all)
}

// requireFault fails the test unless err is a fault with the reason whose text contains the words and no secret.
func requireFault(t *testing.T, err error, reason string, words ...string) {
	t.Helper()
	if err == nil || fault.Reason(err, "") != reason {
		t.Fatalf("got %v with reason %q, want reason %q", err, fault.Reason(err, ""), reason)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Fatalf("%q does not contain %q", err, w)
		}
	}
	for _, secret := range []string{password, "s3cret"} {
		if strings.Contains(err.Error(), secret) {
			t.Fatalf("the error contains a secret: %v", err)
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
