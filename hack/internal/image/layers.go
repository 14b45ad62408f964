package image

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// user is the numeric user and group that the image runs as. The Deployment of `sluice install` has the same.
	user = "65534:65534"
	// binaryPath is the path of the binary in the image.
	binaryPath = "usr/bin/sluice"
	// rootsPath is where Go programs on Linux look for certificates of authorities.
	rootsPath = "etc/ssl/certs/ca-certificates.crt"
)

// entry is a file or directory of a layer. It belongs to root and is older than all builds.
type entry struct {
	name    string // directories end in a slash
	mode    int64
	content []byte
}

// baseLayer returns the layer below the binary: names of users, authorities, and a directory for temporary files.
func baseLayer() (v1.Layer, error) {
	roots, err := authorities()
	if err != nil {
		return nil, err
	}
	return layer([]entry{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, content: []byte("root:x:0:\nsluice:x:65534:\n")},
		{name: "etc/passwd", mode: 0o644,
			content: []byte("root:x:0:0:root:/:/sbin/nologin\nsluice:x:65534:65534:sluice:/:/sbin/nologin\n")},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: rootsPath, mode: 0o644, content: roots},
		{name: "tmp/", mode: 0o1777},
	})
}

// authorities returns the root certificates of Mozilla's trust store in PEM. A root that is trusted for some
// certificates only is left out, because a file of certificates cannot express that.
func authorities() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// binaryLayer returns the layer with the binary in a file.
func binaryLayer(file string) (v1.Layer, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return layer([]entry{
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: binaryPath, mode: 0o755, content: content},
	})
}

func layer(entries []entry) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: e.mode, Size: int64(len(e.content)),
			ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		if e.name[len(e.name)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}
