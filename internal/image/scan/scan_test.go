package scan

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func marker(policy string) string { return fmt.Sprintf(`# {"$imagepolicy": "apps:%s"}`, policy) }

// repository is a git repository with a mirror.
type repository struct {
	*testing.T
	git  *testenv.Git
	view *git.View
}

func newRepository(t *testing.T) *repository {
	return &repository{T: t, git: testenv.NewGit(t), view: git.NewMirrors(t.TempDir()).View("owner")}
}

// scan scans the head of branch main.
func (r *repository) scan(s *Scanner, dir string, plan Plan) (Result, *git.Files, error) {
	r.Helper()
	rev, err := r.view.Update(r.Context(), git.Remote{URL: r.git.URL + "/app"}, git.Reference{Branch: "main"}, true)
	if err != nil {
		r.Fatal(err)
	}
	files, err := r.view.Files(plumbing.NewHash(rev.Commit))
	if err != nil {
		r.Fatal(err)
	}
	result, err := s.Scan(context.Background(), files, files.Root, dir, plan)
	return result, files, err
}

func plan(images map[string]string, bindings ...edit.Binding) Plan {
	p := Plan{Images: map[string]edit.Ref{}, Bindings: bindings}
	for policy, image := range images {
		p.Images["apps:"+policy] = edit.ParseRef(image)
	}
	return p
}

func edited(r Result) map[string]string {
	files := map[string]string{}
	for _, e := range r.Edits {
		files[e.Path] = string(e.Content)
	}
	return files
}

func TestScanReadsOnlyChangedFiles(t *testing.T) {
	r, s := newRepository(t), &Scanner{}
	files := map[string]string{"README.md": marker("web"), "link.yaml": testenv.Symlink("apps/web.yaml")}
	for i := range 40 {
		files[fmt.Sprintf("apps/team%d/config%d.yaml", i%4, i)] = fmt.Sprintf("a: %d\n", i)
	}
	files["apps/web.yaml"] = "image: web:1 " + marker("web") + "\n"
	files["infra/deep/api.yml"] = "image: api:1 " + marker("api") + "\nbroken: x # {\"$imagepolicy\": oops}\n"
	r.git.Commit("app", files)
	at := map[string]string{"web": "web:1", "api": "api:1"}

	for _, step := range []struct {
		name     string
		prepare  func()
		maxReads int
		want     map[string]string
	}{
		{name: "first scan", prepare: func() {}, maxReads: 60, want: map[string]string{}},
		{name: "nothing changed", prepare: func() {}, want: map[string]string{}},
		{name: "file changed", prepare: func() {
			r.git.Commit("app",
				map[string]string{"apps/team1/config1.yaml": "a: x"})
		}, maxReads: 4,
			want: map[string]string{}},
		{name: "image changed", prepare: func() { at["web"] = "web:2" }, maxReads: 3,
			want: map[string]string{"apps/web.yaml": "image: web:2 " + marker("web") + "\n"}},
		{name: "change is not committed", prepare: func() {}, maxReads: 3,
			want: map[string]string{"apps/web.yaml": "image: web:2 " + marker("web") + "\n"}},
		{name: "change is committed", prepare: func() {
			r.git.Commit("app", map[string]string{"apps/web.yaml": "image: web:2 " + marker("web") + "\n"})
		}, maxReads: 3, want: map[string]string{}},
		{name: "another image changed", prepare: func() { at["api"] = "api:2" }, maxReads: 5,
			want: map[string]string{"infra/deep/api.yml": strings.Replace(files["infra/deep/api.yml"], "api:1",
				"api:2", 1)}},
	} {
		step.prepare()
		before := s.Read
		result, _, err := r.scan(s, "./", plan(at))
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff(step.want, edited(result)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if got := s.Read - before; got > step.maxReads {
			t.Errorf("%s: read %d files and directories, want %d at most", step.name, got, step.maxReads)
		}
		if len(result.Problems) != 1 || !strings.HasPrefix(result.Problems[0].String(),
			"infra/deep/api.yml:2: malformed") {
			t.Errorf("%s: problems %v", step.name, result.Problems)
		}
	}
}

func TestScanIsLimitedToPath(t *testing.T) {
	r := newRepository(t)
	file := "image: web:1 " + marker("web") + "\n"
	r.git.Commit("app", map[string]string{"clusters/prod/a.yaml": file, "clusters/staging/a.yaml": file,
		"clusters/a.yaml": file})
	want := map[string]string{"clusters/prod/a.yaml": strings.Replace(file, ":1", ":2", 1)}
	for _, dir := range []string{"clusters/prod", "./clusters/prod/", "/clusters/../clusters/prod"} {
		result, _, err := r.scan(&Scanner{}, dir, plan(map[string]string{"web": "web:2"}))
		if diff := cmp.Diff(want, edited(result)); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", dir, err, diff)
		}
	}
	for _, dir := range []string{"clusters/none", "clusters/a.yaml", "../../etc"} {
		if _, _, err := r.scan(&Scanner{}, dir, plan(nil)); err == nil {
			t.Errorf("%s: no error", dir)
		}
	}
}

