package cli

import (
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
)

var update = flag.Bool("update", false, "update the golden files")

// result is the outcome of a command line.
type result struct {
	code     int
	out, err string
}

// run runs a command line with empty standard input.
func run(t *testing.T, args ...string) result {
	t.Helper()
	return runWith(t.Context(), "", args...)
}

func runWith(ctx context.Context, in string, args ...string) result {
	return environment(nil).run(ctx, in, args...)
}

// environment are variables that commands see in place of those of the process.
type environment map[string]string

func (v environment) get(name string) string {
	if value, ok := v[name]; ok {
		return value
	}
	return os.Getenv(name)
}

func (v environment) run(ctx context.Context, in string, args ...string) result {
	var out, errOut bytes.Buffer
	input := strings.NewReader(in)
	e := newEnv(input, &out, &errOut)
	e.getenv = v.get
	code := e.main(ctx, args, input, &out, &errOut)
	return result{code: code, out: out.String(), err: errOut.String()}
}

// wants checks the exit code, and that standard error contains all texts.
func (r result) wants(t *testing.T, code int, texts ...string) result {
	t.Helper()
	if err := r.check(code, texts...); err != nil {
		t.Fatal(err)
	}
	return r
}

// check returns an error if the exit code is another, or if standard error lacks a text.
func (r result) check(code int, texts ...string) error {
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

// shows returns an error if standard output lacks a text.
func (r result) shows(text string) error {
	if strings.Contains(r.out, text) {
		return nil
	}
	return fmt.Errorf("standard output lacks %q:\n%s\nstandard error:\n%s", text, r.out, r.err)
}

// varying are texts that differ between runs. Replacements have the same width, which keeps tables aligned.
var varying = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{pattern: regexp.MustCompile(`\btest-[a-z0-9]{5}\b`), replacement: "test-00000"},
	{pattern: regexp.MustCompile(`\bweb-[a-z0-9]+-[a-z0-9]{5}\b`), replacement: "web-pod"},
	{
		pattern:     regexp.MustCompile(`("?(?:uid|resourceVersion|creationTimestamp)"?): [^,\n]+`),
		replacement: "$1: VARIES",
	},
}

// golden compares text with testdata/name, or writes it there with -update.
func golden(t *testing.T, name, text string) {
	t.Helper()
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.replacement)
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
		t.Errorf("%s differs from the output (-want +got); update it with -update:\n%s", file, diff)
	}
}

func commands(c *cobra.Command) []*cobra.Command {
	found := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		found = append(found, commands(sub)...)
	}
	return found
}

func newTestRoot() *cobra.Command {
	return newRootCommand(newEnv(strings.NewReader(""), io.Discard, io.Discard))
}

// TestCommandsHaveHelpAndFlags checks that every command has help, and that commands and flags keep their names.
func TestCommandsHaveHelpAndFlags(t *testing.T) {
	var lines []string
	for _, c := range commands(newTestRoot()) {
		line := c.CommandPath()
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" && c.Name() != "controller" { // the flags of the controllers are tested in manager
				line += " --" + f.Name
			}
		})
		lines = append(lines, line)
		if c.Short == "" || c.Example == "" {
			t.Errorf("%q has no short text or no example", c.CommandPath())
		}
		if !strings.Contains(c.Example, c.CommandPath()) && !strings.Contains(c.Example, "sluice") {
			t.Errorf("the example of %q is of another command: %s", c.CommandPath(), c.Example)
		}
		if slices.Contains(c.Aliases, c.Name()) {
			t.Errorf("%q is an alias of itself", c.CommandPath())
		}
		if c.Args == nil {
			t.Errorf("%q does not check its arguments", c.CommandPath())
		}
		for text := range strings.Lines(c.Short + "\n" + c.Long) {
			if n := len([]rune(strings.TrimRight(text, "\n"))); n > helpWidth {
				t.Errorf("the help of %q has a line of %d columns: %s", c.CommandPath(), n, text)
			}
		}
	}
	golden(t, "commands.txt", strings.Join(lines, "\n")+"\n")
	checkReference(t)
}

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
		c, _, err := newTestRoot().Find(strings.Fields(line))
		if err != nil || c.CommandPath() != want {
			t.Errorf("%q leads to %q (%v), want %q", line, c.CommandPath(), err, want)
		}
	}
}

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
		c, args, err := newTestRoot().Find(strings.Fields(line))
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

