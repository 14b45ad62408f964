package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
)

// workload returns a Deployment with containers c0, c1 and so on.
func workload(name string, images []string, annotations ...string) Workload {
	w := Workload{Owner: metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name,
		UID: types.UID("uid-" + name)}, Annotations: map[string]string{}}
	for i, image := range images {
		w.Pod.Containers = append(w.Pod.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: image})
	}
	for i := 0; i < len(annotations); i += 2 {
		w.Annotations[annotations[i]] = annotations[i+1]
	}
	return w
}

func TestRepositories(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("a", 64)
	web := workload("web", []string{"ghcr.io/Org/app", "nginx:1.27", "localhost:5000/a_b/c:v1" + digest, "nginx" +
		digest, "not an image"})
	web.Pod.InitContainers = []corev1.Container{{Name: "init", Image: "ghcr.io/org/init:1"}}
	web.Pod.ServiceAccountName = "puller"
	other := workload("zz", []string{"nginx:1.28", "ghcr.io/org/theirs:1"})
	other.Pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "login"}, {Name: "second"}}
	p := New("apps", time.Minute, map[string]string{"ghcr.io/org/theirs": "by-hand"}, []Workload{other, web})
	var got []string
	for name, r := range p.Repositories {
		if name != r.Name || r.Namespace != "apps" || r.Labels[Discovered] != "true" ||
			r.Spec.Interval.Duration != time.Minute || len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Errorf("%s: %+v", name, r)
		}
		secret := ""
		if r.Spec.SecretRef != nil {
			secret = r.Spec.SecretRef.Name
		}
		got = append(got, r.Spec.Image+" secret="+secret+" account="+r.Spec.ServiceAccountName)
	}
	slices.Sort(got)
	want := []string{"ghcr.io/org/init secret= account=puller", "localhost:5000/a_b/c secret= account=puller",
		"nginx secret=login account="}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if len(p.Policies) != 0 {
		t.Errorf("unexpected policies %v", p.Policies)
	}
	if len(p.Problems) != 2 || p.Problems[0].Workload != "Deployment/web" ||
		!strings.Contains(p.Problems[0].Message, "c0") || !strings.Contains(p.Problems[1].Message, "c4") {
		t.Errorf("%+v", p.Problems)
	}
}