func TestScanFindsBoundPlaces(t *testing.T) {
	r, s := newRepository(t), &Scanner{}
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
		"spec: {template: {spec: {containers: [{name: web, image: \"web:1\"}]}}}\n"
	values := "image:\n  tag: '1'\n"
	r.git.Commit("app", map[string]string{"base/web.yaml": deployment, "base/web.yaml.txt": deployment,
		"charts/a/values.yaml": values, "charts/b/values.yaml": values})
	bindings := []edit.Binding{
		{Policy: "apps:web", Image: edit.ParseRef("web:2"), Workload: &edit.Workload{Kind: "Deployment", Name: "web"}},
		{Policy: "apps:web", Image: edit.ParseRef("web:2"),
			Values: &edit.Values{File: "./charts/a/values.yaml", Tag: "image.tag"}},
		{Policy: "apps:web", Image: edit.ParseRef("web:2"), Workload: &edit.Workload{Kind: "Deployment", Name: "api"}},
	}
	want := map[string]string{"base/web.yaml": strings.Replace(deployment, "web:1", "web:2", 1),
		"charts/a/values.yaml": strings.Replace(values, "1", "2", 1)}
	for range 2 {
		result, _, err := r.scan(s, "", plan(map[string]string{"web": "web:2"}, bindings...))
		if diff := cmp.Diff(want, edited(result)); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if diff := cmp.Diff([]int{2}, result.Missing); diff != "" {
			t.Errorf("missing (-want +got):\n%s", diff)
		}
	}
	r.git.Commit("app", want)
	for range 2 {
		result, _, err := r.scan(s, "", plan(map[string]string{"web": "web:2"}, bindings...))
		if err != nil || len(result.Edits) > 0 || len(result.Missing) != 1 {
			t.Errorf("%v: %v, missing %v", err, edited(result), result.Missing)
		}
	}
}

func TestOnlyReturnsChangesOfOnePolicy(t *testing.T) {
	r := newRepository(t)
	both := "a: web:1 " + marker("web") + "\nb: api:1 " + marker("api") + "\n"
	r.git.Commit("app", map[string]string{"both.yaml": both, "api.yaml": "b: api:1 " + marker("api") + "\n"})
	p := plan(map[string]string{"web": "web:2", "api": "api:2"})
	result, files, err := r.scan(&Scanner{}, "", p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"apps:api", "apps:web"}, Policies(result.Changes)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	only, err := result.Only(t.Context(), files, p, "apps:web")
	if diff := cmp.Diff(map[string]string{"both.yaml": strings.Replace(both, "web:1", "web:2", 1)},
		edited(only)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
