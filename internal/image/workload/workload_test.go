package workload

import (
	"testing"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/edit"
)

func TestParseRef(t *testing.T) {
	for text, want := range map[string]Ref{
		"web": {Kind: "Deployment", Name: "web"}, "STS/db": {Kind: "StatefulSet", Name: "db"},
		"cronjob/clean": {Kind: "CronJob", Name: "clean"}, "Service/web": {}, "deploy/": {},
	} {
		got, err := ParseRef(text)
		if got != want || (err != nil) != (want == Ref{}) {
			t.Errorf("%q gives %+v (%v), want %+v", text, got, err, want)
		}
	}
}

func TestRefMatches(t *testing.T) {
	ref := Ref{Kind: "Deployment", Name: "web"}
	for object, want := range map[string]bool{
		"Deployment/apps/web": true, "Deployment/web": true, "StatefulSet/apps/web": false,
		"Deployment/apps/my-web": false,
	} {
		if got := ref.Matches(object); got != want {
			t.Errorf("%s matches: %t, want %t", object, got, want)
		}
	}
	if !(Ref{}).Matches("anything") {
		t.Error("the zero Ref does not match all workloads")
	}
}

func TestIsCurrent(t *testing.T) {
	policy := &imagev1.ImagePolicy{}
	policy.Status.LatestRef = &imagev1.ImageRef{Name: "nginx", Tag: "1.1", Digest: "sha256:1"}
	for image, want := range map[string]bool{
		"nginx:1.1": true, "docker.io/library/nginx:1.1": true, "nginx:1.0": false, "nginx:1.1@sha256:1": true,
		"nginx:1.1@sha256:2": false,
	} {
		if got := (Image{Ref: edit.ParseRef(image), Policy: policy}).IsCurrent(); got != want {
			t.Errorf("%s is current: %t, want %t", image, got, want)
		}
	}
}

func TestCanonicalName(t *testing.T) {
	for name, want := range map[string]string{
		"nginx": "index.docker.io/library/nginx", "docker.io/library/nginx": "index.docker.io/library/nginx",
		"ghcr.io/org/app": "ghcr.io/org/app", "not a name": "not a name",
	} {
		if got := canonicalName(name); got != want {
			t.Errorf("%s becomes %s, want %s", name, got, want)
		}
	}
}
