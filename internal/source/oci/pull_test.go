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

	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

func TestPull(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
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
	none, other := "/no-such-file", "dir\n"
	for name, c := range map[string]struct {
		mediaType types.MediaType
		spec      *string
		want      []string
	}{
		"first layer with default exclusions": {mediaType: "", spec: nil,
			want: []string{"deploy.yaml", "dir/.sourceignore", "dir/b", "not.tmp"}},
		"no exclusions": {mediaType: "", spec: &none,
			want: []string{"deploy.yaml", "dir/.sourceignore", "dir/b", "dir/c.tmp", "not.tmp", "pic.jpg"}},
		"excluded directory": {mediaType: contentType, spec: &other,
			want: []string{"deploy.yaml", "not.tmp", "pic.jpg"}},
		"layer by type": {mediaType: chartType, spec: nil, want: []string{"app/Chart.yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			layer, err := image.Layer(string(c.mediaType))
			if err != nil {
				t.Fatal(err)
			}
			tree, err := layer.Tree(t.Context(), c.spec)
			if err != nil {
				t.Fatal(err)
			}
			got := filesOf(t, tree)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	pullsStoredLayer(t, image, chart)
	t.Run("type without a layer", func(t *testing.T) {
		_, err := image.Layer("application/none")
		requireFault(t, err, "OCIArtifactLayerOperationFailed", "the types of its layers are '"+
			string(contentType)+"', '"+
			string(chartType)+"'")
	})
}

// pullsStoredLayer opens a layer without unpacking it.
func pullsStoredLayer(t *testing.T, image *Image, chart []byte) {
	t.Helper()
	t.Run("layer as it is stored", func(t *testing.T) {
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
}

// filesOf returns the paths of the files of a tree.
func filesOf(t *testing.T, tree fs.FS) []string {
	t.Helper()
	var got []string
	if err := fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			got = append(got, p)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestPullRefusesBadLayers(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
	good := archive(t, map[string]string{"a": "1"})
	for name, c := range map[string]struct {
		layer   []byte
		message string
	}{
		"not an archive":    {layer: []byte("plain text"), message: "must be a .tar.gz"},
		"truncated archive": {layer: good[:len(good)/2], message: "cannot be extracted"},
		"path outside":      {layer: archive(t, map[string]string{"../a": "1"}), message: "leads out"},
		"absolute path":     {layer: archive(t, map[string]string{"/etc/passwd": "1"}), message: "leads out"},
		"symlink to the outside": {layer: archive(t, nil,
			tar.Header{Name: "l", Linkname: "../../etc", Typeflag: tar.TypeSymlink}), message: "leads out"},
		"hard link to the outside": {layer: archive(t, nil,
			tar.Header{Name: "l", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}),
			message: "leads to no file of it. A layer of type 'application/vnd.cncf.flux.content.v1.tar+gzip' " +
				"must be " +
				"a .tar.gz, or set spec.layerSelector.operation to copy"},
		"device": {layer: archive(t, nil,
			tar.Header{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}), message: "only files"},
		"archive bomb":           {layer: bomb(t, 2<<30), message: "unpacks to more than"},
		"name that is not UTF-8": {layer: archive(t, map[string]string{"\xff": "1"}), message: "cannot be extracted"},
	} {
		t.Run(name, func(t *testing.T) {
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
			requireFault(t, err, "OCIArtifactLayerOperationFailed", c.message)
		})
	}
}

// bomb returns a small archive with one large file.
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

// TestPullVerifiesDigests modifies the responses of the registry.
func TestPullVerifiesDigests(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
	digest := push(t, r, "app", "latest", nil, static.NewLayer(archive(t, map[string]string{"a": "1"}), contentType))
	for name, c := range map[string]struct {
		resource string
		change   func([]byte) []byte
		message  string
	}{
		"changed manifest": {resource: "/manifests/", change: func(b []byte) []byte {
			return bytes.Replace(b, []byte("{"),
				[]byte(`{"x":1,`), 1)
		}, message: "does not match"},
		"changed layer": {resource: "/blobs/", change: func(b []byte) []byte { b[len(b)-1]++; return b },
			message: "error verifying sha256 checksum"},
		"truncated layer": {resource: "/blobs/", change: func(b []byte) []byte { return b[:len(b)/2] },
			message: "error verifying"},
		"extended layer": {resource: "/blobs/", change: func(b []byte) []byte { return append(b, 0) },
			message: "larger than its manifest says"},
		"empty layer": {resource: "/blobs/", change: func([]byte) []byte { return nil },
			message: "error verifying"},
	} {
		t.Run(name, func(t *testing.T) {
			between := changing{next: r.Transport(), resource: c.resource, change: c.change}
			repo, err := Open(r.OCI+"/app", Access{Transport: between, Insecure: true})
			if err != nil {
				t.Fatal(err)
			}
			requireFault(t, pullFirst(t.Context(), repo, digest), "OCIArtifactPullFailed", c.message)
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

// changing changes the bodies of responses.
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
