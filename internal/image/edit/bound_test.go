package edit

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	yaml "go.yaml.in/yaml/v3"
)

func every(n *yaml.Node, all []*yaml.Node) []*yaml.Node {
	all = append(all, n)
	for _, c := range n.Content {
		all = every(c, all)
	}
	return all
}

const workloads = `# of the team
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: prod
spec:
  template:
    spec:
      initContainers:
      - {name: migrate, image: "ghcr.io/org/web:1.0.0"}   # flow
      containers:
      - name: main
        image: ghcr.io/org/web:1.0.0 # keep me
      - name: proxy
        image: 'envoy:1'
---
apiVersion: v1
kind: List
items:
- apiVersion: batch/v1
  kind: CronJob
  metadata: {name: web, namespace: prod}
  spec: {jobTemplate: {spec: {template: {spec: {containers: [{name: main, image: ghcr.io/org/web}]}}}}}
- apiVersion: apps/v1
  kind: Deployment
  metadata:
    name: web
    namespace: staging
  spec: {template: {spec: {containers: [{name: main, image: "ghcr.io/org/web:1.0.0"}]}}}
`

func TestBoundSetsContainers(t *testing.T) {
	web := Ref{Name: "ghcr.io/org/web", Tag: "2.0.0"}
	for name, c := range map[string]struct {
		image    Ref
		workload Workload
		replace  []string // old, new, in order of the file
		found    bool
	}{
		"container": {image: web, workload: Workload{Kind: "Deployment", Name: "web", Namespace: "prod",
			Container: "main"},
			replace: []string{"image: ghcr.io/org/web:1.0.0 #", "image: ghcr.io/org/web:2.0.0 #"}, found: true},
		"init container": {image: web, workload: Workload{Kind: "Deployment", Name: "web", Namespace: "prod",
			Container: "migrate"}, replace: []string{`"ghcr.io/org/web:1.0.0"}   #`, `"ghcr.io/org/web:2.0.0"}   #`},
			found: true},
		"all containers with the image": {image: web,
			workload: Workload{Kind: "Deployment", Name: "web", Namespace: "prod"},
			replace: []string{`"ghcr.io/org/web:1.0.0"}   #`, `"ghcr.io/org/web:2.0.0"}   #`,
				"image: ghcr.io/org/web:1.0.0 #",
				"image: ghcr.io/org/web:2.0.0 #"}, found: true},
		"in a list": {image: web, workload: Workload{Kind: "Deployment", Name: "web", Namespace: "staging"},
			replace: []string{`main, image: "ghcr.io/org/web:1.0.0"`, `main, image: "ghcr.io/org/web:2.0.0"`},
			found:   true},
		"CronJob": {image: web, workload: Workload{Kind: "CronJob", Name: "web", Container: "main"},
			replace: []string{"image: ghcr.io/org/web}", "image: ghcr.io/org/web:2.0.0}"}, found: true},
		"image with a new name": {image: Ref{Name: "quay.io/org/web", Tag: "2"},
			workload: Workload{Kind: "Deployment", Name: "web", Namespace: "prod", Container: "main"},
			replace:  []string{"image: ghcr.io/org/web:1.0.0 #", "image: quay.io/org/web:2 #"}, found: true},
		"short name of Docker Hub": {image: Ref{Name: "docker.io/library/envoy", Tag: "2"},
			workload: Workload{Kind: "Deployment", Name: "web", Namespace: "prod", Container: "proxy"},
			replace:  []string{"'envoy:1'", "'envoy:2'"}, found: true},
		"placeholder": {image: Ref{Name: "quay.io/org/web", Tag: "2"},
			workload: Workload{Kind: "CronJob", Name: "web", Namespace: "prod", Container: "main"}, found: true},
		"another namespace": {image: web, workload: Workload{Kind: "Deployment", Name: "web", Namespace: "other"}},
		"another name":      {image: web, workload: Workload{Kind: "Deployment", Name: "w"}},
		"unknown container": {image: web, workload: Workload{Kind: "Deployment", Name: "web", Namespace: "prod",
			Container: "sidecar"}},
		"no container has the image": {image: Ref{Name: "quay.io/x", Tag: "1"},
			workload: Workload{Kind: "Deployment", Name: "web", Namespace: "prod"}},
		"invalid image": {image: Ref{Name: "x y", Tag: "1"},
			workload: Workload{Kind: "Deployment", Name: "web", Namespace: "prod"}, found: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := Bound("apps/web.yaml", []byte(workloads),
				[]Binding{{Policy: "apps:web", Image: c.image, Workload: &c.workload}})
			want := workloads
			for i := 0; i < len(c.replace); i += 2 {
				want = strings.Replace(want, c.replace[i], c.replace[i+1], 1)
			}
			if diff := cmp.Diff(want, string(got.Content)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (len(got.Found) == 1) != c.found {
				t.Errorf("found: %v", got.Found)
			}
		})
	}
}

