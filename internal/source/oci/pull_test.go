package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestPull(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t)
	annotations := map[string]string{RevisionAnnotation: "main@sha1:0", SourceAnnotation: "https://git.example/app"}
	content := archive(t, map[string]string{
		"deploy.yaml": "a: 1\n", "dir/b": "2", "dir/.sourceignore": "*.tmp\n", "dir/c.tmp": "3", "pic.jpg": "4",
		"not.tmp": "5",
	})
	chart := archive(t, map[string]string{"app/Chart.yaml": "name: app\n"})
	digest := push(t, r, "app", "v1", annotations, static.NewLayer(content, contentType),
		static.NewLayer(chart, chartType))
	repo := open(t, r, "app")
	image, err := repo.Pull(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(annotations, image.Annotations); diff != "" {
		t.Error(diff)
	}
	none, other := "", "dir\n"
	for what, c := range map[string]struct {
		mediaType types.MediaType
		spec      *string
		want      []string
	}{
		"the first layer without what is excluded by default": {"", nil,
			[]string{"deploy.yaml", "dir/.sourceignore", "dir/b", "not.tmp"}},
		"rules in the place of the default": {"", &none,
			[]string{"deploy.yaml", "dir/.sourceignore", "dir/b", "not.tmp", "pic.jpg"}},
		"rules that leave out a directory": {contentType, &other,
			[]string{"deploy.yaml", "not.tmp", "pic.jpg"}},
		"the layer of a type": {chartType, nil, []string{"app/Chart.yaml"}},
	} {
		t.Run(what, func(t *testing.T) {
			layer, err := image.Layer(string(c.mediaType))
			if err != nil {
				t.Fatal(err)
			}
			tree, err := layer.Tree(t.Context(), c.spec)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			if err := fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
				if !d.IsDir() {
					got = append(got, p)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("a layer as it is", func(t *testing.T) {
		layer, err := image.Layer(string(chartType))
		if err != nil {
			t.Fatal(err)
		}
		body, err := layer.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, chart) {
			t.Errorf("%v: %d bytes, want %d", err, len(got), len(chart))
		}
	})
	t.Run("a type that no layer has", func(t *testing.T) {
		_, err := image.Layer("application/none")
		wants(t, err, "OCIArtifactLayerOperationFailed", "its layers are of type '"+string(contentType)+"', '"+
			string(chartType)+"'")
	})
}

func TestPullRefusesBadLayers(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t)
	good := archive(t, map[string]string{"a": "1"})
	for what, c := range map[string]struct {
		layer []byte
		says  string
	}{
		"no archive":          {[]byte("plain text"), "must be a .tar.gz"},
		"a truncated archive": {good[:len(good)/2], "cannot be extracted"},
		"a path out":          {archive(t, map[string]string{"../a": "1"}), "leads out"},
		"an absolute path":    {archive(t, map[string]string{"/etc/passwd": "1"}), "leads out"},
		"a symlink out": {archive(t, nil,
			tar.Header{Name: "l", Linkname: "../../etc", Typeflag: tar.TypeSymlink}), "leads out"},
		"a hard link out": {archive(t, nil,
			tar.Header{Name: "l", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}), "leads to no file"},
		"a device": {archive(t, nil,
			tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}), "only files"},
		"a bomb": {bomb(t, 2<<30), "unpacks to more than"},
		"names apart by case": {archive(t, map[string]string{"Deploy.yaml": "1", "deploy.yaml": "2"}),
			"cannot be extracted"},
		"a name that is no text": {archive(t, map[string]string{"\xff": "1"}), "cannot be extracted"},
	} {
		t.Run(what, func(t *testing.T) {
			digest := push(t, r, "bad", "latest", nil, static.NewLayer(c.layer, contentType))
			image, err := open(t, r, "bad").Pull(t.Context(), digest)
			if err != nil {
				t.Fatal(err)
			}
			layer, err := image.Layer("")
			if err != nil {
				t.Fatal(err)
			}
			_, err = layer.Tree(t.Context(), nil)
			wants(t, err, "OCIArtifactLayerOperationFailed", c.says)
		})
	}
}

func bomb(t testing.TB, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	err = w.WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: size, Typeflag: tar.TypeReg})
	zeros := make([]byte, 1<<20)
	for left := size; err == nil && left > 0; left -= int64(len(zeros)) {
		_, err = w.Write(zeros)
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestPullRefusesWhatIsNotAsItsDigestSays(t *testing.T) {
	t.Parallel()
	r := testenv.NewRegistry(t)
	digest := push(t, r, "app", "latest", nil, static.NewLayer(archive(t, map[string]string{"a": "1"}), contentType))
	for what, c := range map[string]struct {
		resource string
		change   func([]byte) []byte
		says     string
	}{
		"another manifest": {"/manifests/", func(b []byte) []byte {
			return bytes.Replace(b, []byte("{"),
				[]byte(`{"x":1,`), 1)
		}, "does not match"},
		"another layer": {"/blobs/", func(b []byte) []byte { b[len(b)-1]++; return b },
			"error verifying sha256 checksum"},
		"less of a layer": {"/blobs/", func(b []byte) []byte { return b[:len(b)/2] }, "error verifying"},
		"more of a layer": {"/blobs/", func(b []byte) []byte { return append(b, 0) }, "larger than its manifest says"},
		"no layer":        {"/blobs/", func([]byte) []byte { return nil }, "error verifying"},
	} {
		t.Run(what, func(t *testing.T) {
			between := changing{r.Transport(), c.resource, c.change}
			repo, err := Open(r.OCI+"/app", Access{Transport: between, Insecure: true})
			if err != nil {
				t.Fatal(err)
			}
			wants(t, pullFirst(t.Context(), repo, digest), "OCIArtifactPullFailed", c.says)
		})
	}
}

func pullFirst(ctx context.Context, repo *Repository, digest v1.Hash) error {
	image, err := repo.Pull(ctx, digest)
	if err != nil {
		return err
	}
	layer, err := image.Layer("")
	if err != nil {
		return err
	}
	_, err = layer.Tree(ctx, nil)
	return err
}

type changing struct {
	next     http.RoundTripper
	resource string
	change   func([]byte) []byte
}

func (c changing) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err != nil || !strings.Contains(r.URL.Path, c.resource) || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	body = c.change(body)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), -1
	return resp, err
}
