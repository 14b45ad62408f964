// Package pages runs the guides of docs as a reader does: from an empty directory, with only the binaries on the path
// and a control plane of their own, with exactly the commands of the page, in their order.
package pages

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// playground is the page whose first two blocks a guide starts from, and whose last one ends it. A guide says so by a
// link to it.
const playground = "playground.md"

// guides are the pages that run from the playground.
var guides = []string{"gates-and-freezes.md", "helmrelease-guide.md", "image-updates.md", "oci-artifacts.md",
	"preview.md", "promotion.md", "remote-clusters.md"}

// TestGuides runs each guide after the commands of the playground. Only ports differ from the page.
func TestGuides(t *testing.T) {
	for _, page := range guides {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath("kubectl"); err != nil && page == "remote-clusters.md" {
				t.Skip("kubectl is not installed, which this guide needs")
			}
			if !strings.Contains(testenv.Page(t, page), "]("+playground+")") {
				t.Fatalf("%s does not say that it starts from %s", page, playground)
			}
			start := testenv.Blocks(t, playground, "sh")
			steps := strings.Join(start[:len(start)-1], "") + commands(testenv.Page(t, page)) + start[len(start)-1]
			run(t, steps)
		})
	}
}

var (
	fence = regexp.MustCompile("^( *)```(\\w*)$")
	named = regexp.MustCompile("`([\\w./-]+\\.ya?ml)`:$") // the end of a paragraph before a file to save
)

// block is a block of a page: commands, or a file that the reader saves under a name.
type block struct{ file, content string }

// blocksOf returns the blocks that a reader runs or saves, in their order. It leaves out blocks with a mark, such as
// not-run.
func blocksOf(page string) []block {
	var blocks []block
	lines := strings.Split(page, "\n")
	before := ""
	for i := 0; i < len(lines); i++ {
		found := fence.FindStringSubmatch(lines[i])
		if found == nil {
			if lines[i] != "" {
				before = lines[i]
			}
			continue
		}
		var content strings.Builder
		for i++; i < len(lines) && lines[i] != found[1]+"```"; i++ {
			content.WriteString(strings.TrimPrefix(lines[i], found[1]) + "\n")
		}
		if name := named.FindStringSubmatch(before); found[2] == "sh" {
			blocks = append(blocks, block{content: content.String()})
		} else if name != nil {
			blocks = append(blocks, block{file: name[1], content: content.String()})
		}
	}
	return blocks
}

// commands returns the commands of a page, and one for each of its files.
func commands(page string) string {
	var steps strings.Builder
	for _, b := range blocksOf(page) {
		if b.file == "" {
			steps.WriteString(b.content)
		} else {
			steps.WriteString("cat > '" + b.file + "' <<'END OF FILE'\n" + b.content + "END OF FILE\n")
		}
	}
	return steps.String()
}

// TestExampleOfPromotion compares examples/promotion with the files of its page, which TestGuides runs.
func TestExampleOfPromotion(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	const files = 6
	compared := 0
	for _, b := range blocksOf(testenv.Page(t, "promotion.md")) {
		name, isExample := strings.CutPrefix(b.file, "fleet/")
		if !isExample {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, "examples", "promotion", name))
		if err != nil || string(content) != b.content {
			t.Errorf("examples/promotion/%s is not that of docs/promotion.md: %v", name, err)
		}
		compared++
	}
	if compared != files {
		t.Errorf("compared %d files", compared)
	}
}

// run runs commands in one shell, in an empty directory.
func run(t *testing.T, steps string) {
	t.Helper()
	for _, name := range []string{"sluice", "playground"} {
		if _, err := testenv.Binary(name); err != nil {
			t.Fatal(err)
		}
	}
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	steps = strings.NewReplacer("127.0.0.1:8088", system.FreeAddress(t), "127.0.0.1:5050", system.FreeAddress(t),
		"--storage-path storage", "--storage-path storage --storage-addr 127.0.0.1:0 --metrics-addr 0 "+
			"--health-addr 0 --receiverAddr 0 --events-addr 0 --images-addr 0").Replace(steps)
	const limit = 5 * time.Minute // of a guide on a loaded machine; most take half a minute
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -euxo pipefail\n"+steps)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(sluice)+":"+os.Getenv("PATH"), "HOME="+cmd.Dir,
		"GIT_AUTHOR_NAME=me", "GIT_AUTHOR_EMAIL=me@example.com", "GIT_COMMITTER_NAME=me",
		"GIT_COMMITTER_EMAIL=me@example.com", "SLUICE_NAMESPACE=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what the page starts ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err == nil {
		return
	}
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nothing may be left
	log, _ := os.ReadFile(filepath.Join(cmd.Dir, "try", "controller.log"))
	t.Fatalf("%v\n%s\nlog of the controllers:\n%s", err, out, log)
}
