// Command progress runs a go command that compiles, and prints how far it is: progress LABEL go build ARGUMENTS...
// The subcommand must accept the flags -n and -v. With a warm cache it prints nothing of its own.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// interval is the minimum time between two lines.
const interval = 5 * time.Second

// maxLine bounds a line of the go command.
const maxLine = 16 << 20

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: progress LABEL go SUBCOMMAND ARGUMENTS...")
		os.Exit(2)
	}
	code, err := run(context.Background(), os.Args[1], os.Args[2:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// run runs the command, and returns its exit code.
func run(ctx context.Context, label string, command []string, stdout, stderr io.Writer) (code int, err error) {
	r := &report{label: label, out: stderr, now: time.Now}
	// If this fails, so does the command itself, which reports why.
	_, _ = execute(ctx, withFlag(command, "-n"), io.Discard, r.plan)
	r.begin()
	if len(r.pending) > 0 {
		command = withFlag(command, "-v")
	}
	code, err = execute(ctx, command, stdout, r.compiled)
	if code == 0 && err == nil {
		r.end()
	}
	return code, err
}

// withFlag adds a flag to a go command, after its subcommand.
func withFlag(command []string, flag string) []string {
	return slices.Insert(slices.Clone(command), 2, flag)
}

// execute runs a command, and calls the function for each line that it writes to its standard error.
func execute(ctx context.Context, command []string, stdout io.Writer, line func(string)) (code int, err error) {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdout = stdout
	stderr, err := c.StderrPipe()
	if err != nil {
		return 1, err
	}
	if err := c.Start(); err != nil {
		return 1, err
	}
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line(lines.Text())
	}
	_, _ = io.Copy(io.Discard, stderr) // after a line that is too long, so that the command can end
	err = c.Wait()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, lines.Err()
}

// report counts the packages that are compiled.
type report struct {
	label string
	out   io.Writer
	now   func() time.Time

	pending map[string]bool // packages to compile
	total   int
	started time.Time
	printed time.Time // when the last line was printed
	header  string    // the last line of a plan, if it may be the header of a package
}

// plan reads a line of a plan. The commands of each package follow "#", "# PACKAGE" and "#".
func (r *report) plan(line string) {
	if strings.HasPrefix(line, "go: downloading ") {
		_, _ = fmt.Fprintln(r.out, line)
	}
	if name, ok := strings.CutPrefix(r.header, "# "); ok && line == "#" {
		if r.pending == nil {
			r.pending = map[string]bool{}
		}
		r.pending[pathOf(name)] = true
	}
	if line == "#" || r.header == "#" && strings.HasPrefix(line, "# ") {
		r.header = line
	} else {
		r.header = ""
	}
}

// pathOf returns the import path of a package, without the test that it is compiled for: PATH [TEST].
func pathOf(name string) string {
	path, _, _ := strings.Cut(name, " [")
	return path
}

// begin prints the number of packages to compile.
func (r *report) begin() {
	r.total, r.started = len(r.pending), r.now()
	r.printed = r.started
	if r.total > 0 {
		r.print("%d packages to compile", r.total)
	}
}

// compiled reads a line of the command: the path of a package that is compiled now, or an error.
func (r *report) compiled(line string) {
	path := pathOf(line)
	if _, known := r.pending[path]; !known {
		_, _ = fmt.Fprintln(r.out, line)
		return
	}
	r.pending[path] = false
	if now := r.now(); now.Sub(r.printed) >= interval {
		r.printed = now
		r.print("%d of %d packages compiled%s, now %s", r.count(), r.total, r.left(), path)
	}
}

// left estimates the time for the packages that are left from that of the ones before. Packages differ much, so the
// first estimates are left out.
func (r *report) left() string {
	n, elapsed := r.count(), r.now().Sub(r.started)
	if n == r.total || elapsed < 3*interval {
		return ""
	}
	rest := time.Duration(float64(elapsed) / float64(n) * float64(r.total-n))
	return fmt.Sprintf(", about %s left", max(rest.Round(10*time.Second), 10*time.Second))
}

// count returns how many packages were compiled.
func (r *report) count() int {
	n := 0
	for _, pending := range r.pending {
		if !pending {
			n++
		}
	}
	return n
}

// end prints how long it took.
func (r *report) end() {
	if r.total > 0 {
		r.print("compiled in %s", r.now().Sub(r.started).Round(time.Second))
	}
}

func (r *report) print(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, "%s: %s\n", r.label, fmt.Sprintf(format, args...))
}
