package helm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/downloader"
	"helm.sh/helm/v4/pkg/getter"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func build(t *testing.T, tree *artifact.Tree, at string, o Options) *Package {
	t.Helper()
	o.Limits = DefaultLimits
	p, err := BuildTree(t.Context(), tree, at, o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := BuildTree(t.Context(), tree, at, o)
	if err != nil || !bytes.Equal(p.Data, again.Data) {
		t.Fatalf("building twice returned different bytes: %v", err)
	}
	return p
}

func TestBuildTree(t *testing.T) {
	tree := treeOf("charts/app", map[string]string{
		"charts/app/.helmignore": "*.md\n", "charts/app/README.md": "x",
		"charts/app/shared.yaml": "symlink:../shared.yaml",
		"charts/shared.yaml":     "shared", "prod.yaml": "color: blue\nsize: {w: 1}\n", "big.yaml": "size: {h: 2}\n",
	})
	for _, at := range []string{"charts/app", "./charts/app", "/charts/app/"} {
		name, version, err := Describe(t.Context(), tree, at, DefaultLimits)
		if name != "app" || version != "1.2.3" || err != nil {
			t.Fatal(name, version, err)
		}
	}
	p := build(t, tree, "./charts/app", Options{})
	if p.Name != "app" || p.Version != "1.2.3" {
		t.Errorf("%+v", p)
	}
	got := contents(t, p.Data)
	if want := []string{"app/.helmignore", "app/Chart.yaml", "app/shared.yaml", "app/templates/config.yaml",
		"app/values.yaml"}; !slices.Equal(keys(got), want) {
		t.Errorf("files: %q", keys(got))
	}
	if got["app/shared.yaml"] != "shared" || got["app/values.yaml"] != "color: red\n" {
		t.Errorf("%q", got)
	}

	p = build(t, tree, "charts/app", Options{Metadata: "0123456789ab",
		ValuesFiles: []string{"prod.yaml", "missing.yaml", "./big.yaml"}, IgnoreMissing: true})
	got = contents(t, p.Data)
	if p.Version != "1.2.3+0123456789ab" || !strings.Contains(got["app/Chart.yaml"], "version: 1.2.3+0123456789ab") {
		t.Errorf("%s\n%s", p.Version, got["app/Chart.yaml"])
	}
	if got["app/values.yaml"] != "color: blue\nsize:\n  h: 2\n  w: 1\n" ||
		!slices.Equal(p.ValuesFiles, []string{"prod.yaml", "./big.yaml"}) {
		t.Errorf("%q %q", got["app/values.yaml"], p.ValuesFiles)
	}
}

func TestBuildTreeOfPackage(t *testing.T) {
	data := packaged(t, newChart("app", "1.2.3"))
	tree := artifact.FromMap(map[string]string{"app.tgz": string(data), "v.yaml": "a: b"})
	if p := build(t, tree, "app.tgz", Options{}); !bytes.Equal(p.Data, data) {
		t.Error("an unchanged package was packaged again")
	}
	p := build(t, tree, "app.tgz", Options{ValuesFiles: []string{"v.yaml"}})
	if got := contents(t, p.Data); got["app/values.yaml"] != "a: b\n" {
		t.Errorf("%q", got)
	}
	name, version, err := Describe(t.Context(), tree, "app.tgz", DefaultLimits)
	if name != "app" || version != "1.2.3" || err != nil {
		t.Error(name, version, err)
	}
}

func TestBuildTreeRefuses(t *testing.T) {
	tree := treeOf("app", map[string]string{
		"broken/Chart.yaml": "apiVersion: v2\nname: x\n", "out/Chart.yaml": chartYAML,
		"out/x":             "symlink:../../etc/passwd",
		"circle/Chart.yaml": chartYAML, "circle/again": "symlink:../circle", "text.tgz": "text", "bad.yaml": "a: [",
		"nothing/x":        "",
		"large/Chart.yaml": chartYAML, "large/x": strings.Repeat("x", 5<<20+1),
	})
	for _, test := range []struct {
		at, reason, want string
		o                Options
	}{
		{at: "../app", reason: "InvalidChartReference", want: "outside of the", o: Options{}},
		{at: "other", reason: "InvalidChartReference", want: "no chart found at 'other' in the source: stat " +
			"other: file does not exist. Correct spec.chart, or check that the source does not ignore the " +
			"path", o: Options{}},
		{at: "nothing", reason: "InvalidChartReference", want: "Chart.yaml", o: Options{}},
		{at: "broken", reason: "InvalidChartReference", want: "version", o: Options{}},
		{at: "out", reason: "InvalidChartReference", want: `symlink to "../../etc/passwd"`, o: Options{}},
		{at: "cycle", reason: "InvalidChartReference", want: "cycle", o: Options{}},
		{at: "large", reason: "InvalidChartReference", want: "exceeds 5242880 bytes", o: Options{}},
		{at: "text.tgz", reason: "InvalidChartReference", want: "not a packaged chart", o: Options{}},
		{at: "app", reason: "ValuesFilesError", want: "missing.yaml",
			o: Options{ValuesFiles: []string{"missing.yaml"}}},
		{at: "app", reason: "ValuesFilesError", want: "outside of the",
			o: Options{ValuesFiles: []string{"../x"}, IgnoreMissing: true}},
		{at: "app", reason: "ValuesFilesError", want: "did not find expected node content. Correct " +
			"spec.valuesFiles, or set spec.ignoreMissingValuesFiles to skip missing files",
			o: Options{ValuesFiles: []string{"bad.yaml"}}},
		{at: "app", reason: "ChartPackageError", want: "metadata", o: Options{Metadata: "a b"}},
	} {
		test.o.Limits = DefaultLimits
		_, err := BuildTree(t.Context(), tree, test.at, test.o)
		t.Run(test.at+" "+test.want, func(t *testing.T) { requireFault(t, err, test.reason, test.want) })
	}
	_, err := BuildTree(t.Context(), tree, "app", Options{Limits: Limits{File: 1 << 20, Chart: 10}})
	requireFault(t, err, "ChartPackageError", "exceeds 10 bytes")
	for _, at := range []string{"broken", "nothing", "../x", "text.tgz"} {
		_, _, err := Describe(t.Context(), tree, at, DefaultLimits)
		requireFault(t, err, "InvalidChartReference")
	}
}

func TestRepackage(t *testing.T) {
	data := packaged(t, newChart("app", "1.2.3", newChart("b", "1.0.0"), newChart("a", "1.0.0")))
	o := Offer{Name: "app", Version: "v1.2.3"}
	p, err := Repackage(t.Context(), o, data, Options{Limits: DefaultLimits})
	if err != nil || !bytes.Equal(p.Data, data) {
		t.Fatalf("an unchanged chart was packaged again: %v", err)
	}
	with := Options{Limits: DefaultLimits, ValuesFiles: []string{"values.yaml", "values-prod.yaml"}, Metadata: "2"}
	var before []byte
	for range 5 { // Helm's loader returns charts in random order
		p, err = Repackage(t.Context(), o, data, with)
		if err != nil || p.Version != "1.2.3+2" || before != nil && !bytes.Equal(before, p.Data) {
			t.Fatalf("%+v, %v", p, err)
		}
		before = p.Data
	}
	if got := contents(t, p.Data)["app/values.yaml"]; got != "color: red\nsize:\n  h: 2\n  w: 9\n" {
		t.Errorf("%q", got)
	}
	_, err = Repackage(t.Context(), Offer{Name: "other", Version: "1.2.3"}, data, with)
	requireFault(t, err, "ChartPullError", "returned chart 'app' 1.2.3 instead of chart 'other' 1.2.3. The index "+
		"of the repository is wrong: publish the chart again")
	_, err = Repackage(t.Context(), Offer{Name: "app", Version: "1.2.4"}, data, with)
	requireFault(t, err, "ChartPullError")
	_, err = Repackage(t.Context(), o, data, Options{Limits: DefaultLimits, ValuesFiles: []string{"../values.yaml"}})
	requireFault(t, err, "ValuesFilesError")
	_, err = Repackage(t.Context(), o, []byte("text"), with)
	requireFault(t, err, "ChartPullError", "not a packaged chart")
}

// dependent returns a Chart.yaml with dependencies.
func dependent(dependencies string) string { return chartYAML + "dependencies:\n" + dependencies }

func TestDependencies(t *testing.T) {
	s := newChartServer(t)
	s.Publish(newChart("remote", "1.0.0"), newChart("remote", "1.5.0"), newChart("remote", "2.0.0"))
	client := s.indexed(t)
	var asked []string
	repository := func(_ context.Context, url string) (Repository, error) {
		asked = append(asked, url)
		return client, nil
	}
	tree := treeOf("app", map[string]string{
		"app/Chart.yaml": dependent(`- {name: remote, version: 1.x, repository: "https://charts.example"}
- {name: local, version: ">=0.1", repository: "file://../lib/local"}
- {name: bundled, version: 3.x}
- {name: bundled, version: 3.x, alias: again}
- {name: ours, version: ">=1.0.0"}
`),
		"app/charts/bundled-3.1.0.tgz": string(packaged(t, newChart("bundled", "3.1.0"))),
		// outside of the range, but the only one available
		"app/charts/ours/Chart.yaml":  "apiVersion: v2\nname: ours\nversion: 1.0.0-dev\n",
		"app/charts/remote-0.9.0.tgz": string(packaged(t, newChart("remote", "0.9.0"))),
		"app/charts/extra/Chart.yaml": "apiVersion: v2\nname: extra\nversion: 0.0.1\n",
		"lib/local/Chart.yaml": "apiVersion: v2\nname: local\nversion: 0.2.0\ndependencies:\n" +
			"- {name: leaf, version: 1.0.0, repository: \"file://../leaf\"}\n",
		"lib/leaf/Chart.yaml": "apiVersion: v2\nname: leaf\nversion: 1.0.0\n",
	})
	p := build(t, tree, "app", Options{Repository: repository})
	var charts []string
	for name, text := range contents(t, p.Data) {
		if rest, ok := strings.CutSuffix(name, "/Chart.yaml"); ok {
			m := chart.Metadata{}
			if err := yaml.Unmarshal([]byte(text), &m); err != nil {
				t.Fatal(err)
			}
			charts = append(charts, rest+" "+m.Version)
		}
	}
	slices.Sort(charts)
	want := []string{"app 1.2.3", "app/charts/bundled 3.1.0", "app/charts/extra 0.0.1", "app/charts/local 0.2.0",
		"app/charts/local/charts/leaf 1.0.0", "app/charts/ours 1.0.0-dev", "app/charts/remote 1.5.0"}
	if diff := cmp.Diff(want, charts); diff != "" {
		t.Error(diff)
	}
	if asked[0] != "https://charts.example" {
		t.Errorf("requested %q", asked)
	}
}

// TestBuildTreeUsesTheLock uses a lock made by helm dependency update.
func TestBuildTreeUsesTheLock(t *testing.T) {
	s := newChartServer(t)
	s.Publish(newChart("remote", "1.0.0"))
	open := httptest.NewServer(http.FileServer(http.Dir(s.Dir)))
	defer open.Close()
	declared := fmt.Sprintf("- {name: remote, version: 1.x, repository: %q}\n"+
		"- {name: local, version: 0.x, repository: file://../local}\n", open.URL)
	lock := helmLock(t, map[string]string{"app/Chart.yaml": dependent(declared), "local/Chart.yaml": localYAML})

	s.Publish(newChart("remote", "1.5.0")) // newer than the lock
	client := s.indexed(t)
	o := Options{Limits: DefaultLimits, Repository: func(context.Context, string) (Repository,
		error) {
		return client, nil
	}}
	files := map[string]string{"app/Chart.yaml": dependent(declared), "app/Chart.lock": lock,
		"local/Chart.yaml": localYAML}
	version := func(files map[string]string, of string) string {
		t.Helper()
		p, err := BuildTree(t.Context(), treeOf("app", files), "app", o)
		if err != nil {
			t.Fatal(err)
		}
		_, v, _ := strings.Cut(contents(t, p.Data)["app/charts/"+of+"/Chart.yaml"], "version: ")
		v, _, _ = strings.Cut(v, "\n")
		return v
	}
	if got := version(files, "remote"); got != "1.0.0" {
		t.Errorf("the locked version was not used: %s", got)
	}
	files["app/charts/remote-1.5.0.tgz"] = string(packaged(t, newChart("remote", "1.5.0")))
	if got := version(files, "remote"); got != "1.5.0" {
		t.Errorf("a chart in charts/ was replaced by version %s", got)
	}
	delete(files, "app/charts/remote-1.5.0.tgz")

	// A lock that is older than the declarations applies to the dependencies that it contains.
	s.Publish(newChart("remote", "2.0.0"), newChart("more", "1.0.0"))
	client = s.indexed(t)
	files["app/Chart.yaml"] = strings.ReplaceAll(dependent(declared), "1.x", "2.x")
	if got := version(files, "remote"); got != "2.0.0" {
		t.Errorf("another range: %s", got)
	}
	files["app/Chart.yaml"] = dependent(strings.ReplaceAll(declared, "1.x", "1.x, condition: remote.enabled") +
		"- {name: more, version: 1.x, repository: \"https://charts.example\"}\n")
	if remote, more := version(files, "remote"), version(files, "more"); remote != "1.0.0" || more != "1.0.0" {
		t.Errorf("another chart and a condition: %s and %s", remote, more)
	}
}

const localYAML = "apiVersion: v2\nname: local\nversion: 0.1.0\n"

// helmLock returns the lock that Helm makes for the chart in app.
func helmLock(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		full := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o700),
			os.WriteFile(full, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HELM_CACHE_HOME", filepath.Join(dir, "cache"))
	m := downloader.Manager{
		Out: io.Discard, ChartPath: filepath.Join(dir, "app"), Getters: getter.Getters(),
		RepositoryConfig: filepath.Join(dir, "repositories.yaml"), RepositoryCache: filepath.Join(dir, "cache"),
		ContentCache: filepath.Join(dir, "content"),
	}
	if err := m.Update(); err != nil {
		t.Fatal(err)
	}
	lock, err := os.ReadFile(filepath.Join(dir, "app", "Chart.lock"))
	if err != nil {
		t.Fatal(err)
	}
	return string(lock)
}

func TestBuildTreeRefusesDependencies(t *testing.T) {
	s := newChartServer(t)
	s.Publish(newChart("remote", "1.0.0"))
	client := s.indexed(t)
	none := errors.New("no such repository")
	o := Options{Limits: DefaultLimits, Repository: func(_ context.Context, url string) (Repository, error) {
		if strings.Contains(url, "other") {
			return nil, none
		}
		return client, nil
	}}
	lib := map[string]string{
		"lib/a/Chart.yaml": "apiVersion: v2\nname: a\nversion: 1.0.0\ndependencies:\n" +
			"- {name: b, repository: \"file://../b\"}\n",
		"lib/b/Chart.yaml": "apiVersion: v2\nname: b\nversion: 1.0.0\ndependencies:\n" +
			"- {name: a, repository: \"file://../a\"}\n",
	}
	for dependency, want := range map[string]string{
		`{name: remote, version: 2.x, repository: "https://h"}`: `matches "2.x" in ` + fault.RedactURL(client.URL) +
			". Correct the dependency in Chart.yaml, or publish the version",
		`{name: remote, version: "x y", repository: "https://h"}`:   "neither a version nor a range",
		`{name: remote, version: 1.x, repository: "https://other"}`: "no such repository",
		`{name: remote, version: 1.x}`:                              "not in charts/",
		`{name: a, version: 1.x, repository: "file://../../etc"}`:   "outside of the",
		`{name: a, version: 1.x, repository: "file:///etc"}`:        "outside of the",
		`{name: a, version: 1.x, repository: "file://../lib/a"}`:    "form a cycle",
		`{name: a, version: 1.x, repository: "file://../lib/nope"}`: "not exist",
		`{name: a, version: 1.x, repository: "@team"}`: "is not a URL with file://, http://, " +
			"https:// or oci://. Names of repositories are local to a helm client: use the URL",
		`{name: a, version: 1.x, repository: "git://u:s3cret@h/x"}`:   "is not a URL",
		`{name: other, version: 1.x, repository: "file://../app"}`:    "form a cycle",
		`{name: remote, version: 1.x, repository: "file://../alone"}`: "the chart at 'alone' has the name 'alone'",
		`{name: alone, version: 2.x, repository: "file://../alone"}`:  "the available version 1.0.0",
	} {
		files := map[string]string{"app/Chart.yaml": dependent("- " + dependency + "\n"),
			"alone/Chart.yaml": "apiVersion: v2\nname: alone\nversion: 1.0.0\n"}
		for name, text := range lib {
			files[name] = text
		}
		_, err := BuildTree(t.Context(), treeOf("app", files), "app", o)
		t.Run(dependency, func(t *testing.T) { requireFault(t, err, "DependencyBuildError", want) })
	}
}

// TestValuesFilesStayInTheSource has the class of CVE-2022-24348: values files that lead out of the source of a chart.
func TestValuesFilesStayInTheSource(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "s3cret.yaml")
	if err := os.WriteFile(secret, []byte("password: s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := strings.Repeat("../", 20) + secret[1:]
	tree := treeOf("app", map[string]string{"link.yaml": "symlink:" + secret, "up.yaml": "symlink:" + up})
	for _, file := range []string{secret, up, "./" + up, "app/../" + up, "link.yaml", "up.yaml", "file://" + secret,
		`..\` + secret, "/proc/self/environ"} {
		for _, ignore := range []bool{false, true} {
			p, err := BuildTree(t.Context(), tree, "app",
				Options{Limits: DefaultLimits, ValuesFiles: []string{file}, IgnoreMissing: ignore})
			if err != nil {
				if strings.Contains(err.Error(), "password") {
					t.Errorf("%s: the error has the content: %v", file, err)
				}
				continue
			}
			for name, content := range contents(t, p.Data) {
				if strings.Contains(content, "s3cret") {
					t.Errorf("%s: %s has the content", file, name)
				}
			}
			if !ignore {
				t.Errorf("%s: a file that is not in the source is not missed", file)
			}
		}
	}
}
