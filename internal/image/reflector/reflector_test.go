package reflector_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestScanUpdatesPolicies(t *testing.T) {
	s := newImages(t)
	s.Push("app", time.Now(), "1.0.0", "1.1.0", "2.0.0-rc.1", "main-a1-100", "sha256-ab.sig")
	s.ImageRepository("app")
	r := s.Scanned("app", 4)
	if got := strings.Join(r.Status.LastScanResult.LatestTags, " "); got != "main-a1-100 2.0.0-rc.1 1.1.0 1.0.0" {
		t.Errorf("latest tags: %s", got)
	}
	if r.Status.CanonicalImageName != s.Registry.Host+"/app" || r.Status.LastScanResult.Revision == "" ||
		len(r.Status.ObservedExclusionList) != 1 {
		t.Errorf("status: %+v", r.Status)
	}
	s.ImagePolicy("stable", "app", system.BySemVer(">=1.0.0"))
	s.ImagePolicy("candidates", "app", system.BySemVer(">=1.0.0-0"))
	s.ImagePolicy("builds", "app", func(p *imagev1.ImagePolicySpec) {
		p.FilterTags = &imagev1.TagFilter{Pattern: `^main-[a-f0-9]+-(?P<ts>[0-9]+)$`, Extract: "$ts"}
		p.Policy.Numerical = &imagev1.OrderPolicy{}
	})
	s.Latest("stable", "1.1.0")
	s.Latest("candidates", "2.0.0-rc.1")
	s.Latest("builds", "main-a1-100")

	t.Log("a new tag updates its policies by the scan, without polling")
	s.Push("app", time.Now(), "1.2.0")
	s.RequestReconcile(&imagev1.ImageRepository{}, "app")
	p := s.Latest("stable", "1.2.0")
	if before := p.Status.ObservedPreviousRef; before == nil || before.Tag != "1.1.0" {
		t.Errorf("previous image: %+v", before)
	}
	if want := s.Registry.Host + "/app:1.2.0"; p.Status.LatestImage != want || p.Status.LatestRef.Digest != "" {
		t.Errorf("latest image: %+v, for earlier clients: %q", p.Status.LatestRef, p.Status.LatestImage)
	}
	s.HasEvent("stable", "Succeeded")

	t.Log("a change of the repository's spec is applied")
	s.change(&imagev1.ImageRepository{}, "app", `{"spec":{"exclusionList":["^1\\.2"]}}`)
	s.Scanned("app", 5) // the signature's tag is not excluded any more
	s.Latest("stable", "1.1.0")

	t.Log("deletion removes all tags")
	if err := s.Client.Delete(t.Context(), &imagev1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "app"}}); err != nil {
		t.Fatal(err)
	}
	s.Gone(&imagev1.ImageRepository{}, "app")
	s.NotReady(&imagev1.ImagePolicy{}, "stable", "DependencyNotReady", "not found")
	testenv.Eventually(t, "its tags are no longer served", func() error {
		if status, _ := s.ask("/v1/namespaces/" + s.Namespace + "/imagerepositories/app"); status != 404 {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
}

// change patches an object.
func (s *images) change(o client.Object, called, patch string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(called)
	if err := s.Client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

func TestPoliciesByImageConfiguration(t *testing.T) {
	s := newImages(t)
	built := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s.Push("app", built, "newest")
	s.Push("app", built.Add(-time.Hour), "a", "z")
	s.ImageRepository("app")
	s.Scanned("app", 3)
	before := s.Registry.Stats()
	s.ImagePolicy("by-time", "app", func(p *imagev1.ImagePolicySpec) {
		p.Policy.CreatedAt = &imagev1.CreatedAtPolicy{}
	})
	s.ImagePolicy("by-label", "app", func(p *imagev1.ImagePolicySpec) {
		p.Policy.CEL = &imagev1.CELPolicy{Filter: `labels.tag == "z" && "linux/amd64" in platforms`, Order: "created"}
	})
	s.Latest("by-time", "newest")
	s.Latest("by-label", "z")
	if read := system.RequestsSince(s.Registry, before)["GET blobs"]; read != 3 {
		t.Errorf("%d configurations were read for 3 images", read)
	}
	before = s.Registry.Stats()
	s.RequestReconcile(&imagev1.ImageRepository{}, "app")
	s.Scanned("app", 3)
	if now := system.RequestsSince(s.Registry, before); now["GET blobs"]+now["GET manifests"] > 0 {
		t.Errorf("cached configurations were read again: %v", now)
	}
	t.Log("a moved tag is detected")
	s.Push("app", built.Add(time.Hour), "a")
	s.RequestReconcile(&imagev1.ImageRepository{}, "app")
	s.Latest("by-time", "a")
}

func TestDigestReflection(t *testing.T) {
	s := newImages(t)
	s.Push("app", time.Unix(1700000000, 0), "1.0.0")
	s.ImageRepository("app")
	for _, reflect := range []string{imagev1.ReflectNever, imagev1.ReflectIfNotPresent, imagev1.ReflectAlways} {
		s.ImagePolicy(strings.ToLower(reflect), "app", func(p *imagev1.ImagePolicySpec) {
			system.BySemVer("*")(p)
			p.DigestReflectionPolicy = reflect
			if reflect == imagev1.ReflectAlways {
				p.Interval = &meta.Duration{Duration: time.Hour}
			}
		})
	}
	first := map[string]string{}
	for _, called := range []string{"never", "ifnotpresent", "always"} {
		first[called] = s.Latest(called, "1.0.0").Status.LatestRef.Digest
	}
	if first["never"] != "" || first["always"] == "" || first["always"] != first["ifnotpresent"] {
		t.Errorf("digests: %v", first)
	}
	s.Push("app", time.Unix(1800000000, 0), "1.0.0")
	s.RequestReconcile(&imagev1.ImagePolicy{}, "always")
	testenv.Eventually(t, "the new digest is in the status", func() error {
		if now := s.Latest("always", "1.0.0"); now.Status.LatestRef.Digest == first["always"] ||
			now.Status.ObservedPreviousRef == nil {
			return fmt.Errorf("%+v", now.Status)
		}
		return nil
	})
	s.RequestReconcile(&imagev1.ImagePolicy{}, "ifnotpresent")
	testenv.Eventually(t, "the request is handled", func() error {
		p := s.Latest("ifnotpresent", "1.0.0")
		if p.Annotations[meta.ReconcileRequestAnnotation] != p.Status.LastHandledReconcileAt {
			return fmt.Errorf("%+v", p.Status)
		}
		if p.Status.LatestRef.Digest != first["always"] {
			t.Errorf("the digest of an existing tag was read again")
		}
		return nil
	})
}

func TestCrossNamespaceAccess(t *testing.T) {
	s := newImages(t, system.AllNamespaces)
	labels := map[string]string{"test": s.Namespace}
	s.Push("app", time.Now(), "1.0.0")
	s.Create(&imagev1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "app", Labels: labels},
		Spec: imagev1.ImageRepositorySpec{Image: s.Registry.Host + "/app",
			Interval: meta.Duration{Duration: time.Hour}, Insecure: true},
	})
	other := testenv.Namespace(t)
	p := &imagev1.ImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "app", Labels: labels},
		Spec: imagev1.ImagePolicySpec{
			ImageRepositoryRef: meta.NamespacedName{Name: "app", Namespace: s.Namespace},
			Policy:             imagev1.ImagePolicyChoice{Alphabetical: &imagev1.OrderPolicy{}},
		}}
	s.Create(p)
	until := func(what string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		testenv.Eventually(t, what, func() error {
			if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			if c := apimeta.FindStatusCondition(p.Status.Conditions, "Ready"); c == nil || c.Status != status ||
				c.Reason != reason {
				return fmt.Errorf("%+v", p.Status.Conditions)
			}
			return nil
		})
	}
	until("refused", metav1.ConditionFalse, "AccessDenied")
	selector := `{"spec":{"accessFrom":{"namespaceSelectors":[{"matchLabels":{"kubernetes.io/metadata.name":%q}}]}}}`
	s.change(&imagev1.ImageRepository{}, "app", fmt.Sprintf(selector, other))
	until("let in", metav1.ConditionTrue, "Succeeded")
	s.change(&imagev1.ImageRepository{}, "app", fmt.Sprintf(selector, "another"))
	until("refused again", metav1.ConditionFalse, "AccessDenied")
}

