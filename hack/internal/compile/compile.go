// Package compile builds static binaries that depend on the source and the version of Go only: not on the directory,
// the time or the settings of the machine that builds them.
package compile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// DevVersion is the version of a build that is not a release.
const DevVersion = "dev"

// variables is the package whose variables Version, Commit and Date a build sets.
const variables = "github.com/sluice-gitops/sluice/internal/cli"

// releaseVersion is the syntax of versions of releases: semantic versions with a leading v, without build metadata,
// which tags of images cannot contain.
var releaseVersion = regexp.MustCompile(`^v(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// Source is the source of a build.
type Source struct {
	Dir     string // root of the checkout
	Package string // main package, relative to Dir
	Version string
	Commit  string // with the suffix -dirty if files differ from the commit
	Date    time.Time
}

// Dirty reports whether files differ from the commit.
func (s Source) Dirty() bool { return strings.HasSuffix(s.Commit, "-dirty") }

// Describe returns the source in a git checkout. Its date is that of the commit, so that it does not depend on the
// time of the build.
func Describe(ctx context.Context, dir, version string) (Source, error) {
	if version != DevVersion && !releaseVersion.MatchString(version) {
		return Source{}, fmt.Errorf("%q is not the version of a release: use vMAJOR.MINOR.PATCH, such as v1.2.3, or %s",
			version, DevVersion)
	}
	commit, err := git(ctx, dir, "rev-parse", "HEAD")
	if err != nil {
		return Source{}, err
	}
	seconds, err := git(ctx, dir, "show", "--no-patch", "--format=%ct", "HEAD")
	if err != nil {
		return Source{}, err
	}
	date, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return Source{}, fmt.Errorf("git returned an unreadable date of the commit: %w", err)
	}
	changed, err := git(ctx, dir, "status", "--porcelain")
	if err != nil {
		return Source{}, err
	}
	if changed != "" {
		commit += "-dirty"
	}
	return Source{Dir: dir, Package: "./cmd/sluice", Version: version, Commit: commit,
		Date: time.Unix(date, 0).UTC()}, nil
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := run(ctx, dir, nil, "git", args...)
	return strings.TrimSpace(out), err
}

// Target is a platform.
type Target struct{ OS, Arch string }

// String returns the target as Go writes it: linux/amd64.
func (t Target) String() string { return t.OS + "/" + t.Arch }

// Executable returns the name of a program's file on the platform.
func (t Target) Executable(name string) string {
	if t.OS == "windows" {
		return name + ".exe"
	}
	return name
}

// ParseTarget parses a platform, such as linux/amd64.
func ParseTarget(s string) (Target, error) {
	system, arch, ok := strings.Cut(s, "/")
	if !ok || system == "" || arch == "" || strings.Contains(arch, "/") {
		return Target{}, fmt.Errorf("%q is not a platform: use OS/ARCH, such as linux/amd64", s)
	}
	return Target{OS: system, Arch: arch}, nil
}

// Binary builds the source for a target and writes the binary to a file.
func (s Source) Binary(ctx context.Context, t Target, file string) error {
	out, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	flags := []string{"-s", "-w", "-buildid="}
	for _, v := range [][2]string{{"Version", s.Version}, {"Commit", s.Commit},
		{"Date", s.Date.Format(time.RFC3339)}} {
		flags = append(flags, "-X", variables+"."+v[0]+"="+v[1])
	}
	_, err = run(ctx, s.Dir, environment(t), "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", strings.Join(flags, " "), "-o", out, s.Package)
	return err
}

// environment returns the environment of the compiler: that of this process, without settings that change its output.
func environment(t Target) []string {
	var env []string
	for _, e := range os.Environ() {
		switch name, _, _ := strings.Cut(e, "="); name {
		case "GOFLAGS", "GOEXPERIMENT", "GOFIPS140", "GODEBUG", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED",
			"GOWORK", "GOENV":
		default:
			env = append(env, e)
		}
	}
	return append(env, "GOENV=off", "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", "GOOS="+t.OS, "GOARCH="+t.Arch,
		"GOAMD64=v1", "GOARM64=v8.0")
}

// Toolchain returns the version of Go that builds a directory, such as go1.26.1.
func Toolchain(ctx context.Context, dir string) (string, error) {
	out, err := run(ctx, dir, nil, "go", "env", "GOVERSION")
	return strings.TrimSpace(out), err
}

// run runs a program in a directory and returns what it prints.
func run(ctx context.Context, dir string, env []string, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, env
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = errors.New(strings.TrimSpace(problems.String()))
		}
		return "", fmt.Errorf("%s %s failed: %w", program, args[0], err)
	}
	return out.String(), nil
}
