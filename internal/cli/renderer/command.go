// Package renderer runs a command of the user over each revision of a source, and publishes what the command makes as
// the artifact of an ExternalArtifact. It runs where the user runs it, and never in the controllers.
package renderer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/source/ignore"
	"github.com/sluice-gitops/sluice/internal/source/oci"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

const (
	maxPrinted = 64 << 20 // bytes of standard output
	maxTail    = 4 << 10  // bytes of standard error that are kept
	maxLines   = 20       // of standard error in a failure
	maxLine    = 300      // bytes of each
	stopDelay  = 5 * time.Second
)

// printedFile is the file of the artifact with what the command prints.
const printedFile = "manifests.yaml"

// Variables that the command gets in addition to the environment.
const (
	RevisionVariable = "SLUICE_REVISION" // the revision of the source
	OutputVariable   = "SLUICE_OUTPUT"   // an empty directory for files of the artifact
)

// Command is a command that makes an artifact from the files of a source.
type Command struct {
	Text    string // for /bin/sh
	Environ []string
	Timeout time.Duration
	Secrets func() []string // are masked in failures, in addition to secrets of the environment
	Log     io.Writer       // receives what the command writes to standard error

	maxPrinted int // in place of the constant, for tests
}

// Failure is why a command made no artifact. It has no secret of the environment, and is for the status of the
// ExternalArtifact.
type Failure struct{ text string }

func (f *Failure) Error() string { return f.text }

// Run runs the command in a directory that has the files of the source and nothing else, and returns what it made: the
// files in $SLUICE_OUTPUT, else what it printed. The error is a [Failure] if the command failed.
func (c *Command) Run(ctx context.Context, source *artifact.Tree, revision string) (*artifact.Tree, error) {
	dir, err := os.MkdirTemp("", "sluice-render-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // a directory of temporary files
	files, output := filepath.Join(dir, "source"), filepath.Join(dir, "output")
	if err := os.Mkdir(output, 0o700); err != nil {
		return nil, err
	}
	if err := oci.WriteLocal(files, source); err != nil {
		return nil, err
	}
	printed, err := c.start(ctx, files, slices.Concat(c.Environ,
		[]string{RevisionVariable + "=" + revision, OutputVariable + "=" + output}))
	if err != nil {
		return nil, err
	}
	written, err := oci.ReadLocal(output, ignore.Rules{}, false)
	if err != nil {
		return nil, c.failure("cannot read $%s: %v", OutputVariable, err)
	}
	if len(written.Root().Entries) > 0 {
		return written, nil
	}
	return c.manifests(printed)
}

// start runs the command and returns what it printed.
func (c *Command) start(ctx context.Context, dir string, environ []string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	printed, messages := &bounded{most: cmp.Or(c.maxPrinted, maxPrinted), stop: cancel}, &tail{}
	process := exec.CommandContext(limited, "/bin/sh", "-c", c.Text)
	process.Dir, process.Env = dir, environ
	process.Stdout, process.Stderr = printed, io.MultiWriter(messages, c.Log)
	process.WaitDelay = stopDelay
	endAll(process)
	err := process.Run()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case printed.isExceeded:
		return nil, c.failure("the command printed more than %d bytes", printed.most)
	case limited.Err() != nil:
		return nil, c.failure("the command did not end within %s%s", c.Timeout, messages.after(c.mask))
	case process.ProcessState == nil:
		return nil, c.failure("the command cannot be started: %v", err)
	case err != nil:
		return nil, c.failure("the command failed with %s%s", process.ProcessState, messages.after(c.mask))
	}
	return printed.text.Bytes(), nil
}

// manifests returns a tree with what the command printed, if these are objects of Kubernetes: what a program prints in
// place of them would delete all that was applied.
func (c *Command) manifests(printed []byte) (*artifact.Tree, error) {
	if len(bytes.TrimSpace(printed)) == 0 {
		return nil, c.failure("the command printed nothing, and wrote no file to $%s", OutputVariable)
	}
	objects, err := manifest.Decode(printed)
	if err != nil {
		return nil, c.failure("the command did not print manifests") // the error may have parts of Secrets
	}
	for i, o := range objects {
		if o.GetAPIVersion() == "" || o.GetKind() == "" {
			return nil, c.failure("document %d that the command printed has no apiVersion or kind", i+1)
		}
	}
	if len(objects) == 0 {
		return nil, c.failure("the command printed no object")
	}
	return artifact.NewMemory(map[string]artifact.File{printedFile: {Mode: 0o644, Data: printed}})
}

// secretName is the name of a variable whose value is a secret.
var secretName = regexp.MustCompile(`(?i)token|secret|passw|credential|key`)

// login is a login in a URL.
var login = regexp.MustCompile(`://[^/\s@]+@`)

func (c *Command) failure(format string, args ...any) *Failure {
	return &Failure{c.mask(fmt.Sprintf(format, args...))}
}

// mask replaces secrets in a text. Each line of a secret is one, as a text may begin in the middle of it.
func (c *Command) mask(text string) string {
	secrets := c.Secrets()
	for _, variable := range c.Environ {
		if name, value, _ := strings.Cut(variable, "="); secretName.MatchString(name) {
			secrets = append(secrets, value)
		}
	}
	for _, secret := range slices.Clone(secrets) {
		secrets = append(secrets, strings.Split(secret, "\n")...)
	}
	return login.ReplaceAllString(redact.Text(text, secrets...), "://"+redact.Masked+"@")
}

// bounded keeps what is written to it, up to a limit.
type bounded struct {
	text       bytes.Buffer
	most       int
	isExceeded bool
	stop       func() // called when more is written
}

// Write implements [io.Writer].
func (b *bounded) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > b.most {
		b.isExceeded = true
		b.stop()
		return 0, errors.New("too much output")
	}
	return b.text.Write(p)
}

// tail keeps the end of what is written to it.
type tail struct {
	mu    sync.Mutex
	text  []byte
	isCut bool
}

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.isCut = t.isCut || len(t.text) > maxTail
	t.text = t.text[max(0, len(t.text)-maxTail):]
	return len(p), nil
}

// after returns the last lines, for the end of a message. They are masked before they are shortened, as a part of a
// secret is not found.
func (t *tail) after(mask func(string) string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(t.text)
	if t.isCut {
		_, text, _ = strings.Cut(text, "\n") // the first line is incomplete
	}
	lines := strings.Split(strings.TrimSpace(mask(strings.ToValidUTF8(text, "?"))), "\n")
	lines = lines[max(0, len(lines)-maxLines):]
	for i, line := range lines {
		lines[i] = excerpt.Line(line, maxLine)
	}
	if text := strings.Join(lines, "\n"); text != "" {
		return ":\n" + text
	}
	return ", and wrote nothing to standard error"
}
