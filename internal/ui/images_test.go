package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// deployment creates a Deployment with an image.
func (s *site) deployment(name, image string) {
	s.Helper()
	labels := map[string]string{"app": name}
	s.create(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}}}}})
}

// policy creates an ImagePolicy that selected a tag.
func (s *site) policy(name, image, tag string) {
	s.Helper()
	p := &imagev1.ImagePolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: imagev1.ImagePolicySpec{
		ImageRepositoryRef: meta.NamespacedName{Name: name},
		Policy:             imagev1.ImagePolicyChoice{SemVer: &imagev1.SemVerPolicy{Range: ">=1"}}}}
	s.create(p)
	p.Status.LatestRef = &imagev1.ImageRef{Name: image, Tag: tag}
	if err := s.client.Status().Update(s.Context(), p); err != nil {
		s.Fatal(err)
	}
}

func TestImagesSayWhatRunsAndWhatIsNewer(t *testing.T) {
	s := newSite(t, everyone)
	s.deployment("old", "registry.example/old:1.0.0")
	s.deployment("current", "registry.example/current:2.0.0")
	s.deployment("unmanaged", "registry.example/unmanaged:3.0.0")
	s.policy("old", "registry.example/old", "1.1.0")
	s.policy("current", "registry.example/current", "2.0.0")
	list := "/api/v1/images?namespace=" + s.namespace
	var got []string
	for after := ""; ; {
		p := read[imagePage](s, list+"&limit=2&after="+after)
		if p.Total != 3 || p.Newer != 1 {
			t.Errorf("%d containers, %d outdated", p.Total, p.Newer)
		}
		for _, i := range p.Images {
			got = append(got, fmt.Sprint(i.Container, " ", i.Image, " ", i.Runs, " ", i.IsNewer, " ", i.Release))
		}
		if after = p.Next; after == "" {
			break
		}
	}
	want := []string{"main registry.example/old 1.0.0 true registry.example/old:1.1.0",
		"main registry.example/current 2.0.0 false registry.example/current:2.0.0",
		"main registry.example/unmanaged 3.0.0 false "}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the images are %q", got)
	}
	if p := read[imagePage](s, list+"&newer=true&q=OLD:1.0.0"); p.Total != 1 || p.Images[0].Policy !=
		"ImagePolicy/"+s.namespace+"/old" {
		t.Errorf("a search finds %+v", p)
	}
	if p := read[imagePage](s, list+"&q=nothing"); p.Total != 0 {
		t.Errorf("a search for nothing finds %+v", p)
	}
	for _, wrong := range []string{"limit=0", "after=x", "after=-1"} {
		if status, body := s.request(http.MethodGet, list+"&"+wrong, ""); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", wrong, status, body)
		}
	}
}

func TestReleaseCreatesAJobInTheNameOfTheUser(t *testing.T) {
	s := newSite(t, everyone)
	s.login.user.Name = "ada@example.com"
	automation := "ImageUpdateAutomation/" + s.namespace + "/apps"
	body := func(change func(*releaseOrder)) string {
		o := releaseOrder{Automation: automation, Workloads: []string{"Deployment/prod/web"}, Container: "main",
			Images: []string{"registry.example/web:1.1.0"}, Reason: " fixes the login ", DryRun: true}
		change(&o)
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, change := range map[string]func(*releaseOrder){
		"no automation": func(o *releaseOrder) { o.Automation = "" },
		"other kind":    func(o *releaseOrder) { o.Automation = "Gate/a/b" },
		"no image":      func(o *releaseOrder) { o.Images = nil },
		"no tag":        func(o *releaseOrder) { o.Images = []string{"registry.example/web"} },
		"no workload":   func(o *releaseOrder) { o.Workloads = []string{"Secret/a/b"} },
		"author":        func(o *releaseOrder) { o.Author = "Ada" },
		"reason":        func(o *releaseOrder) { o.Reason = strings.Repeat("x", maxReason+1) },
		"many images":   func(o *releaseOrder) { o.Images = make([]string, maxReleased+1) },
	} {
		status, answer := s.request(http.MethodPost, "/api/v1/releases", body(change))
		if status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	status, answer := s.request(http.MethodPost, "/api/v1/releases", body(func(*releaseOrder) {}))
	var made struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(answer), &made); err != nil || status != http.StatusOK {
		t.Fatalf("release: %d %s", status, answer)
	}
	job := &imagev1alpha1.ImageUpdateJob{}
	key := client.ObjectKey{Namespace: s.namespace, Name: strings.TrimPrefix(made.ID,
		"ImageUpdateJob/"+s.namespace+"/")}
	if err := s.client.Get(t.Context(), key, job); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(job.Name, "release-web-") || job.Annotations[requestedBy] != "ada@example.com" ||
		job.Spec.Author != "ada <ada@example.com>" || job.Spec.Reason != "fixes the login" || !job.Spec.DryRun ||
		job.Spec.AutomationRef.Name != "apps" || len(job.Spec.Workloads) != 1 ||
		job.Spec.Workloads[0] != (imagev1.WorkloadContainer{Kind: "Deployment", Name: "web", Container: "main"}) {
		t.Errorf("the job is %+v %+v", job.ObjectMeta, job.Spec)
	}
	job.Status.Diff = "+ image: registry.example/web:1.1.0"
	job.Status.CompletionTime = &meta.Time{Time: time.Now()}
	if err := s.client.Status().Update(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the page of the job shows the change", func() error {
		if d := read[detail](s, "/api/v1/objects/"+made.ID); d.Diff != job.Status.Diff {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
}
