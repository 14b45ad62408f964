package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestWorkflowsCallMake checks that each command of a workflow is a target of the Makefile, which runs elsewhere, too.
func TestWorkflowsCallMake(t *testing.T) {
	root := checkout(t)
	files, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("workflows: %v, %v", files, err)
	}
	makefile := read(t, root, "Makefile")
	for _, file := range files {
		var workflow struct {
			Jobs map[string]struct{ Steps []struct{ Run string } }
		}
		if err := yaml.Unmarshal([]byte(read(t, "", file)), &workflow); err != nil {
			t.Fatal(err)
		}
		for _, job := range workflow.Jobs {
			for _, step := range job.Steps {
				target := regexp.MustCompile(`^make ([a-z-]+)( [A-Z]+="[^"\n]*")*$`).FindStringSubmatch(step.Run)
				if step.Run != "" && (target == nil || !strings.Contains(makefile, "\n"+target[1]+":")) {
					t.Errorf("%s runs %q: not a target of the Makefile", filepath.Base(file), step.Run)
				}
			}
		}
	}
}

// TestPublish runs the targets of the release workflow that need docker and gh with programs that record their calls.
func TestPublish(t *testing.T) {
	dir, root := t.TempDir(), checkout(t)
	for _, program := range []string{"docker", "gh"} {
		script := "#!/bin/sh\n{ echo " + program + " \"$@\"; cat; echo; } >> " + dir + "/calls\n"
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	make := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "make", append([]string{"-s", "-C", root}, args...)...)
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "REGISTRY_USER=me", "REGISTRY_TOKEN=secret")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, args := range [][]string{{"registry-login", "PUSH=ghcr.io/org/sluice"}, {"publish", "VERSION=v0.1.0"},
		{"publish", "VERSION=v0.1.0-rc.1"}} {
		if out, err := make(args...); err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
	}
	calls := read(t, dir, "calls")
	for _, want := range []string{"docker login ghcr.io --username me --password-stdin\nsecret\n",
		"gh release create v0.1.0 --verify-tag --notes-file - bin/release/", "The first release.",
		"gh release create v0.1.0-rc.1 --verify-tag --notes-file - --prerelease bin/release/"} {
		if !strings.Contains(calls, want) {
			t.Errorf("no call has %q:\n%s", want, calls)
		}
	}
	if strings.Contains(calls, "## ") && !strings.Contains(calls, "### Users") {
		t.Errorf("the notes have other versions:\n%s", calls)
	}
	if out, err := make("publish", "VERSION=v9.9.9"); err == nil || !strings.Contains(out, "no section '## 9.9.9'") {
		t.Errorf("a version without notes: %v\n%s", err, out)
	}
}

// TestReadmeNamesFilesOfTheRelease checks that the release has what the lines for installation name.
func TestReadmeNamesFilesOfTheRelease(t *testing.T) {
	readme, files := read(t, checkout(t), "README.md"), read(t, checkout(t), "docs/release.md")
	for _, name := range []string{"checksums.txt", "install.yaml"} {
		if strings.Contains(readme, name) && !strings.Contains(files, name) {
			t.Errorf("the README names %s: not a file of a release", name)
		}
	}
	if n := strings.Count(readme, "\n"); n >= 120 {
		t.Errorf("the README has %d lines", n)
	}
	if n := strings.Count(read(t, checkout(t), "CHANGELOG.md"), "\n"); n >= 150 {
		t.Errorf("the changelog has %d lines", n)
	}
}

// TestLineForLinux runs the README's line for Linux on files of this test.
func TestLineForLinux(t *testing.T) {
	line := regexp.MustCompile("(?m)^\\| Linux \\| `(.*)` \\|$").FindStringSubmatch(read(t, checkout(t), "README.md"))
	if line == nil {
		t.Fatal("the README has no line for Linux")
	}
	files, here := t.TempDir(), t.TempDir()
	script := "cd " + files + " && echo binary > sluice && tar czf sluice_0.1.0_linux_amd64.tar.gz sluice && " +
		"sha256sum *.tar.gz > checksums.txt && cd " + here + " && " + strings.ReplaceAll(line[1],
		"https://github.com/sluice-gitops/sluice/releases/download/v0.1.0", "file://"+files)
	if out, err := exec.CommandContext(t.Context(), "bash", "-euc", script).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := read(t, here, "sluice"); got != "binary\n" {
		t.Errorf("it installs %q", got)
	}
}

func checkout(t *testing.T) string {
	t.Helper()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}
