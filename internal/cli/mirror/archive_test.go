package mirror

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// member is a file of a hostile archive.
type member struct {
	name, content string
	kind          byte
	link          string
}

func archiveOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: m.name, Size: int64(len(m.content)), Mode: 0o644}
		if m.kind != 0 {
			h.Typeflag, h.Linkname, h.Size = m.kind, m.link, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// indexOf returns the index.json with one manifest.
func indexOf(t testing.TB, name string, d ocispec.Descriptor) member {
	t.Helper()
	d.Annotations = map[string]string{ocispec.AnnotationRefName: name}
	text, err := json.Marshal(ocispec.Index{Manifests: []ocispec.Descriptor{d}})
	if err != nil {
		t.Fatal(err)
	}
	return member{name: "index.json", content: string(text)}
}

// openBytes opens an archive with the content.
func openBytes(t testing.TB, content []byte) (*Reader, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(file)
	if err == nil {
		t.Cleanup(func() { _ = r.Close() })
	}
	return r, err
}

const manifestText = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",` +
	`"config":{"mediaType":"application/vnd.oci.empty.v1+json","size":2,` +
	`"digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},"layers":[]}`

func descriptorOf(text string) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.FromString(text),
		Size: int64(len(text))}
}

func TestHostileArchivesAreRefused(t *testing.T) {
	good := descriptorOf(manifestText)
	huge := good
	huge.Size = 1 << 50
	negative := good
	negative.Size = -1
	invalid := ocispec.Descriptor{Digest: "sha256:../../x"}
	empty := member{name: "index.json", content: "{}"}
	blob := blobName(good.Digest)
	for want, members := range map[string][]member{
		"not part of an OCI layout":          {{name: "../../etc/passwd", content: "x"}},
		"\"/etc/passwd\", which is not part": {{name: "/etc/passwd", content: "x"}},
		"\"index.json\", which is not part":  {{name: "index.json", kind: tar.TypeSymlink, link: "/etc/passwd"}},
		"which is not part of an OCI":        {{name: blob, kind: tar.TypeLink, link: "index.json"}},
		"twice":                              {empty, empty},
		"no index.json":                      {{name: blob, content: manifestText}},
		"is not readable":                    {{name: "index.json", content: "{"}},
		"which is not a reference":           {indexOf(t, "../../x", good)},
		"the name \"\", which is not":        {indexOf(t, "", good)},
		"the name \"host/repo\", which":      {indexOf(t, "host/repo", good)},
		"has another digest":                 {indexOf(t, "host/repo@"+digest1, good)},
		"or the size of":                     {indexOf(t, "host/repo:v1", huge)},
		"the size of \"host/repo:v2\"":       {indexOf(t, "host/repo:v2", negative)},
		"the digest or":                      {indexOf(t, "host/repo:v3", invalid)},
	} {
		if _, err := openBytes(t, archiveOf(t, members...)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	if _, err := openBytes(t, []byte(strings.Repeat("not a tar file", 100))); err == nil {
		t.Error("a file that is not an archive was accepted")
	}
}

// TestChangedContentIsNotCopied restores archives whose content does not match its digest.
func TestChangedContentIsNotCopied(t *testing.T) {
	s := newSetup(t)
	d := descriptorOf(manifestText)
	config := blobName("sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a")
	wrong := strings.ReplaceAll(manifestText, "[]", "()")
	for want, members := range map[string][]member{
		"does not have the digest": {{name: blobName(d.Digest), content: wrong}},
		"digest and size":          {{name: blobName(d.Digest), content: manifestText + " "}},
		"in the archive":           {},
		"not found":                {{name: blobName(d.Digest), content: manifestText}},
		"that its manifest states": {{name: blobName(d.Digest), content: manifestText}, {name: config, content: "[]"}},
	} {
		r, err := openBytes(t, archiveOf(t, append(members, indexOf(t, "host.example.com/repo:v1", d))...))
		if err != nil {
			t.Fatal(err)
		}
		c := s.copier(t, s.mirror("/hostile"))
		if _, err := c.Restore(t.Context(), r, r.Names[0]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
		repo, err := s.registries.repository(s.Host + "/hostile/host.example.com/repo")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Resolve(t.Context(), "v1"); err == nil {
			t.Fatalf("%s: the tag was written", want)
		}
	}
	r, err := openBytes(t, archiveOf(t, indexOf(t, "host.example.com/repo:v1", d),
		member{name: blobName(d.Digest), content: manifestText}, member{name: config, content: "{}"}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.copier(t, s.mirror("/hostile")).Restore(t.Context(), r, r.Names[0]); err != nil {
		t.Errorf("the unchanged archive: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	d := descriptorOf(manifestText)
	f.Add(archiveOf(f, indexOf(f, "host/repo:v1", d), member{name: blobName(d.Digest), content: manifestText}))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, content []byte) {
		r, err := openBytes(t, content)
		if err != nil {
			return
		}
		for _, n := range r.Names {
			if _, err := Target("registry.internal", n.Repository); err != nil {
				t.Errorf("%+v has no target: %v", n, err)
			}
			if body, err := r.Fetch(t.Context(), n.root); err == nil {
				_ = body.Close()
			}
		}
	})
}
