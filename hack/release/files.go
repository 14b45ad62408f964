package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"text/template"
	"time"

	"github.com/sluice-gitops/sluice/hack/internal/image"
)

// checksumsFile lists the digests of all other files, in the format of sha256sum.
const checksumsFile = "checksums.txt"

// file is a file of an archive.
type file struct {
	name    string
	mode    os.FileMode
	content []byte
}

// archive writes the archive of a binary and returns its name: a .zip for Windows, else a .tar.gz.
func (r *release) archive(b image.Binary, license []byte) (string, error) {
	binary, err := os.ReadFile(b.File)
	if err != nil {
		return "", err
	}
	files := []file{{name: "LICENSE", mode: 0o644, content: license},
		{name: b.Target.Executable("sluice"), mode: 0o755, content: binary}}
	write, extension := writeTar, ".tar.gz"
	if b.Target.OS == "windows" {
		write, extension = writeZip, ".zip"
	}
	name := fmt.Sprintf("sluice_%s_%s_%s%s", strings.TrimPrefix(r.version, "v"), b.Target.OS, b.Target.Arch, extension)
	var out bytes.Buffer
	if err := write(&out, files, r.checkout.Date); err != nil {
		return "", err
	}
	return name, r.write(name, out.Bytes())
}

func (r *release) write(name string, content []byte) error {
	return os.WriteFile(filepath.Join(r.output, name), content, 0o644)
}

func writeTar(out io.Writer, files []file, date time.Time) error {
	zipped := gzip.NewWriter(out)
	w := tar.NewWriter(zipped)
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode),
			Size: int64(len(f.content)), ModTime: date, Format: tar.FormatUSTAR})
		if err == nil {
			_, err = w.Write(f.content)
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), zipped.Close())
}

func writeZip(out io.Writer, files []file, date time.Time) error {
	w := zip.NewWriter(out)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date}
		header.SetMode(f.mode)
		entry, err := w.CreateHeader(header)
		if err == nil {
			_, err = entry.Write(f.content)
		}
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// manifests writes the manifests that `sluice install` applies, pinned to the digest of the image, and the formula.
func (r *release) manifests(ctx context.Context, binaries []image.Binary, reference string) error {
	program := ""
	for _, b := range binaries {
		if b.Target.OS == runtime.GOOS && b.Target.Arch == runtime.GOARCH {
			program = b.File
		}
	}
	if program == "" {
		return fmt.Errorf("--platforms must contain %s/%s, whose binary prints the manifests", runtime.GOOS,
			runtime.GOARCH)
	}
	for name, args := range map[string][]string{
		"install.yaml": {"install", "--export", "--image", reference},
		"crds.yaml":    {"install", "--export", "--crds-only"},
	} {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("sluice %s failed: %w", strings.Join(args, " "), err)
		}
		if err := r.write(name, out); err != nil {
			return err
		}
	}
	return r.formula()
}

// formulaText is the Homebrew formula.
var formulaText = template.Must(template.New("").Parse(`class Sluice < Formula
  desc "GitOps for Kubernetes: keep clusters in the state that git declares"
  homepage "https://github.com/sluice-gitops/sluice"
  version "{{.Version}}"
  license "Apache-2.0"
{{range $system, $archives := .Systems}}
  on_{{$system}} do
{{- range $archives}}
    on_{{.Processor}} do
      url "{{.URL}}"
      sha256 "{{.Digest}}"
    end
{{- end}}
  end
{{end}}
  def install
    bin.install "sluice"
    generate_completions_from_executable(bin/"sluice", "completion")
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/sluice version --client")
  end
end
`))

// homebrew has the names that Homebrew gives to systems and processors.
var homebrew = map[string]string{"darwin": "macos", "linux": "linux", "amd64": "intel", "arm64": "arm"}

type formulaArchive struct{ Processor, URL, Digest string }

// formula writes the Homebrew formula.
func (r *release) formula() error {
	systems := map[string][]formulaArchive{}
	for _, platform := range strings.Split(r.platforms, ",") {
		system, arch, _ := strings.Cut(platform, "/")
		if homebrew[system] == "" || homebrew[arch] == "" {
			continue
		}
		name := r.archives[platform]
		digest, err := digest(filepath.Join(r.output, name))
		if err != nil {
			return err
		}
		systems[homebrew[system]] = append(systems[homebrew[system]], formulaArchive{Processor: homebrew[arch],
			URL: r.download + "/" + r.version + "/" + name, Digest: digest})
	}
	var out bytes.Buffer
	err := formulaText.Execute(&out, map[string]any{"Version": strings.TrimPrefix(r.version, "v"), "Systems": systems})
	if err != nil {
		return err
	}
	return r.write("sluice.rb", out.Bytes())
}

func digest(name string) (string, error) {
	content, err := os.ReadFile(name)
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), err
}

// checksums writes the digests of all files, and signs them.
func (r *release) checksums(ctx context.Context) error {
	entries, err := os.ReadDir(r.output) // sorted by name
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, e := range entries {
		sum, err := digest(filepath.Join(r.output, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s  %s\n", sum, e.Name())
	}
	if err := r.write(checksumsFile, list.Bytes()); err != nil || r.signer == nil {
		return err
	}
	bundle, err := r.signer.Blob(ctx, list.Bytes())
	if err != nil {
		return err
	}
	public, err := r.signer.PublicKey()
	if err != nil {
		return err
	}
	if public != nil {
		if err := r.write("cosign.pub", public); err != nil {
			return err
		}
	}
	return r.write(checksumsFile+".sigstore.json", bundle)
}
