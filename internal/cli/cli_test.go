package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

var update = flag.Bool("update", false, "write the golden files anew")

// result is what a command line came to.
type result struct {
	code     int
	out, err string
}

// run runs a command line with nothing on standard input.
func run(t *testing.T, args ...string) result {
	t.Helper()
	return runWith(t.Context(), "", args...)
}

func runWith(ctx context.Context, in string, args ...string) result {
	var out, errOut bytes.Buffer
	code := Main(ctx, args, strings.NewReader(in), &out, &errOut)
	return result{code, out.String(), errOut.String()}
}

// wants checks the exit code, and that standard error holds all texts.
func (r result) wants(t *testing.T, code int, texts ...string) result {
	t.Helper()
	if err := r.missing(code, texts...); err != nil {
		t.Fatal(err)
	}
	return r
}

// missing tells what lacks of an exit code, and texts on standard error.
func (r result) missing(code int, texts ...string) error {
	var problems []error
	if r.code != code {
		problems = append(problems, fmt.Errorf("exit code %d, want %d", r.code, code))
	}
	for _, text := range texts {
		if !strings.Contains(r.err, text) {
			problems = append(problems, fmt.Errorf("standard error lacks %q", text))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w\nstandard output:\n%s\nstandard error:\n%s", errors.Join(problems...), r.out, r.err)
}

// varying is what differs from run to run; what stands for it in tables is as wide.
var varying = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\btest-[a-z0-9]{5}\b`), "test-00000"},
	{regexp.MustCompile(`("?(?:uid|resourceVersion|creationTimestamp)"?): [^,\n]+`), "$1: VARIES"},
}

// golden compares text with testdata/name, or writes it there with -update.
func golden(t *testing.T, name, text string) {
	t.Helper()
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.instead)
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s: want (-) and got (+) differ; -update writes it anew:\n%s", file, diff)
	}
}

func commands(c *cobra.Command) []*cobra.Command {
	found := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		found = append(found, commands(sub)...)
	}
	return found
}

func newApp() *app {
	return &app{in: bufio.NewReader(strings.NewReader("")), out: newScreen(io.Discard), err: newScreen(io.Discard),
		flags: genericclioptions.NewConfigFlags(true)}
}

// TestCommands checks that every command explains itself, and that their names and flags are the ones users know.
func TestCommands(t *testing.T) {
	var lines []string
	for _, c := range commands(newApp().root()) {
		line := c.CommandPath()
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && c.Name() != "controller" { // whose flags are the manager's
				line += " --" + f.Name
			}
		})
		lines = append(lines, line)
		if c.Short == "" || c.Example == "" {
			t.Errorf("%q lacks a short text or an example", c.CommandPath())
		}
		if !strings.Contains(c.Example, c.CommandPath()) && !strings.Contains(c.Example, "sluice") {
			t.Errorf("the example of %q is of another command: %s", c.CommandPath(), c.Example)
		}
		if slices.Contains(c.Aliases, c.Name()) {
			t.Errorf("%q is an alias of itself", c.CommandPath())
		}
		if c.Args == nil {
			t.Errorf("%q takes whatever arguments it is given", c.CommandPath())
		}
	}
	golden(t, "commands.txt", strings.Join(lines, "\n")+"\n")
}

// TestAliases checks that each way to name a command leads to it.
func TestAliases(t *testing.T) {
	for line, want := range map[string]string{
		"get ks":                        "sluice get kustomizations",
		"get kustomization":             "sluice get kustomizations",
		"get sources git":               "sluice get source git",
		"get src gitrepository":         "sluice get source git",
		"get source all":                "sluice get source all",
		"reconcile ks app":              "sluice reconcile kustomization",
		"reconcile src gitrepo app":     "sluice reconcile source git",
		"suspend sources git app":       "sluice suspend source git",
		"resume kustomizations app":     "sluice resume kustomization",
		"resume source gitrepository x": "sluice resume source git",
		"get artifacts generators":      "sluice get artifact generators",
		"get sources ea":                "sluice get source external",
		"export artifact ag x":          "sluice export artifact generator",
		"create source ocirepository x": "sluice create source oci",
		"create secret github-app x":    "sluice create secret githubapp",
		"build ks x":                    "sluice build kustomization",
		"diff kustomizations x":         "sluice diff kustomization",
		"tree artifacts ag x":           "sluice tree artifact generator",
		"debug ks x":                    "sluice debug kustomization",
		"delete src helmrepo x":         "sluice delete source helm",
		"reconcile source hc x":         "sluice reconcile source chart",
		"suspend source buckets x":      "sluice suspend source bucket",
		"get images all":                "sluice get image all",
		"get images repository":         "sluice get image repository",
		"get image imagepolicies":       "sluice get image policy",
		"reconcile image update x":      "sluice reconcile image update",
		"create images policy x":        "sluice create image policy",
		"delete image imgjob x":         "sluice delete image release",
	} {
		c, _, err := newApp().root().Find(strings.Fields(line))
		if err != nil || c.CommandPath() != want {
			t.Errorf("%q leads to %q (%v), want %q", line, c.CommandPath(), err, want)
		}
	}
}

// TestShortFlags reads flags as scripts write them.
func TestShortFlags(t *testing.T) {
	for line, want := range map[string]string{
		"delete source git app -s":                "silent=true",
		"uninstall -s":                            "silent=true",
		"create source git app -s":                "silent=true",
		"push artifact oci://h/app:v1 -f ./x":     "path=./x",
		"push artifact oci://h/app:v1 -a a=b":     "annotations=[a=b]",
		"build artifact -p ./x":                   "path=./x",
		"pull artifact oci://h/app:v1 -o ./x":     "output=./x",
		"create secret oci login -u me":           "username=me",
		"get sources all -A":                      "all-namespaces=true",
		"get source git --server https://h -n ns": "server=https://h",
	} {
		c, args, err := newApp().root().Find(strings.Fields(line))
		if err == nil {
			err = c.ParseFlags(args)
		}
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		name, value, _ := strings.Cut(want, "=")
		if got := c.Flags().Lookup(name).Value.String(); got != value {
			t.Errorf("%q sets --%s to %q, want %q", line, name, got, value)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		says string
	}{
		"a command that is none, with what it may have been": {"instal", "Did you mean install?"},
		"a kind that is none":                                {"get pods", `unknown command "pods" for sluice get`},
		"a flag that is none": {"get all --colour",
			"unknown flag: --colour. See sluice get all --help"},
		"a flag of the wrong type":             {"get all --timeout soon", "--timeout"},
		"an output that is none":               {"get all -o toml", "choose wide, name, json or yaml"},
		"watching several kinds":               {"get all --watch", "--watch shows one kind"},
		"two names to get":                     {"get ks a b", "one name at most"},
		"a status selector without a status":   {"get ks --status-selector ready", "such as ready=false"},
		"a label selector that cannot be read": {"get ks -l a=b=c", "--label-selector"},
		"nothing to reconcile":                 {"reconcile ks", "name one object, got 0"},
		"nothing to suspend":                   {"suspend ks", "say --all"},
		"nothing to export":                    {"export source oci", "say --all"},
		"two to delete":                        {"delete ks a b", "name one object, got 2"},
		"deleting what controllers make":       {"delete source external a", "unknown command"},
		"both names and all":                   {"resume source git a --all", "say --all"},
		"a component that is none": {"install --export --components helm-operator",
			`no component "helm-operator": choose from source-controller`},
		"a log level that is none": {"install --export --log-level loud",
			"choose trace, debug"},
		"a build of nothing":                  {"build ks a", "--path is missing"},
		"a build of what is declared nowhere": {"build ks a --path . --dry-run", "--kustomization-file"},
		"a local source without its namespace": {"diff ks a --path . --local-sources GitRepository/a=.",
			"KIND/NAMESPACE/NAME=DIRECTORY"},
		"a comparison of nothing":          {"diff ks", "name one object, got 0"},
		"a Kustomization without a source": {"create ks a --export", "--source is missing"},
		"a source of a kind that is none": {"create ks a --source HelmChart/a --export",
			"choose from GitRepository"},
		"a path from the root of the machine": {"create ks a --source a --path /deploy --export",
			"as in ./deploy"},
		"a health check without its namespace": {
			"create ks a --source a --health-check Deployment/a --export", "KIND/NAME.NAMESPACE"},
		"a health check of a kind that is not known": {
			"create ks a --source a --health-check Widget/a.b --export", "write spec.healthChecks"},
		"a dependency without a name": {"create ks a --source a --depends-on b/ --export",
			"--depends-on"},
		"keys without what decrypts": {"create ks a --source a --decryption-secret b --export",
			"--decryption-provider is missing"},
		"a provider of decryption that is none": {
			"create ks a --source a --decryption-provider age --export", "choose from sops"},
		"a simulation of no time":             {"simulate gates", "--at is missing"},
		"a simulation of a time that is none": {"simulate gates --at noon", "RFC 3339"},
		"a gate that is neither": {"gate create g --default ajar --export",
			"choose from opened, closed"},
		"a schedule without its state": {"gate create g --schedule 12-24 --export",
			"write it as"},
		"a schedule that cannot be followed": {"gate create g --schedule closed;12-32 --export",
			"is no day"},
		"a schedule in a zone that is none": {
			"create gate g --schedule closed;@daily;1h;Mars --export", "is unknown"},
		"approvers of nothing": {"gate create g --approver alice --export",
			"--approvals-required"},
		"a window that is none": {"gate create g --window -1h --export", "spec.window"},
		"an image with its tag": {"create image repository a --image nginx:1 --export",
			"without scheme, tag and digest"},
		"a policy without an order": {"create image policy a --image-ref a --export",
			"give one of --select-semver"},
		"a policy of two orders": {
			"create image policy a --image-ref a --select-alpha asc --select-semver 1.x --export",
			"give one of --select-semver"},
		"an order that is none": {
			"create image policy a --image-ref a --select-numeric up --export", "choose from asc, desc"},
		"a range that is none": {
			"create image policy a --image-ref a --select-semver new --export", "spec.policy.semver"},
		"what is extracted of nothing": {
			"create image policy a --image-ref a --select-alpha asc --filter-extract $1 --export", "--filter-regex"},
		"an update that goes nowhere": {"create image update a --author-email a@b --export",
			"--git-repo-ref is missing"},
		"an update of nobody": {"create image update a --git-repo-ref a --export",
			"--author-email is missing"},
		"a release of nothing": {"image release web", "give either --image or --latest"},
		"a release of both": {"image release web --latest --image a:1",
			"give either --image or --latest"},
		"a release nowhere": {"image release --latest",
			"name workloads, or say --all"},
		"a release of what is no workload":    {"image release Service/web --latest", "is no workload"},
		"a release of an image without a tag": {"image release web --image nginx", "name:tag"},
		"a release by nobody": {"image release web --latest --author me",
			"Name <email>"},
		"images of what is no workload":   {"image list Pod/web", "is no workload"},
		"an argument where there is none": {"install now", "takes no arguments"},
		"a version output that is none":   {"version --client -o xml", "choose json or yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, strings.Fields(c.line)...).wants(t, exitUsage, c.says)
		})
	}
}

// TestNoCluster checks that a cluster that cannot be reached gives an error that says what to do.
func TestNoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	run(t, "get", "all", "--kubeconfig", "/does/not/exist").wants(t, exitFailed, "Set --kubeconfig")
	run(t, "get", "all", "--server", "https://127.0.0.1:1").
		wants(t, exitFailed, "connection refused", "Is the cluster running")
	run(t, "version", "--server", "https://127.0.0.1:1").wants(t, exitFailed, "--client leaves it out")
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := run(t, "completion", shell).wants(t, exitOK); !strings.Contains(r.out, "sluice") {
			t.Errorf("%s: no script", shell)
		}
	}
}

func TestVersionOfTheClientAlone(t *testing.T) {
	for output, says := range map[string]string{"": "sluice: dev", "json": `"sluice": "dev`, "yaml": "sluice: dev"} {
		if r := run(t, "version", "--client", "-o", output).wants(t, exitOK); !strings.Contains(r.out, says) {
			t.Errorf("-o %q prints %q, want %q in it", output, r.out, says)
		}
	}
}

