package manager

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// images is a system with a registry.
type images struct {
	*system
	registry *testenv.Registry
	url      string // of the API
}

func newImages(t *testing.T, configure ...func(*Options)) *images {
	t.Helper()
	address := freeAddress(t)
	s := newSystem(t, append(configure, func(o *Options) { o.ImagesAddr = address })...)
	return &images{s, testenv.NewRegistry(t), "http://" + address}
}

// push pushes images of which each says when it was made.
func (s *images) push(repo string, created time.Time, tags ...string) {
	s.Helper()
	for _, tag := range tags {
		image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
			OS: "linux", Architecture: "amd64", Created: v1.Time{Time: created}, RootFS: v1.RootFS{Type: "layers"},
			Config: v1.Config{Labels: map[string]string{"tag": tag}},
		})
		if err != nil {
			s.Fatal(err)
		}
		ref, err := name.NewTag(s.registry.Host+"/"+repo+":"+tag, name.Insecure)
		if err != nil {
			s.Fatal(err)
		}
		if err := remote.Write(ref, image, s.registry.Access()...); err != nil {
			s.Fatal(err)
		}
	}
}

func (s *images) repository(called string, change ...func(*imagev1.ImageRepositorySpec)) {
	s.Helper()
	r := &imagev1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: called},
		Spec: imagev1.ImageRepositorySpec{Image: s.registry.Host + "/" + called,
			Interval: metav1.Duration{Duration: time.Hour}, Insecure: true},
	}
	for _, c := range change {
		c(&r.Spec)
	}
	s.create(r)
}

func (s *images) policy(called, repository string, change func(*imagev1.ImagePolicySpec)) {
	s.Helper()
	p := &imagev1.ImagePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: called},
		Spec:       imagev1.ImagePolicySpec{ImageRepositoryRef: meta.NamespacedName{Name: repository}},
	}
	change(&p.Spec)
	s.create(p)
}

func bySemVer(versions string) func(*imagev1.ImagePolicySpec) {
	return func(s *imagev1.ImagePolicySpec) { s.Policy.SemVer = &imagev1.SemVerPolicy{Range: versions} }
}

// scanned waits until a repository is Ready with so many tags, and has handled what was asked for before.
func (s *images) scanned(called string, tags int) *imagev1.ImageRepository {
	s.Helper()
	r := &imagev1.ImageRepository{}
	testenv.Eventually(s, called+" is scanned", func() error {
		if err := s.get(r, called); err != nil {
			return err
		}
		if last := r.Status.LastScanResult; !reconcile.IsReady(r) || last == nil || last.TagCount != tags ||
			r.Annotations[meta.ReconcileRequestAnnotation] != r.Status.LastHandledReconcileAt {
			return fmt.Errorf("%+v", r.Status)
		}
		return nil
	})
	return r
}

