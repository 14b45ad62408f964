package cli

import (
	"archive/tar"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// mirrored is a repository in ./fleet that refers to two images and an artifact of a registry at HOST.
var mirrored = map[string]string{
	"fleet/pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n" +
		"spec: {containers: [{name: web, image: 'HOST/org/web:v1'}]}\n",
	"fleet/source.yaml": "apiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nmetadata: {name: app}\n" +
		"spec: {url: 'oci://HOST/org/app', interval: 1m}\n",
}

// inMirrored starts a registry with the images, writes the repository into a new working directory, and returns the
// registry.
func inMirrored(t *testing.T) *ociregistry.Server {
	t.Helper()
	registry := ociregistry.New(t)
	t.Chdir(t.TempDir())
	for file, content := range mirrored {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(content, "HOST", registry.Host)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for repository, tag := range map[string]string{"org/web": "v1", "org/app": "latest", "sluice": "v1.2.3"} {
		layer, err := random.Layer(100, "application/vnd.test")
		if err != nil {
			t.Fatal(err)
		}
		registry.Push(repository, tag, nil, layer)
	}
	return registry
}

// TestAirGapCommands runs the commands of docs/air-gap.md, with the host of a real registry.
func TestAirGapCommands(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "air-gap.md"))
	if err != nil {
		t.Fatal(err)
	}
	registry := inMirrored(t)
	replacer := strings.NewReplacer("ghcr.io/sluice-gitops/sluice:", registry.Host+"/sluice:",
		"registry.internal", registry.Host)
	commands := regexp.MustCompile(`(?m)^sluice (mirror .*)$`).FindAllSubmatch(page, -1)
	if len(commands) != 6 {
		t.Fatalf("the page has %d commands", len(commands))
	}
	for _, command := range commands {
		line, file, redirected := strings.Cut(replacer.Replace(string(command[1])), " > ")
		r := run(t, append(strings.Fields(line), "--plain-http", registry.Host)...).wants(t, exitOK)
		if strings.Contains(line, "--list") && !strings.Contains(r.out, registry.Host+"/org/web") {
			t.Errorf("%s: printed %s", line, r.out)
		}
		if !redirected {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(r.out), 0o600); err != nil {
			t.Fatal(err)
		}
		host := strings.ReplaceAll(registry.Host, ":", "-")
		for _, want := range []string{registry.Host + "/mirror/" + host + "/org/app",
			"newName: " + registry.Host + "/mirror/" + host + "/org/web"} {
			if !strings.Contains(r.out, want) {
				t.Errorf("the component lacks %q:\n%s", want, r.out)
			}
		}
	}
	for _, image := range []string{"org/web:v1", "org/app:latest", "sluice:v1.2.3"} {
		checkMirrored(t, registry, image)
	}
}

// checkMirrored checks that an image has the same digest in the mirror.
func checkMirrored(t *testing.T, registry *ociregistry.Server, image string) {
	t.Helper()
	var digests []string
	for _, prefix := range []string{"/", "/mirror/" + strings.ReplaceAll(registry.Host, ":", "-") + "/"} {
		ref, err := name.ParseReference(registry.Host+prefix+image, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		d, err := remote.Head(ref, registry.Access()...)
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, d.Digest.String())
	}
	if digests[0] != digests[1] {
		t.Errorf("%s: the digests are %v", image, digests)
	}
}

// TestMirrorReportsEachFailure copies two images of which one is missing.
func TestMirrorReportsEachFailure(t *testing.T) {
	registry := inMirrored(t)
	args := []string{"mirror", "--image", registry.Host + "/org/absent:v1," + registry.Host + "/org/web:v1", "--to",
		"some.tar", "--plain-http", registry.Host}
	run(t, args...).wants(t, exitFailed, "cannot copy "+registry.Host+"/org/absent:v1",
		"copied "+registry.Host+"/org/web:v1@", "1 item copied, 1 failed")
	if _, err := os.Stat("some.tar"); !os.IsNotExist(err) {
		t.Errorf("an incomplete archive was written: %v", err)
	}
	layer, err := random.Layer(100, "application/vnd.test")
	if err != nil {
		t.Fatal(err)
	}
	registry.Push("org/absent", "v1", nil, layer)
	run(t, args...).wants(t, exitOK, registry.Host+"/org/web:v1@", "is up to date", "2 items in some.tar")
}

func TestMirrorRefusesHostileArchive(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hostile.tar")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "blobs", Linkname: "/"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	run(t, "mirror", "--from", file, "--to", "oci://127.0.0.1:1").
		wants(t, exitFailed, "is not an archive of sluice mirror", "not part of an OCI layout")
}

func TestMirrorUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"nothing to copy":               {},
		"expected one directory":        {"a", "b"},
		"--to is missing":               {"."},
		"--from excludes":               {"--from", "a.tar", "."},
		"exclude each other":            {".", "--list", "--rewrite"},
		"--output needs --list":         {".", "--to", "a.tar", "-o", "json"},
		"--rewrite needs":               {".", "--rewrite", "--to", "a.tar"},
		"--from needs":                  {"--from", "a.tar", "--to", "b.tar"},
		"must begin with oci://":        {".", "--to", "https://registry.internal"},
		"--max-size must be positive":   {".", "--to", "a.tar", "--max-size", "0"},
		"--image: \"A B\" is not an im": {"--image", "A B", "--to", "a.tar"},
	} {
		run(t, append([]string{"mirror"}, args...)...).wants(t, exitUsage, want)
	}
}
