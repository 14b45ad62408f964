package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const previewRoot = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: NAME, namespace: flux-system}
spec: {interval: 1h, path: PATH, prune: true, targetNamespace: shop, sourceRef: {kind: GitRepository, name: fleet}}
`

// previewClone returns a clone with the branches main and my-branch, and the files of main.
func previewClone(t *testing.T, change map[string]string) string {
	t.Helper()
	declare := func(name, path string) string {
		return strings.NewReplacer("NAME", name, "PATH", path).Replace(previewRoot)
	}
	dir := write(t, map[string]string{
		"clusters/root.yaml": declare("root", "./clusters"), "clusters/web.yaml": declare("web", "./web"),
		"clusters/db.yaml": declare("db", "./db"), "web/app.yaml": configMap + "\"1\"\n",
		"db/claim.yaml":  "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n",
		"db/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n",
	})
	git := func(args ...string) {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=me", "-c",
			"user.email=me@example.com"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	git("init", "-q", "-b", "main", ".")
	git("add", ".")
	git("commit", "-qm", "one")
	git("checkout", "-qb", "my-branch")
	for name, content := range change {
		path := filepath.Join(dir, name)
		if content == "" {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("add", ".")
	git("commit", "-qm", "two", "--allow-empty")
	return dir
}

func TestPreviewOffline(t *testing.T) {
	t.Parallel()
	dir := previewClone(t, map[string]string{"web/app.yaml": configMap + "\"2\"\n", "db/claim.yaml": "",
		"db/secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter3}\n",
		"image.bin":      "\x00\xff\x01"})
	args := []string{"preview", "--clone", dir, "--from", "main", "--to", "my-branch", "--offline"}
	r := run(t, args...).wants(t, 1, "2 configured, 1 deleted, risk high")
	for _, text := range []string{"~ ConfigMap/shop/app configured\n      ~ data.at: \"1\" → \"2\"",
		"- PersistentVolumeClaim/shop/data deleted\n      ! high: data may be lost", "*** (before) → *** (after)"} {
		if !strings.Contains(r.out, text) {
			t.Errorf("the preview has no %q:\n%s", text, r.out)
		}
	}
	for _, format := range []string{"markdown", "json", "sarif"} {
		out := run(t, append(args, "-o", format)...).wants(t, 1).out
		if strings.Contains(out, "hunter") || strings.Contains(out, "aHVudGVy") ||
			!strings.Contains(out, "stateful-deletion") {
			t.Errorf("%s:\n%s", format, out)
		}
		if format != "markdown" && !json.Valid([]byte(out)) {
			t.Errorf("%s is not JSON:\n%s", format, out)
		}
	}
	run(t, "preview", "--clone", dir, "--to", "main", "--offline").wants(t, exitOK, "no changes")
	run(t, append(args, "--fail-on", "high")...).wants(t, 1)
	run(t, append(args, "--rules", filepath.Join(write(t, map[string]string{"r": "disable: [stateful-deletion]"}), "r"),
		"--fail-on", "high")...).wants(t, exitOK, "risk low")
	other := previewClone(t, nil)
	run(t, "preview", "--from-dir", other, "--to-dir", dir, "--offline").wants(t, 1, "2 configured, 1 deleted")
}

// TestPreviewOfValues changes files with values of a release and of its chart.
func TestPreviewOfValues(t *testing.T) {
	t.Parallel()
	files := func(values, chart string) string {
		return write(t, map[string]string{
			"clusters/root.yaml": strings.NewReplacer("NAME", "root", "PATH", "./clusters").Replace(previewRoot),
			"clusters/release.yaml": "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\n" +
				"metadata: {name: web}\nspec:\n  interval: 1h\n  chart: {spec: {chart: charts/web, " +
				"sourceRef: {kind: GitRepository, name: fleet}, " +
				"valuesFiles: [\"GitRepository://fleet/values/chart.yaml\"]}}\n" +
				"  valuesFrom: [{kind: GitRepository, name: fleet, path: values/prod.yaml}]\n",
			"charts/web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n",
			"charts/web/templates/c.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n" +
				"data: {a: \"{{ .Values.a }}\", b: \"{{ .Values.b }}\"}\n",
			"values/prod.yaml": "a: " + values + "\n", "values/chart.yaml": "b: " + chart + "\n"})
	}
	from := files("one", "three")
	preview := func(to string) result { return run(t, "preview", "--from-dir", from, "--to-dir", to, "--offline") }
	for want, to := range map[string]string{"data.a: one → two": files("two", "three"),
		"data.b: three → four": files("one", "four")} {
		if r := preview(to).wants(t, 1, "1 configured"); !strings.Contains(r.out, want) {
			t.Errorf("the preview has no %q:\n%s", want, r.out)
		}
	}
	preview(files("one", "three")).wants(t, exitOK, "no changes")
}

// TestPreviewOfflineWithoutKustomizations has repositories that do not declare what applies them: every change would be
// "no changes".
func TestPreviewOfflineWithoutKustomizations(t *testing.T) {
	t.Parallel()
	release := "apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: web}\n"
	other := strings.NewReplacer("NAME", "web", "PATH", "./", "GitRepository", "OCIRepository").Replace(previewRoot)
	for name, c := range map[string]struct {
		before, after map[string]string
		want          []string
	}{
		"empty": {want: []string{"found no Kustomization (kustomize.toolkit.fluxcd.io)", "(0 read)"}},
		"only objects": {before: map[string]string{"a.yaml": configMap + "\"1\"\n"},
			after: map[string]string{"a.yaml": configMap + "\"2\"\n", "release.yaml": release},
			want:  []string{"found no Kustomization", "(3 read)", "omit --offline"}},
		"another source": {after: map[string]string{"web.yaml": other},
			want: []string{"whose source is this repository", "OCIRepository/flux-system/fleet", "--source"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, "preview", "--offline", "--from-dir", write(t, c.before), "--to-dir", write(t, c.after))
			r.wants(t, exitUsage, c.want...)
			if strings.Contains(r.out+r.err, "no changes") {
				t.Errorf("it says that nothing changes: %s", r.err)
			}
		})
	}
	created := map[string]string{"cluster/sync.yaml": strings.NewReplacer("NAME", "cluster", "PATH", "./cluster").
		Replace(previewRoot)}
	run(t, "preview", "--offline", "--from-dir", write(t, nil), "--to-dir", write(t, created)).
		wants(t, 1, "2 created")
}

// TestUnknownFieldsAreNamed adds a mistyped field, which changes nothing else.
func TestUnknownFieldsAreNamed(t *testing.T) {
	t.Parallel()
	const web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replica: 3\n" +
		"  template: {spec: {containers: [{name: web, imagePullSecret: x}]}}\n"
	const found = "spec.replica, spec.template.spec.containers[0].imagePullSecret"
	dir := previewClone(t, map[string]string{"web/web.yaml": web, "web/app.yaml": configMap + "\"1\"\nunknown: x\n"})
	args := []string{"preview", "--clone", dir, "--from", "main", "--to", "my-branch", "--offline", "--fail-on",
		"medium"}
	r := run(t, args...).wants(t, 1, "risk medium")
	for _, want := range []string{"ConfigMap/shop/app configured", "left out: unknown (unknown-fields)",
		"left out: " + found + " (unknown-fields)"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the preview lacks %q:\n%s", want, r.out)
		}
	}
	build := []string{"build", "ks", "web", "--path", filepath.Join(dir, "web"), "--kustomization-file",
		filepath.Join(dir, "clusters/web.yaml"), "--dry-run", "-n", "flux-system"}
	run(t, build...).wants(t, exitOK, "unknown field, which is left out when it is applied: Deployment 'web': "+
		"spec.replica in web/web.yaml, line 5", "ConfigMap 'app': unknown in web/app.yaml, line 7")
	run(t, append(build, "--strict-fields")...).wants(t, exitFailed, "unknown fields", "spec.replica in web/web.yaml")
}

// TestCutValuesAreNamed has a variable whose value is read as a comment.
func TestCutValuesAreNamed(t *testing.T) {
	t.Parallel()
	declared := strings.NewReplacer("NAME", "web", "PATH", "./web", "prune: true",
		"prune: true, postBuild: {substitute: {motto: 'first # last'}}").Replace(previewRoot)
	dir := previewClone(t, map[string]string{"clusters/web.yaml": declared, "web/app.yaml": configMap + "${motto}\n"})
	const want, quoting = "motto", "${quote}"
	r := run(t, "preview", "--clone", dir, "--from", "main", "--to", "my-branch", "--offline").
		wants(t, 1, want, quoting)
	if !strings.Contains(r.err, "Kustomization 'shop/web': ConfigMap/shop/app in web/app.yaml: data.at: ") {
		t.Errorf("the warning does not name the Kustomization: %s", r.err)
	}
	run(t, "build", "ks", "web", "--path", filepath.Join(dir, "web"), "--kustomization-file",
		filepath.Join(dir, "clusters/web.yaml"), "--dry-run", "-n", "flux-system").wants(t, exitOK, want, quoting)
}

func TestPreviewErrors(t *testing.T) {
	t.Parallel()
	dir := previewClone(t, map[string]string{"web/app.yaml": "a: [", "db/claim.yaml": ""})
	base := []string{"preview", "--clone", dir, "--offline"}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no branch": {args: append(base, "--to", "none"), want: "'none' is not in the clone"},
		"no repository": {args: []string{"preview", "--clone", t.TempDir(), "--offline"},
			want: "not in a git repository"},
		"one directory": {args: []string{"preview", "--from-dir", dir}, want: "need each other"},
		"level":         {args: append(base, "--fail-on", "severe"), want: "use low, medium or high"},
		"format":        {args: append(base, "-o", "xml"), want: "xml"},
		"no pull":       {args: append(base, "--comment"), want: "address of a pull request"},
		"not a pull":    {args: append(base, "https://github.com/o/r"), want: "not a pull request"},
		"rules":         {args: append(base, "--rules", filepath.Join(dir, "web/app.yaml")), want: "risk.yaml"},
		"one build":     {args: append(base, "--to", "my-branch"), want: "1 deleted, risk high; 1 preview failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, c.args...).wants(t, exitUsage, c.want)
		})
	}
}

// TestPreviewComment checks that a preview is posted on the pull request, and updated.
func TestPreviewComment(t *testing.T) {
	var posted, methods []string
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			if len(posted) == 0 {
				_, _ = io.WriteString(w, "[]")
				return
			}
			_ = json.NewEncoder(w).Encode([]map[string]any{{"id": 7, "body": posted[len(posted)-1]}})
			return
		}
		var body struct{ Body string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		posted, methods = append(posted, body.Body), append(methods, r.Method+" "+r.URL.Path)
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(host.Close)
	t.Setenv("GITEA_TOKEN", "s3cret")
	dir := previewClone(t, map[string]string{"web/app.yaml": configMap + "\"2\"\n"})
	for _, from := range []string{"main", "my-branch"} {
		code := 1
		if from == "my-branch" {
			code = exitOK
		}
		run(t, "preview", "--clone", dir, "--from", from, "--to", "my-branch", "--offline", "--comment",
			host.URL+"/o/r/pulls/4").wants(t, code)
	}
	for address, variable := range map[string]string{
		"https://bitbucket.org/w/r/pull-requests/1":      "$BITBUCKET_TOKEN or $SLUICE_GIT_TOKEN",
		"https://dev.azure.com/o/p/_git/r/pullrequest/1": "$AZURE_DEVOPS_TOKEN, $SYSTEM_ACCESSTOKEN or $SLUICE",
	} {
		run(t, "preview", "--comment", address).wants(t, exitUsage, variable)
	}
	want := "POST /api/v1/repos/o/r/issues/4/comments, PATCH /api/v1/repos/o/r/issues/comments/7"
	if strings.Join(methods, ", ") != want ||
		!strings.Contains(posted[0], "1 configured") || !strings.Contains(posted[1], "No object would change") {
		t.Errorf("%v: %q", methods, posted)
	}
}

// TestPreviewPage checks the files of docs/preview.md. A test of guides runs its commands.
func TestPreviewPage(t *testing.T) {
	t.Parallel()
	blocks := testenv.Blocks(t, "preview.md", "yml")
	if len(blocks) != 5 {
		t.Fatalf("%d files", len(blocks))
	}
	if _, err := risk.Parse([]byte(blocks[0])); err != nil {
		t.Error(err)
	}
	for _, workflow := range blocks[1:] {
		var parsed any
		if err := yaml.Unmarshal([]byte(workflow), &parsed); err != nil {
			t.Error(err)
		}
		_, command, _ := strings.Cut(workflow, "sluice preview")
		var flags []string
		for _, word := range strings.Fields(command) {
			if name, isFlag := strings.CutPrefix(word, "--"); isFlag {
				flags = append(flags, name)
			}
		}
		c, _, err := newTestRoot().Find([]string{"preview"})
		if err != nil || len(flags) < 4 {
			t.Fatalf("%v %v", err, flags)
		}
		for _, name := range flags {
			if !hasFlag(c, name) {
				t.Errorf("the page uses --%s, which does not exist", name)
			}
		}
	}
}
