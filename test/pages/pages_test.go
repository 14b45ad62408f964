// Package pages runs the pages of docs as a reader does: from an empty directory, with only the binaries on the path
// and a control plane of their own, with exactly the commands of the page, in their order.
package pages

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// playground is the page whose first two blocks a guide starts from, and whose last one ends it. A guide says so by a
// link to it.
const playground = "playground.md"

// The pages by what they start from. Each page says on it what it needs.
var (
	// alone are the pages that start all that they need.
	alone = []string{"fleet.md", "get-started.md", playground, "validate.md"}

	// guides start from the control plane of the playground, to which they have a link.
	guides = []string{"clusters-as-inputs.md", "directories-as-inputs.md", "gates-and-freezes.md",
		"helmrelease-guide.md", "image-updates.md", "mcp.md", "oci-artifacts.md", "preview.md",
		"preview-environments.md", "promotion.md", "remote-clusters.md", "review.md"}

	// installations start from a cluster without Sluice.
	installations = []string{"install.md", "high-availability.md", "ui.md", "upgrade-and-backup.md"}
)

// prepared is what a person has done before pages that say so.
var prepared = map[string]string{"upgrade-and-backup.md": "sluice install\n"}

// always are the guides that make test runs as well.
var always = []string{"gates-and-freezes.md"}

// TestGuides runs each guide after the commands of the playground. Only ports differ from the page.
func TestGuides(t *testing.T) {
	for _, page := range guides {
		t.Run(page, func(t *testing.T) {
			if !slices.Contains(always, page) {
				testenv.Full(t)
			}
			t.Parallel()
			if strings.Contains(commands(testenv.Page(t, page)), "kubectl ") {
				kubectl(t)
			}
			if !strings.Contains(testenv.Page(t, page), "]("+playground+")") {
				t.Fatalf("%s does not say that it starts from %s", page, playground)
			}
			start := testenv.Blocks(t, playground, "sh")
			run(t, strings.Join(start[:len(start)-1], "")+commands(testenv.Page(t, page))+start[len(start)-1])
		})
	}
}

// TestGetStarted runs docs/get-started.md, and compares what its commands print with what the page shows. Only ports
// differ from the page, and the binaries are those that are built already.
func TestGetStarted(t *testing.T) {
	t.Parallel()
	script := commands(testenv.Page(t, "get-started.md"))
	if _, err := exec.LookPath("kubectl"); err != nil { // one step needs it
		script = regexp.MustCompile(`(?m)^kubectl .*\n`).ReplaceAllString(script, "")
	}
	out := run(t, strings.NewReplacer("make build\n", "", "$PWD/bin:", "").Replace(script))
	if !strings.Contains(out, "'flux-system/web' is held by a gate") {
		t.Error("reconcile does not name the gate")
	}
	compareShown(t, "get-started.md", script, out)
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// TestFleet runs docs/fleet.md with the directory examples/fleet. Only ports differ from the page.
func TestFleet(t *testing.T) {
	testenv.Full(t)
	t.Parallel()
	kubectl(t)
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer("make build\n", "", "export PATH=$PWD/bin:$PATH\n", "", "cp -r examples/fleet",
		"cp -r '"+filepath.Join(root, "examples", "fleet")+"'").Replace(commands(testenv.Page(t, "fleet.md")))
	const ports, first = 5, 20_000 // below those that the kernel chooses
	base := first + ports*(os.Getpid()%2000)
	run(t, "export FLEET_PORT="+strconv.Itoa(base)+"\n"+script)
}

// TestValidatePage runs docs/validate.md in a directory that has the objects of an example.
func TestValidatePage(t *testing.T) {
	t.Parallel()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	out := run(t, "cp -r '"+filepath.Join(root, "examples", "webapp")+"' clusters\n"+
		commands(testenv.Page(t, "validate.md"))+"grep '\"results\": \\[\\]' validate.sarif\n")
	if n := strings.Count(out, " objects valid\n"); n != 3 {
		t.Errorf("%d of 3 commands found no problem:\n%s", n, out)
	}
}

// changing matches what differs between runs: hashes of commits, names of pods, times, and the address of the server.
var changing = regexp.MustCompile(`sha1:[0-9a-f]+|-[0-9a-z]+-[0-9a-z]{5}\b|` +
	`\d{4}(-\d\d){2} \d\d(:\d\d){2}|127[.\d]+:\d+`)

// compareShown compares the output that a page shows with that of its commands.
func compareShown(t *testing.T, page, script, out string) {
	t.Helper()
	out = changing.ReplaceAllString(out, "…")
	commands := 0
	for _, block := range testenv.Blocks(t, page, "console") {
		for _, shown := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, want, _ := strings.Cut(shown, "\n")
			commands++
			if !strings.Contains(script, command+"\n") {
				t.Errorf("the page shows the output of another command: %s", command)
			}
			want = strings.TrimRight(changing.ReplaceAllString(want, "…"), "\n")
			if !strings.Contains(out, "\n"+want+"\n") {
				t.Errorf("%s does not print what the page shows:\n%s", command, want)
			}
		}
	}
	const least = 5
	if commands < least {
		t.Errorf("the page shows the output of %d commands", commands)
	}
}