func TestShortRevisions(t *testing.T) {
	for revision, want := range map[string]string{
		"": "",
		"main@sha1:4f170ec83a5c2cd3b3a27b4ef0b2ed4f33e7b5f3": "main@sha1:4f170ec8",
		"sha1:4f170ec83a5c2cd3b3a27b4ef0b2ed4f33e7b5f3":      "sha1:4f170ec8",
		"1.2.3":            "1.2.3",
		"main@sha1:4f170e": "main@sha1:4f170e",
	} {
		if got := short(revision); got != want {
			t.Errorf("%q is shown as %q, want %q", revision, got, want)
		}
	}
}

// TestTable checks that rows printed later stay aligned with the ones above, and that colours do not count as width.
func TestTable(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	var b strings.Builder
	table := &table{out: &screen{Writer: &b, terminal: true}}
	for _, rows := range [][][]cell{
		{{{text: "NAME"}, {text: "READY"}, {text: "MESSAGE"}}, {{text: "größe"}, {"True", green}, {text: "fine"}}},
		{{{text: "a"}, {"False", red}, {text: "not so"}}},
	} {
		if err := table.print(rows...); err != nil {
			t.Fatal(err)
		}
	}
	want := "NAME    READY   MESSAGE\ngröße   \x1b[32mTrue\x1b[0m    fine\na       \x1b[31mFalse\x1b[0m   not so\n"
	if b.String() != want {
		t.Errorf("got\n%q, want\n%q", b.String(), want)
	}
}

func TestColours(t *testing.T) {
	for name, c := range map[string]struct {
		terminal bool
		noColor  string
		want     string
	}{
		"on a terminal":                  {true, "", "\x1b[31mx\x1b[0m"},
		"on a terminal without colours":  {true, "1", "x"},
		"in a file there are no colours": {false, "", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NO_COLOR", c.noColor)
			if got := (&screen{Writer: io.Discard, terminal: c.terminal}).paint(red, "x"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