// latest waits until a policy is Ready with a tag.
func (s *images) latest(called, tag string) *imagev1.ImagePolicy {
	s.Helper()
	p := &imagev1.ImagePolicy{}
	testenv.Eventually(s, called+" has "+tag, func() error {
		if err := s.get(p, called); err != nil {
			return err
		}
		if !reconcile.IsReady(p) || p.Status.LatestRef == nil || p.Status.LatestRef.Tag != tag {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
	return p
}

func TestScansMovePolicies(t *testing.T) {
	s := newImages(t)
	s.push("app", time.Now(), "1.0.0", "1.1.0", "2.0.0-rc.1", "main-a1-100", "sha256-ab.sig")
	s.repository("app")
	r := s.scanned("app", 4)
	if got := strings.Join(r.Status.LastScanResult.LatestTags, " "); got != "main-a1-100 2.0.0-rc.1 1.1.0 1.0.0" {
		t.Errorf("latest tags: %s", got)
	}
	if r.Status.CanonicalImageName != s.registry.Host+"/app" || r.Status.LastScanResult.Revision == "" ||
		len(r.Status.ObservedExclusionList) != 1 {
		t.Errorf("status is %+v", r.Status)
	}
	s.policy("stable", "app", bySemVer(">=1.0.0"))
	s.policy("candidates", "app", bySemVer(">=1.0.0-0"))
	s.policy("builds", "app", func(p *imagev1.ImagePolicySpec) {
		p.FilterTags = &imagev1.TagFilter{Pattern: `^main-[a-f0-9]+-(?P<ts>[0-9]+)$`, Extract: "$ts"}
		p.Policy.Numerical = &imagev1.OrderPolicy{}
	})
	s.latest("stable", "1.1.0")
	s.latest("candidates", "2.0.0-rc.1")
	s.latest("builds", "main-a1-100")

	t.Log("a new tag moves the policies that it is for, by the scan and not by polling")
	s.push("app", time.Now(), "1.2.0")
	s.annotate(&imagev1.ImageRepository{}, "app")
	p := s.latest("stable", "1.2.0")
	if before := p.Status.ObservedPreviousRef; before == nil || before.Tag != "1.1.0" {
		t.Errorf("the latest before is %+v", before)
	}
	if want := s.registry.Host + "/app:1.2.0"; p.Status.LatestImage != want || p.Status.LatestRef.Digest != "" {
		t.Errorf("the latest is %+v, for older clients %q", p.Status.LatestRef, p.Status.LatestImage)
	}
	s.told("stable", "Succeeded")

	t.Log("what changes the spec of the repository counts")
	s.change(&imagev1.ImageRepository{}, "app", `{"spec":{"exclusionList":["^1\\.2"]}}`)
	s.scanned("app", 5) // the signature is no longer left out
	s.latest("stable", "1.1.0")

	t.Log("deleted, nothing is left of it")
	if err := s.client.Delete(t.Context(), &imagev1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "app"}}); err != nil {
		t.Fatal(err)
	}
	s.gone(&imagev1.ImageRepository{}, "app")
	s.fails(&imagev1.ImagePolicy{}, "stable", "DependencyNotReady", "not found")
	testenv.Eventually(t, "its tags are no longer served", func() error {
		if status, _ := s.ask("/v1/namespaces/" + s.namespace + "/imagerepositories/app"); status != 404 {
			return fmt.Errorf("the status is %d", status)
		}
		return nil
	})
}

// change patches an object.
func (s *images) change(o client.Object, called, patch string) {
	s.Helper()
	o.SetNamespace(s.namespace)
	o.SetName(called)
	if err := s.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

func TestPoliciesByWhatImagesSay(t *testing.T) {
	s := newImages(t)
	built := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s.push("app", built, "newest")
	s.push("app", built.Add(-time.Hour), "a", "z")
	s.repository("app")
	s.scanned("app", 3)
	before := s.registry.Stats()
	s.policy("by-time", "app", func(p *imagev1.ImagePolicySpec) { p.Policy.CreatedAt = &imagev1.CreatedAtPolicy{} })
	s.policy("by-label", "app", func(p *imagev1.ImagePolicySpec) {
		p.Policy.CEL = &imagev1.CELPolicy{Filter: `labels.tag == "z" && "linux/amd64" in platforms`, Order: "created"}
	})
	s.latest("by-time", "newest")
	s.latest("by-label", "z")
	if read := asked(s.registry, before)["GET blobs"]; read != 3 {
		t.Errorf("%d configurations were read for 3 images", read)
	}
	before = s.registry.Stats()
	s.annotate(&imagev1.ImageRepository{}, "app")
	s.scanned("app", 3)
	if now := asked(s.registry, before); now["GET blobs"]+now["GET manifests"] > 0 {
		t.Errorf("what was known is read again: %v", now)
	}
	t.Log("a tag that moves is seen")
	s.push("app", built.Add(time.Hour), "a")
	s.annotate(&imagev1.ImageRepository{}, "app")
	s.latest("by-time", "a")
}

func TestDigestsAreReflected(t *testing.T) {
	s := newImages(t)
	s.push("app", time.Unix(1700000000, 0), "1.0.0")
	s.repository("app")
	for _, reflect := range []string{imagev1.ReflectNever, imagev1.ReflectIfNotPresent, imagev1.ReflectAlways} {
		s.policy(strings.ToLower(reflect), "app", func(p *imagev1.ImagePolicySpec) {
			bySemVer("*")(p)
			p.DigestReflectionPolicy = reflect
			if reflect == imagev1.ReflectAlways {
				p.Interval = &metav1.Duration{Duration: time.Hour}
			}
		})
	}
	first := map[string]string{}
	for _, called := range []string{"never", "ifnotpresent", "always"} {
		first[called] = s.latest(called, "1.0.0").Status.LatestRef.Digest
	}
	if first["never"] != "" || first["always"] == "" || first["always"] != first["ifnotpresent"] {
		t.Errorf("digests are %v", first)
	}
	s.push("app", time.Unix(1800000000, 0), "1.0.0")
	s.annotate(&imagev1.ImagePolicy{}, "always")
	testenv.Eventually(t, "the new digest is told", func() error {
		if now := s.latest("always", "1.0.0"); now.Status.LatestRef.Digest == first["always"] ||
			now.Status.ObservedPreviousRef == nil {
			return fmt.Errorf("%+v", now.Status)
		}
		return nil
	})
	s.annotate(&imagev1.ImagePolicy{}, "ifnotpresent")
	testenv.Eventually(t, "handled", func() error {
		p := s.latest("ifnotpresent", "1.0.0")
		if p.Annotations[meta.ReconcileRequestAnnotation] != p.Status.LastHandledReconcileAt {
			return fmt.Errorf("%+v", p.Status)
		}
		if p.Status.LatestRef.Digest != first["always"] {
			t.Errorf("the digest of a tag that is present is read again")
		}
		return nil
	})
}

func TestAccessFromOtherNamespaces(t *testing.T) {
	s := newImages(t, everywhere)
	labels := map[string]string{"test": s.namespace}
	s.push("app", time.Now(), "1.0.0")
	s.create(&imagev1.ImageRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "app", Labels: labels},
		Spec: imagev1.ImageRepositorySpec{Image: s.registry.Host + "/app",
			Interval: metav1.Duration{Duration: time.Hour}, Insecure: true},
	})
	other := testenv.Namespace(t)
	p := &imagev1.ImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "app", Labels: labels},
		Spec: imagev1.ImagePolicySpec{
			ImageRepositoryRef: meta.NamespacedName{Name: "app", Namespace: s.namespace},
			Policy:             imagev1.ImagePolicyChoice{Alphabetical: &imagev1.OrderPolicy{}},
		}}
	s.create(p)
	until := func(what string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		testenv.Eventually(t, what, func() error {
			if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
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

func TestImagesThatCannotBe(t *testing.T) {
	s := newImages(t)
	s.push("app", time.Now(), "latest")
	s.repository("with-tag", func(r *imagev1.ImageRepositorySpec) { r.Image = "example.com/app:1.0" })
	s.repository("nowhere", func(r *imagev1.ImageRepositorySpec) { r.Image = s.registry.Host + "/nowhere" })
	s.repository("secret", func(r *imagev1.ImageRepositorySpec) {
		r.SecretRef = &meta.LocalObjectReference{Name: "none"}
	})
	s.repository("secure", func(r *imagev1.ImageRepositorySpec) { r.Insecure = false })
	s.repository("excluded", func(r *imagev1.ImageRepositorySpec) { r.ExclusionList = []string{"("} })
	s.fails(&imagev1.ImageRepository{}, "with-tag", "ImageURLInvalid", "a tag or a digest")
	s.fails(&imagev1.ImageRepository{}, "nowhere", "ReadOperationFailed", "nowhere")
	s.fails(&imagev1.ImageRepository{}, "secret", "AuthenticationFailed", "not found")
	s.fails(&imagev1.ImageRepository{}, "secure", "ReadOperationFailed", "")
	s.fails(&imagev1.ImageRepository{}, "excluded", "InvalidExclusionList", "spec.exclusionList")

	s.repository("app")
	s.policy("alone", "none", bySemVer("*"))
	s.policy("unscanned", "nowhere", bySemVer("*"))
	s.policy("no-version", "app", bySemVer("*"))
	s.policy("no-range", "app", bySemVer("what"))
	s.fails(&imagev1.ImagePolicy{}, "alone", "DependencyNotReady", "not found")
	s.fails(&imagev1.ImagePolicy{}, "unscanned", "DependencyNotReady", "was not scanned yet")
	s.fails(&imagev1.ImagePolicy{}, "no-version", "Failed", "none of the 1 tags")
	s.fails(&imagev1.ImagePolicy{}, "no-range", "InvalidPolicy", "spec.policy.semver.range")
}

func TestWebhookWakesImageRepository(t *testing.T) {
	address := freeAddress(t)
	s := newImages(t, func(o *Options) { o.ReceiverAddr = address })
	h := &hooks{s.system, "http://" + address}
	s.push("app", time.Now(), "1.0.0")
	s.repository("app")
	s.scanned("app", 1)
	s.policy("app", "app", bySemVer("*"))
	s.latest("app", "1.0.0")
	s.push("app", time.Now(), "1.1.0")
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "webhook-token"},
		StringData: map[string]string{"token": webhookToken}})
	r := h.receiver("registry", notificationv1.GenericReceiver, func(spec *notificationv1.ReceiverSpec) {
		spec.Resources = []notificationv1.ReceiverResource{{Kind: imagev1.ImageRepositoryKind, Name: "app"}}
	}, "Succeeded")
	if status, answer := h.post(r.Status.WebhookPath, `{}`); status != 200 {
		t.Fatalf("%d %s", status, answer)
	}
	s.latest("app", "1.1.0")
}

func TestTagsOutliveARestart(t *testing.T) {
	s := newImages(t)
	s.push("app", time.Now(), "1.0.0")
	s.repository("app")
	s.policy("app", "app", bySemVer("*"))
	s.latest("app", "1.0.0")
	s.stop()
	t.Log("nothing is lost with the storage: what was the latest stays so")
	s.storage = t.TempDir()
	s.start()
	testenv.Eventually(t, "served again", func() error {
		status, body := s.ask("/v1/namespaces/" + s.namespace + "/imagepolicies/app/candidates")
		if status != 200 {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})
	s.latest("app", "1.0.0")
}