var usageErrors = map[string]struct{ line, want string }{
	"unknown command with a suggestion":    {line: "instal", want: "Did you mean install?"},
	"unknown subcommand with a suggestion": {line: "gate aprove x", want: `for sluice gate. Did you mean approve?`},
	"unknown kind":                         {line: "get pods", want: `unknown command "pods" for sluice get`},
	"unknown flag": {
		line: "get all --colour", want: "unknown flag: --colour\n► See sluice get all --help",
	},
	"flag of the wrong type": {line: "get all --timeout soon", want: "--timeout"},
	"unknown output":         {line: "get all -o toml", want: "choose from wide, name, json, yaml"},
	"status selector with another status": {
		line: "get ks --status-selector ready=maybe", want: "choose from true, false, unknown",
	},
	"timeout of 0":               {line: "get ks --timeout 0s", want: "--timeout"},
	"unknown shell":              {line: "completion tcsh", want: `unknown command "tcsh"`},
	"argument after a shell":     {line: "completion bash x", want: "unknown command"},
	"help of an unknown command": {line: "help nope", want: `unknown command "nope"`},
	"required flags": {
		line: "push artifact oci://h/app:v1", want: "✗ --revision is missing\n✗ --source is missing",
	},
	"object of an unknown kind":      {line: "suspend ks pods/a", want: `unknown kind "pods"`},
	"object of another kind":         {line: "suspend ks/a hr/b", want: `"hr/b" is not a Kustomization`},
	"object without name":            {line: "get ks/", want: "the name is missing"},
	"object of a read-only kind":     {line: "delete ea/a", want: `unknown command "ea/a" for sluice delete`},
	"events of two objects":          {line: "events ks/a --for ks/b", want: "exclude each other"},
	"unknown output of events":       {line: "events -o toml", want: "choose from json, yaml"},
	"watch of several kinds":         {line: "get all --watch", want: "--watch needs a single kind"},
	"get with two names":             {line: "get ks a b", want: "at most one name"},
	"status selector without status": {line: "get ks --status-selector ready", want: "such as ready=false"},
	"invalid label selector":         {line: "get ks -l a=b=c", want: "--label-selector"},
	"reconcile without name":         {line: "reconcile ks", want: "expected one name, got 0"},
	"suspend without name":           {line: "suspend ks", want: "either names or --all"},
	"export without name":            {line: "export source oci", want: "either names or --all"},
	"delete with two names":          {line: "delete ks a b", want: "expected one name, got 2"},
	"delete of a read-only kind":     {line: "delete source external a", want: "unknown command"},
	"names and --all":                {line: "resume source git a --all", want: "either names or --all"},
	"unknown component": {
		line: "install --export --components helm-operator",
		want: `invalid value "helm-operator" for --components: choose from source-controller`,
	},
	"unknown log level":            {line: "install --export --log-level loud", want: "choose from trace, debug"},
	"build without path":           {line: "build ks a", want: "--path is missing"},
	"offline build without a file": {line: "build ks a --path . --dry-run", want: "--kustomization-file"},
	"local source without namespace": {
		line: "diff ks a --path . --local-sources GitRepository/a=.", want: "KIND/NAMESPACE/NAME=DIRECTORY",
	},
	"diff without name":            {line: "diff ks", want: "expected one name, got 0"},
	"Kustomization without source": {line: "create ks a --export", want: "--source is missing"},
	"unsupported source kind": {
		line: "create ks a --source HelmChart/a --export", want: "choose from GitRepository",
	},
	"absolute path": {line: "create ks a --source a --path /deploy --export", want: "such as ./deploy"},
	"health check without namespace": {
		line: "create ks a --source a --health-check Deployment/a --export", want: "KIND/NAME.NAMESPACE",
	},
	"health check of an unsupported kind": {
		line: "create ks a --source a --health-check Widget/a.b --export", want: "spec.healthChecks",
	},
	"dependency without name": {line: "create ks a --source a --depends-on b/ --export", want: "--depends-on"},
	"keys without decryption provider": {
		line: "create ks a --source a --decryption-secret b --export", want: "needs --decryption-provider",
	},
	"unknown decryption provider": {
		line: "create ks a --source a --decryption-provider age --export", want: "choose from sops",
	},
	"simulation without time":      {line: "simulate gates", want: "--at is missing"},
	"simulation with invalid time": {line: "simulate gates --at noon", want: "RFC 3339"},
	"invalid default state": {
		line: "gate create g --default ajar --export", want: "choose from opened, closed",
	},
	"schedule without state": {
		line: "gate create g --schedule 12-24 --export", want: "invalid --schedule",
	},
	"schedule with an invalid date": {line: "gate create g --schedule closed;12-32 --export", want: "12-32"},
	"schedule with an unknown time zone": {
		line: "create gate g --schedule closed;@daily;1h;Mars --export", want: "Mars",
	},
	"approvers without approvals": {
		line: "gate create g --approver alice --export", want: "--approvals-required",
	},
	"negative window": {line: "gate create g --window -1h --export", want: "spec.window"},
	"image repository with a tag": {
		line: "create image repository a --image nginx:1 --export", want: "without scheme, tag and digest",
	},
	"policy without order": {
		line: "create image policy a --image-ref a --export", want: "set one of --select-semver",
	},
	"policy with two orders": {
		line: "create image policy a --image-ref a --select-alpha asc --select-semver 1.x --export",
		want: "set one of --select-semver",
	},
	"unknown order": {
		line: "create image policy a --image-ref a --select-numeric up --export", want: "choose from asc, desc",
	},
	"invalid version range": {
		line: "create image policy a --image-ref a --select-semver new --export", want: "spec.policy.semver",
	},
	"extract without filter": {
		line: "create image policy a --image-ref a --select-alpha asc --filter-extract $1 --export",
		want: "--filter-regex",
	},
	"image update without repository": {
		line: "create image update a --author-email a@b --export", want: "--git-repo-ref is missing",
	},
	"image update without author": {
		line: "create image update a --git-repo-ref a --export", want: "--author-email is missing",
	},
	"release without image": {line: "image release web", want: "either --image or --latest"},
	"release of an image and --latest": {line: "image release web --latest --image a:1",
		want: "either --image or --latest"},
	"release without workload":        {line: "image release --latest", want: "either workloads or --all"},
	"release for an unsupported kind": {line: "image release Service/web --latest", want: "is not a workload"},
	"release of an image without tag": {line: "image release web --image nginx", want: "name:tag"},
	"release with an invalid author":  {line: "image release web --latest --author me", want: "Name <email>"},
	"images of an unsupported kind":   {line: "image list Pod/web", want: "is not a workload"},
	"unexpected argument":             {line: "install now", want: "takes no arguments"},
	"unknown output of version":       {line: "version --client -o xml", want: "choose from json, yaml"},
}