func TestBoundSetsKustomizationOverrides(t *testing.T) {
	pinned := Ref{Name: "ghcr.io/org/web", Tag: "2.0.0", Digest: digest}
	for name, c := range map[string]struct {
		in, want string
		problems int
	}{
		"tag": {in: "images:\n- name: ghcr.io/org/web\n  newTag: 1.0.0 # now\n- name: other\n" +
			"  newTag: '1'\n", want: "images:\n- name: ghcr.io/org/web\n  newTag: 2.0.0 # now\n- name: other\n" +
			"  newTag: '1'\n"},
		"override with newName": {in: "images: [{name: web, newName: ghcr.io/org/web, newTag: '1'}]",
			want: "images: [{name: web, newName: ghcr.io/org/web, newTag: '2.0.0'}]"},
		"replaced by another image": {in: "images: [{name: ghcr.io/org/web, newName: other, newTag: '1'}]",
			want: "images: [{name: ghcr.io/org/web, newName: other, newTag: '1'}]"},
		"digest": {in: "images:\n- name: ghcr.io/org/web\n  digest: sha256:1\n",
			want: "images:\n- name: ghcr.io/org/web\n  digest: " + digest + "\n"},
		"same namespace": {in: "namespace: prod\nimages: [{name: ghcr.io/org/web, newTag: '1'}]",
			want: "namespace: prod\nimages: [{name: ghcr.io/org/web, newTag: '2.0.0'}]"},
		"another namespace": {in: "namespace: staging\nimages: [{name: ghcr.io/org/web, newTag: '1'}]",
			want: "namespace: staging\nimages: [{name: ghcr.io/org/web, newTag: '1'}]"},
		"no tag and no digest": {in: "images: [{name: ghcr.io/org/web, newName: ghcr.io/org/web}]",
			want: "images: [{name: ghcr.io/org/web, newName: ghcr.io/org/web}]"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Bound("overlays/prod/kustomization.yaml", []byte(c.in),
				[]Binding{{Policy: "apps:web", Image: pinned,
					Workload: &Workload{Kind: "Deployment", Name: "web", Namespace: "prod"}}})
			if string(got.Content) != c.want || len(got.Problems) != c.problems {
				t.Errorf("got\n%s\nwant\n%s\nproblems %v", got.Content, c.want, got.Problems)
			}
		})
	}
	got := Bound("kustomization.yaml", []byte("images:\n- name: ghcr.io/org/web\n  newTag: '1'\n  digest: sha256:1\n"),
		[]Binding{{Policy: "apps:web", Image: Ref{Name: "ghcr.io/org/web", Tag: "2"},
			Workload: &Workload{Kind: "Deployment", Name: "web"}}})
	if len(got.Changes) > 0 || len(got.Problems) != 1 || got.Problems[0].Line != 4 {
		t.Errorf("pinned digest without a new one: changes %v, problems %v", got.Changes, got.Problems)
	}
}