// TestInstallations runs the pages that install Sluice, one after the other in one cluster. Sluice is removed between.
func TestInstallations(t *testing.T) {
	testenv.Full(t)
	t.Parallel()
	kubectl(t)
	steps := "playground cluster --kubeconfig kubeconfig > cluster.log 2>&1 &\n" +
		"until grep -q ready cluster.log; do sleep 1; done\nexport KUBECONFIG=$PWD/kubeconfig\n"
	for i, page := range installations {
		if i > 0 {
			steps += "sluice uninstall --silent\n"
		}
		steps += "mkdir " + page + "\npushd " + page + "\n" + prepared[page] + commands(testenv.Page(t, page)) +
			"popd\n"
	}
	run(t, steps+"kill $(jobs -p)\n")
}

// TestDemo runs the demo, which deploys the examples istio, webapp and pipeline until all is Ready, and records what a
// terminal shows. With SLUICE_IMAGES, that becomes the picture of the README.
func TestDemo(t *testing.T) {
	t.Parallel()
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	picture := filepath.Join(t.TempDir(), "demo.svg")
	out := run(t, "DEMO_EXIT=1 playground demo --sluice \"$(command -v sluice)\" --examples '"+
		filepath.Join(root, "examples")+"' --picture "+picture+"\n")
	svg, err := os.ReadFile(picture)
	if err != nil || !strings.Contains(string(svg), "All Ready") {
		t.Fatalf("%v\nthe demo prints\n%s", err, out)
	}
	if os.Getenv("SLUICE_IMAGES") != "" {
		err = os.WriteFile(filepath.Join(root, "docs", "images", "demo.svg"), svg, 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}

var (
	fence = regexp.MustCompile("^( *)```(\\w*)( .+)?$")   // with a mark, such as not-run
	named = regexp.MustCompile("`([\\w./-]+\\.ya?ml)`:$") // the end of a paragraph before a file to save
)

// block is a block of a page: commands, or a file that the reader saves under a name.
type block struct{ file, content string }

// blocksOf returns the blocks that a reader runs or saves, in their order. It leaves out blocks with a mark.
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
		if found[3] != "" {
			continue
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

// TestExamplesOfPages compares the files of examples with those of their pages, which TestGuides runs.
func TestExamplesOfPages(t *testing.T) {
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	for page, name := range map[string]string{
		"review.md":               "review/review.yaml",
		"preview-environments.md": "preview-environments/previews.yaml",
	} {
		content, err := os.ReadFile(filepath.Join(root, "examples", name))
		if err != nil || !strings.Contains(testenv.Page(t, page), "\n"+string(content)) {
			t.Errorf("examples/%s is not in docs/%s: %v", name, page, err)
		}
	}
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

// kubectl skips a test that needs kubectl.
func kubectl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not installed, which commands of these pages need")
	}
}

// binary returns the path of sluice, whose directory has the playground as well.
func binary(t *testing.T) string {
	t.Helper()
	if _, err := testenv.Binary("playground"); err != nil {
		t.Fatal(err)
	}
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	return sluice
}

// run runs commands in one shell, in an empty directory, and returns what they print.
func run(t *testing.T, steps string) string {
	t.Helper()
	receiver := testenv.FreeAddress(t)
	steps = strings.NewReplacer("127.0.0.1:8088", testenv.FreeAddress(t), "127.0.0.1:5050", testenv.FreeAddress(t),
		"127.0.0.1:8089", testenv.FreeAddress(t), "127.0.0.1:9097", testenv.FreeAddress(t), "127.0.0.1:9292", receiver,
		"--storage-path storage", "--storage-path storage --storage-addr 127.0.0.1:0 --metrics-addr 0 "+
			"--health-addr 0 --receiverAddr "+receiver+" --events-addr 0 --images-addr 0").Replace(steps)
	const limit = 5 * time.Minute // of a guide on a loaded machine; most take half a minute
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "PS4='+ $SECONDS s: '\nset -euxo pipefail\n"+steps)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary(t))+":"+os.Getenv("PATH"), "HOME="+cmd.Dir,
		"GIT_AUTHOR_NAME=me", "GIT_AUTHOR_EMAIL=me@example.com", "GIT_COMMITTER_NAME=me",
		"GIT_COMMITTER_EMAIL=me@example.com", "SLUICE_NAMESPACE=")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what the page starts ends with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // pages leave a cluster and servers running
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(cmd.Dir, "try", "controller.log"))
		t.Fatalf("%v\n%s\nlog of the controllers:\n%s", err, out, log)
	}
	return string(out)
}