func TestInvalidImageObjects(t *testing.T) {
	s := newImages(t)
	s.Push("app", time.Now(), "latest")
	s.ImageRepository("with-tag", func(r *imagev1.ImageRepositorySpec) { r.Image = "example.com/app:1.0" })
	s.ImageRepository("nowhere", func(r *imagev1.ImageRepositorySpec) { r.Image = s.Registry.Host + "/nowhere" })
	s.ImageRepository("secret", func(r *imagev1.ImageRepositorySpec) {
		r.SecretRef = &meta.LocalObjectReference{Name: "none"}
	})
	s.ImageRepository("secure", func(r *imagev1.ImageRepositorySpec) { r.Insecure = false })
	s.ImageRepository("excluded", func(r *imagev1.ImageRepositorySpec) { r.ExclusionList = []string{"("} })
	s.NotReady(&imagev1.ImageRepository{}, "with-tag", "ImageURLInvalid", "a tag or a digest")
	s.NotReady(&imagev1.ImageRepository{}, "nowhere", "ReadOperationFailed", "nowhere")
	s.NotReady(&imagev1.ImageRepository{}, "secret", "AuthenticationFailed", "not found")
	s.NotReady(&imagev1.ImageRepository{}, "secure", "ReadOperationFailed", "")
	s.NotReady(&imagev1.ImageRepository{}, "excluded", "InvalidExclusionList", "spec.exclusionList")

	s.ImageRepository("app")
	s.ImagePolicy("alone", "none", system.BySemVer("*"))
	s.ImagePolicy("unscanned", "nowhere", system.BySemVer("*"))
	s.ImagePolicy("no-version", "app", system.BySemVer("*"))
	s.ImagePolicy("no-range", "app", system.BySemVer("what"))
	s.NotReady(&imagev1.ImagePolicy{}, "alone", "DependencyNotReady", "not found")
	s.NotReady(&imagev1.ImagePolicy{}, "unscanned", "DependencyNotReady", "has not been scanned yet")
	s.NotReady(&imagev1.ImagePolicy{}, "no-version", "Failed", "no tag matches semver '*' (1 tag checked)")
	s.NotReady(&imagev1.ImagePolicy{}, "no-range", "InvalidPolicy", "spec.policy.semver.range")
}

func TestLossOfTagStore(t *testing.T) {
	s := newImages(t)
	s.Push("app", time.Now(), "1.0.0")
	s.ImageRepository("app")
	s.ImagePolicy("app", "app", system.BySemVer("*"))
	s.Latest("app", "1.0.0")
	s.Stop()
	t.Log("policies keep their latest image without the store")
	s.Storage = t.TempDir()
	s.Start()
	testenv.Eventually(t, "tags are served again", func() error {
		status, body := s.ask("/v1/namespaces/" + s.Namespace + "/imagepolicies/app/candidates")
		if status != 200 {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	s.Latest("app", "1.0.0")
}