func TestBoundSetsHelmValues(t *testing.T) {
	in := `# values
app:
  image: &image "ghcr.io/org/web:1.0.0"
split:
  registry: quay.io
  repository: org/web   # without the registry
  tag: 1.9
  digest:
list:
- image: {name: a, tag: b}
alias: *image
`
	pinned := Ref{Name: "ghcr.io/team/web", Tag: "1.10", Digest: digest}
	for name, c := range map[string]struct {
		values   Values
		replace  []string
		problems int
	}{
		"full reference": {values: Values{Path: "app.image"},
			replace: []string{"ghcr.io/org/web:1.0.0", pinned.String()}},
		"all parts": {values: Values{Registry: "split.registry", Repository: "split.repository", Tag: "split.tag",
			Digest: "split.digest"}, replace: []string{"quay.io", "ghcr.io", "org/web   #", "team/web   #", "1.9",
			`"1.10"`,
			"digest:\n", "digest: " + digest + "\n"}},
		"repository only": {values: Values{Repository: "split.repository"},
			replace: []string{"repository: org/web ", "repository: ghcr.io/team/web "}},
		"in a list": {values: Values{Tag: "list.0.image.tag"}, replace: []string{"tag: b", `tag: "1.10"`}},
		"missing path": {values: Values{Path: "app.none", Tag: "split.tag"}, replace: []string{"1.9", `"1.10"`},
			problems: 1},
		"path of a mapping": {values: Values{Path: "split"}, problems: 1},
		"alias":             {values: Values{Path: "alias"}, problems: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c.values.File = "charts/values.yaml"
			got := Bound("charts/values.yaml", []byte(in),
				[]Binding{{Policy: "apps:web", Image: pinned, Values: &c.values}})
			want := in
			for i := 0; i < len(c.replace); i += 2 {
				want = strings.Replace(want, c.replace[i], c.replace[i+1], 1)
			}
			if diff := cmp.Diff(want, string(got.Content)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if len(got.Problems) != c.problems || len(got.Found) != 1 {
				t.Errorf("problems %v, found %v", got.Problems, got.Found)
			}
			if elsewhere := Bound("other/values.yaml", []byte(in),
				[]Binding{{Policy: "apps:web", Image: pinned, Values: &c.values}}); len(elsewhere.Changes) > 0 {
				t.Errorf("changes of another file: %v", elsewhere.Changes)
			}
		})
	}
}

func TestTwoPoliciesOfOneContainerAreReported(t *testing.T) {
	w := &Workload{Kind: "Deployment", Name: "web", Namespace: "prod", Container: "main"}
	got := Bound("a.yaml", []byte(workloads), []Binding{
		{Policy: "apps:web", Image: Ref{Name: "ghcr.io/org/web", Tag: "2"}, Workload: w},
		{Policy: "apps:other", Image: Ref{Name: "ghcr.io/org/web", Tag: "3"}, Workload: w},
	})
	if len(got.Changes) != 1 || got.Changes[0].Policy != "apps:web" || len(got.Problems) != 1 {
		t.Errorf("changes %v, problems %v", got.Changes, got.Problems)
	}
}

func FuzzBound(f *testing.F) {
	for _, seed := range []string{workloads, "images: [{name: ghcr.io/org/web, newTag: '1', digest: x}]",
		"app: {image: &a b, tag: *a}\n---\n", "kind: List\nitems: [{kind: List, items: []}]"} {
		f.Add([]byte(seed), "a.yaml")
		f.Add([]byte(seed), "kustomization.yaml")
	}
	image := Ref{Name: "ghcr.io/org/web", Tag: "2.0.0", Digest: digest}
	f.Fuzz(func(t *testing.T, in []byte, file string) {
		got := Bound(file, in, []Binding{
			{Policy: "apps:web", Image: image, Workload: &Workload{Kind: "Deployment", Name: "web"}},
			{Policy: "apps:web", Image: image,
				Values: &Values{File: file, Path: "app.image", Tag: "app.tag", Registry: "app.0", Repository: "app.r"}},
		})
		if len(got.Changes) == 0 {
			if string(got.Content) != string(in) {
				t.Fatal("the file changed without a reported change")
			}
			return
		}
		original, err := parse(in)
		if err != nil {
			t.Fatalf("invalid YAML was changed: %v", err)
		}
		edited, err := parse(got.Content)
		if err != nil || len(flat(original)) != len(flat(edited)) {
			t.Fatalf("%q became %q: %v", in, got.Content, err)
		}
	})
}

func TestParseRef(t *testing.T) {
	for in, want := range map[string]Ref{
		"nginx":                         {Name: "nginx"},
		"nginx:1":                       {Name: "nginx", Tag: "1"},
		"host:5000/nginx":               {Name: "host:5000/nginx"},
		"host:5000/a/nginx:1@" + digest: {Name: "host:5000/a/nginx", Tag: "1", Digest: digest},
		"nginx@" + digest:               {Name: "nginx", Digest: digest},
	} {
		if got := ParseRef(in); got != want || got.String() != in {
			t.Errorf("ParseRef(%q) = %+v", in, got)
		}
	}
	if canonical("nginx") != canonical("index.docker.io/library/nginx") ||
		canonical("org/nginx") == canonical("ghcr.io/org/nginx") {
		t.Error("canonical does not distinguish images correctly")
	}
}