// TestUsageErrors checks that usage errors say what to do.
func TestUsageErrors(t *testing.T) {
	for name, c := range usageErrors {
		t.Run(name, func(t *testing.T) {
			run(t, strings.Fields(c.line)...).wants(t, exitUsage, c.want)
		})
	}
}

// TestUnreachableCluster checks that connection errors say what to do.
func TestUnreachableCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	run(t, "get", "all", "--kubeconfig", "/does/not/exist").wants(t, exitFailed, "Set --kubeconfig")
	run(t, "get", "all", "--server", "https://127.0.0.1:1").
		wants(t, exitFailed, "connection refused", "Check that the cluster is running")
	run(t, "version", "--server", "https://127.0.0.1:1").wants(t, exitFailed, "use --client")
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := run(t, "completion", shell).wants(t, exitOK); !strings.Contains(r.out, "sluice") {
			t.Errorf("%s: no script", shell)
		}
	}
}

func TestClientVersion(t *testing.T) {
	for output, want := range map[string]string{"": "sluice: dev", "json": `"sluice": "dev`, "yaml": "sluice: dev"} {
		if r := run(t, "version", "--client", "-o", output).wants(t, exitOK); !strings.Contains(r.out, want) {
			t.Errorf("-o %q prints %q, which lacks %q", output, r.out, want)
		}
	}
}