// TestNames checks that the names of repositories are unique and valid.
func TestNames(t *testing.T) {
	t.Parallel()
	images := []string{"a.b/c", "a/b.c", "a-b/c", "a/b/c", "a_b/c", "a/" + strings.Repeat("x", 240) + "/y", "a/" +
		strings.Repeat("x", 240) + "/z"}
	seen := map[string]string{}
	for _, image := range images {
		name := nameOf(image)
		if other := seen[name]; other != "" || len(validation.IsDNS1123Subdomain(name)) > 0 {
			t.Errorf("%s: %s, as %s", image, name, other)
		}
		seen[name] = image
	}
	for _, long := range []string{strings.Repeat("w", 253), strings.Repeat("w.", 126) + "w"} {
		p := New("apps", time.Minute, nil, []Workload{workload(long, []string{"app:1"}, "fluxcd.io/automated", "true")})
		for name := range p.Policies {
			if len(validation.IsDNS1123Subdomain(name)) > 0 {
				t.Errorf("%s", name)
			}
		}
		if len(p.Policies) != 1 {
			t.Errorf("%v", p.Policies)
		}
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	newest := "createdAt newest"
	for name, c := range map[string]struct {
		annotations []string
		want        []string // "name: order", with "automated"
		problem     string
	}{
		"automated": {annotations: []string{"fluxcd.io/automated", "true"},
			want: []string{"deployment.web.c0: " + newest + ` cel tag != "latest" automated`, "deployment.web.c1: " +
				newest +
				` cel tag != "latest" automated`}},
		"not automated": {annotations: []string{"fluxcd.io/automated", "false"}},
		"locked":        {annotations: []string{"fluxcd.io/automated", "true", "fluxcd.io/locked", "true"}},
		"filter without automation": {annotations: []string{"filter.fluxcd.io/c1", "semver:~1.0"},
			want: []string{"deployment.web.c1: semver ~1.0"}},
		"semver filter": {annotations: []string{"fluxcd.io/automated", "true", "filter.fluxcd.io/c0",
			"semver:>=1.0 <2.0"}, want: []string{"deployment.web.c0: semver >=1.0 <2.0 automated",
			"deployment.web.c1: " +
				newest + ` cel tag != "latest" automated`}},
		"glob filter": {annotations: []string{"filter.fluxcd.io/c0", "glob:dev-*.x+"},
			want: []string{"deployment.web.c0: " + newest + ` tags ^dev-.*\.x\+$`}},
		"glob without prefix": {annotations: []string{"filter.fluxcd.io/c0", "1.*"},
			want: []string{"deployment.web.c0: " + newest + ` tags ^1\..*$`}},
		"regex filter": {annotations: []string{"filter.fluxcd.io/c0", "regex:^stg.*"},
			want: []string{"deployment.web.c0: " + newest + ` tags ^stg.*`}},
		"regexp filter": {annotations: []string{"filter.fluxcd.io/c0", "regexp:^stg.*"},
			want: []string{"deployment.web.c0: " + newest + ` tags ^stg.*`}},
		"older annotation": {annotations: []string{"fluxcd.io/tag.c0", "semver:*"},
			want: []string{"deployment.web.c0: semver *"}},
		"newer annotation takes precedence": {annotations: []string{"fluxcd.io/tag.c0", "semver:*",
			"filter.fluxcd.io/c0",
			"semver:1.x"}, want: []string{"deployment.web.c0: semver 1.x"}},
		"unknown container": {annotations: []string{"filter.fluxcd.io/c9", "semver:*"}, problem: "no such container"},
		"invalid range": {annotations: []string{"fluxcd.io/automated", "true", "filter.fluxcd.io/c0", "semver:one"},
			want:    []string{"deployment.web.c1: " + newest + ` cel tag != "latest" automated`},
			problem: "filter.fluxcd.io/c0"},
		"invalid regex": {annotations: []string{"filter.fluxcd.io/c0", "regex:("},
			problem: "not a valid regular expression"},
	} {
		p := New("apps", time.Minute, nil, []Workload{workload("web", []string{"app:1", "side:1"}, c.annotations...)})
		var got []string
		for name, policy := range p.Policies {
			if policy.Name != name || policy.Annotations[Of] != "Deployment/web" ||
				policy.Annotations[Container] != name[strings.LastIndex(name, ".")+1:] ||
				len(policy.OwnerReferences) != 1 || policy.OwnerReferences[0].UID != "uid-web" ||
				p.Repositories[policy.Spec.ImageRepositoryRef.Name] == nil {
				t.Errorf("%s: %+v", name, policy)
			}
			got = append(got, name+": "+orderOf(policy))
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if c.problem == "" && len(p.Problems) > 0 ||
			c.problem != "" && (len(p.Problems) != 1 || !strings.Contains(p.Problems[0].Message, c.problem)) {
			t.Errorf("%s: %+v", name, p.Problems)
		}
	}
}

// orderOf describes the order of a policy.
func orderOf(p *imagev1.ImagePolicy) string {
	var words []string
	if s := p.Spec.Policy.SemVer; s != nil {
		words = append(words, "semver "+s.Range)
	}
	if c := p.Spec.Policy.CreatedAt; c != nil {
		words = append(words, "createdAt "+c.Order)
	}
	if c := p.Spec.Policy.CEL; c != nil {
		words = append(words, "cel "+c.Filter)
	}
	if f := p.Spec.FilterTags; f != nil {
		words = append(words, "tags "+f.Pattern)
	}
	if p.Labels[Automated] == "true" {
		words = append(words, "automated")
	}
	return strings.Join(words, " ")
}

func TestBounds(t *testing.T) {
	t.Parallel()
	var workloads []Workload
	for i := range 1100 {
		workloads = append(workloads, workload(fmt.Sprintf("w%d", i), []string{fmt.Sprintf("app%d:1", i)},
			"fluxcd.io/automated", "true"))
	}
	p := New("apps", time.Minute, nil, workloads)
	if len(p.Repositories) != maxRepositories || len(p.Policies) != maxRepositories || len(p.Problems) != 100 {
		t.Errorf("%d repositories, %d policies, %d problems", len(p.Repositories), len(p.Policies), len(p.Problems))
	}
	again := New("apps", time.Minute, nil, workloads)
	if !slices.Equal(slices.Sorted(maps.Keys(p.Repositories)), slices.Sorted(maps.Keys(again.Repositories))) {
		t.Error("the plan is not deterministic")
	}
}

// FuzzNew checks that the names and images of created objects are valid for any image and filter.
func FuzzNew(f *testing.F) {
	f.Add("ghcr.io/org/app:1.0", "semver:~1.0")
	f.Add("localhost:5000/a@sha256:"+strings.Repeat("a", 64), "glob:*")
	f.Add("nginx", "regex:(?P<ts>.*)")
	f.Fuzz(func(t *testing.T, image, filter string) {
		p := New("apps", time.Minute, nil, []Workload{workload("web", []string{image}, "fluxcd.io/automated", "true",
			"filter.fluxcd.io/c0", filter)})
		for name, r := range p.Repositories {
			if len(validation.IsDNS1123Subdomain(name)) > 0 || strings.ContainsAny(r.Spec.Image, "@ \n") {
				t.Fatalf("%q: %q, %q", image, name, r.Spec.Image)
			}
		}
		if len(p.Policies)+len(p.Problems) == 0 {
			t.Fatalf("%q, %q: neither a policy nor a problem", image, filter)
		}
	})
}
