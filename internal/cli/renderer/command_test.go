package renderer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"

// TestCommandsMakeArtifacts compares the files that commands make.
func TestCommandsMakeArtifacts(t *testing.T) {
	for name, c := range map[string]struct {
		command string
		want    map[string]string
	}{
		"what it prints": {"cat in/cm.yaml", map[string]string{"manifests.yaml": configMap}},
		"what it prints as JSON": {`printf '{"apiVersion":"v1","kind":"Pod"}'`,
			map[string]string{"manifests.yaml": `{"apiVersion":"v1","kind":"Pod"}`}},
		"files before what it prints": {`cp in/cm.yaml "$SLUICE_OUTPUT/b.yaml"; echo noise`,
			map[string]string{"b.yaml": configMap}},
		"the revision and environment": {`printf %s "$SLUICE_REVISION $OWN" >"$SLUICE_OUTPUT/a"`,
			map[string]string{"a": "main@sha1:1 set"}},
		"only the files of the source": {`find . -type f >"$SLUICE_OUTPUT/a"`,
			map[string]string{"a": "./in/cm.yaml\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree, err := run(t, &Command{Text: c.command})
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for file := range c.want {
				b, err := fs.ReadFile(tree, file)
				if err != nil {
					t.Fatal(err)
				}
				got[file] = string(b)
			}
			for file, want := range c.want {
				if got[file] != want {
					t.Errorf("%s has %q, expected %q", file, got[file], want)
				}
			}
		})
	}
}

// TestCommandsFail compares the failures of commands, which are shown in a status.
func TestCommandsFail(t *testing.T) {
	for name, c := range map[string]struct {
		command, want string
		most          int
	}{
		"last lines": {command: "seq 100 >&2; exit 3", want: "the command failed with exit status 3:\n81\n82"},
		"no line": {command: "exit 3",
			want: "the command failed with exit status 3, and wrote nothing to standard error"},
		"endless line": {command: "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1",
			want: "exit status 1, and wrote nothing"},
		"nothing":     {command: "true", want: "the command printed nothing, and wrote no file to $SLUICE_OUTPUT"},
		"not objects": {command: "echo an error that exits with 0", want: "the command did not print manifests"},
		"no kind": {command: "cat in/cm.yaml; echo ---; echo 'apiVersion: v1'",
			want: "the command did not print manifests"},
		"no apiVersion": {command: "echo 'kind: Pod'",
			want: "document 1 that the command printed has no apiVersion or kind"},
		"only comments": {command: "echo '# nothing'", want: "the command printed no object"},
		"flood":         {command: "yes", most: 1 << 20, want: "the command printed more than 1048576 bytes"},
		"a program that is not there": {command: "no-such-program-x",
			want: "the command failed with exit status 127"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := run(t, &Command{Text: c.command, maxPrinted: c.most})
			var failure *Failure
			if !errors.As(err, &failure) || !strings.Contains(failure.Error(), c.want) {
				t.Errorf("error %v, expected %q", err, c.want)
			}
		})
	}
}

// TestACommandThatStaysEnds has a process that does not end. A slow machine may need longer until it writes.
func TestACommandThatStaysEnds(t *testing.T) {
	t.Parallel()
	timeout := time.Second
	testenv.Eventually(t, "the failure", func() error {
		timeout *= 2
		_, err := run(t, &Command{Text: "sleep 1000 & echo waits >&2; wait", Timeout: timeout})
		var failure *Failure
		if want := "the command did not end within " + timeout.String() + ":\nwaits"; !errors.As(err, &failure) ||
			!strings.Contains(failure.Error(), want) {
			return fmt.Errorf("%w, expected %q", err, want)
		}
		return nil
	})
}

// TestFailuresHaveNoSecrets prints secrets in several ways and expects none in the failure.
func TestFailuresHaveNoSecrets(t *testing.T) {
	const token, password, key = "tok-0123456789", "pass-9876543210", "line-of-a-key-1\nline-of-a-key-2"
	for name, command := range map[string]string{
		"as they are":     `echo "$DB_PASSWORD $SIGNING_KEY" >&2; echo "got tok-0123456789" >&2; exit 1`,
		"cut by the end":  `printf '%s\n' "$SIGNING_KEY" >&2; seq 1 19 >&2; exit 1`,
		"cut by length":   `printf '%0295d%s\n' 0 "$DB_PASSWORD" >&2; exit 1`,
		"cut at 4 KiB":    `printf '%s%04090d\nlast\n' "$DB_PASSWORD" 0 >&2; exit 1`,
		"login in a URL":  `echo "https://me:inline-secret-1@example.com/x" >&2; exit 1`,
		"standard output": `echo "data: $DB_PASSWORD"; exit 1`,
		"not manifests":   `echo "{apiVersion: v1, kind: [$DB_PASSWORD"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := run(t, &Command{Text: command, Secrets: func() []string { return []string{token} },
				Environ: []string{"DB_PASSWORD=" + password, "SIGNING_KEY=" + key}})
			if err == nil {
				t.Fatal("no error")
			}
			for _, secret := range append(strings.Split(key, "\n"), token, password, password[:8], "inline-secret-1") {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the failure has %q: %v", secret, err)
				}
			}
		})
	}
}

// run runs a command over a source with one file.
func run(t *testing.T, c *Command) (*artifact.Tree, error) {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = time.Minute
	}
	if c.Secrets == nil {
		c.Secrets = func() []string { return nil }
	}
	c.Log = io.Discard
	c.Environ = append(c.Environ, "OWN=set", "PATH=/usr/bin:/bin")
	return c.Run(t.Context(), artifact.FromMap(map[string]string{"in/cm.yaml": configMap}), "main@sha1:1")
}
