package api_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1alpha1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	inputsv1alpha1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// examples returns the manifests of testdata, one a kind and version, by file name.
func examples(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		if b, err = yaml.YAMLToJSONStrict(b); err == nil {
			err = u.UnmarshalJSON(b) // numbers as the API machinery has them
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[filepath.Base(file)] = u
	}
	return found
}

// goTypes returns the Go types of all kinds. Older versions have none.
func goTypes() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		extensionsv1beta1.AddToScheme, sourcev1.AddToScheme, gatingv1alpha1.AddToScheme, helmv2.AddToScheme,
		kustomizev1.AddToScheme, notificationv1.AddToScheme, imagev1.AddToScheme, imagev1alpha1.AddToScheme,
		controlplanev1.AddToScheme, inputsv1alpha1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}

// TestEachServedVersionHasAnExample fails for a kind or a version that the tests with examples, also those of
// test/campaign, would leave out.
func TestEachServedVersionHasAnExample(t *testing.T) {
	has, types := map[schema.GroupVersionKind]bool{}, goTypes()
	for _, example := range examples(t) {
		has[example.GroupVersionKind()] = true
	}
	for kind, crd := range definitions(t) {
		if !types.IsGroupRegistered(crd.Spec.Group) {
			t.Errorf("the tests have no Go types of %s", crd.Spec.Group)
		}
		for _, v := range crd.Spec.Versions {
			gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: kind}
			if !has[gvk] {
				t.Errorf("testdata has no example of %s", gvk)
			}
		}
	}
}

// TestTypesHoldExamples reads every example into its Go type and back: nothing may be unknown, lost or changed.
func TestTypesHoldExamples(t *testing.T) {
	s := goTypes()
	for name, want := range examples(t) {
		if !s.Recognizes(want.GroupVersionKind()) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			obj, err := s.New(want.GroupVersionKind())
			if err != nil {
				t.Fatal(err)
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(want.Object, obj,
				true); err != nil {
				t.Fatal(err)
			}
			got, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(declared(t, want.Object), declared(t, got)); diff != "" {
				t.Errorf("declared (-) and written (+) differ:\n%s", diff)
			}
		})
	}
}

// declared returns the spec in which what is unset and what is set to its zero look the same, by way of JSON.
func declared(t *testing.T, object map[string]any) any {
	t.Helper()
	spec := runtime.DeepCopyJSONValue(object["spec"]).(map[string]any)
	for key, value := range spec {
		if value == false && key != "prune" {
			delete(spec, key)
		}
	}
	b, err := yaml.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := yaml.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func minutesOf(n int) meta.Duration { return meta.Duration{Duration: time.Duration(n) * time.Minute} }

var twoMinutes = minutesOf(2)

var threeMinutes = minutesOf(3)

var scheduleCases = map[string]struct {
	object interface{ Schedule() meta.Schedule }
	want   meta.Schedule
}{
	"a repository that sets no timeout has 60 seconds": {
		object: &sourcev1.GitRepository{Spec: sourcev1.GitRepositorySpec{Interval: minutesOf(5)}},
		want:   meta.Schedule{Interval: 5 * time.Minute, Timeout: time.Minute},
	},
	"a repository's own timeout counts": {
		object: &sourcev1.GitRepository{Spec: sourcev1.GitRepositorySpec{Interval: minutesOf(5), Timeout: &twoMinutes,
			Suspend: true}},
		want: meta.Schedule{Interval: 5 * time.Minute, Timeout: 2 * time.Minute, Suspended: true},
	},
	"a chart has 60 seconds": {
		object: &sourcev1.HelmChart{Spec: sourcev1.HelmChartSpec{Interval: minutesOf(5), Suspend: true}},
		want:   meta.Schedule{Interval: 5 * time.Minute, Timeout: time.Minute, Suspended: true},
	},
	"a chart repository that sets no interval is checked every minute": {
		object: &sourcev1.HelmRepository{},
		want:   meta.Schedule{Interval: time.Minute, Timeout: time.Minute},
	},
	"a chart repository in a registry is not checked": {
		object: &sourcev1.HelmRepository{Spec: sourcev1.HelmRepositorySpec{Type: sourcev1.HelmRepositoryTypeOCI,
			Interval: minutesOf(5)}},
		want: meta.Schedule{Timeout: time.Minute},
	},
	"a release has time for an action, its tests and a remediation": {
		object: &helmv2.HelmRelease{Spec: helmv2.HelmReleaseSpec{Interval: minutesOf(9), Timeout: &twoMinutes,
			Upgrade: &helmv2.Upgrade{Timeout: &threeMinutes}}},
		want: meta.Schedule{Interval: 9 * time.Minute, Timeout: 4 * 7 * time.Minute},
	},
	"an external artifact waits for its maker": {object: &sourcev1.ExternalArtifact{}, want: meta.Schedule{}},
	"a generator that sets nothing is looked after every hour": {
		object: &extensionsv1beta1.ArtifactGenerator{}, want: meta.Schedule{Interval: time.Hour},
	},
	"a generator is scheduled and suspended by annotation": {
		object: &extensionsv1beta1.ArtifactGenerator{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			extensionsv1beta1.ReconcileAnnotation:      extensionsv1beta1.ReconcileDisabled,
			extensionsv1beta1.ReconcileEveryAnnotation: "10m",
		}}},
		want: meta.Schedule{Interval: 10 * time.Minute, Suspended: true},
	},
	"a receiver that sets no interval is looked after every ten minutes": {
		object: &notificationv1.Receiver{}, want: meta.Schedule{Interval: 10 * time.Minute},
	},
	"an alert is looked after when something changes": {
		object: &notificationv1.Alert{Spec: notificationv1.AlertSpec{Suspend: true}},
		want:   meta.Schedule{Suspended: true},
	},
	"a provider that sets no interval is looked after every ten minutes": {
		object: &notificationv1.Provider{}, want: meta.Schedule{Interval: 10 * time.Minute},
	},
	"a provider's own interval counts": {
		object: &notificationv1.Provider{Spec: notificationv1.ProviderSpec{Interval: &twoMinutes,
			Suspend: true}},
		want: meta.Schedule{Interval: 2 * time.Minute, Suspended: true},
	},
	"a repository of images that sets no timeout has 60 seconds": {
		object: &imagev1.ImageRepository{Spec: imagev1.ImageRepositorySpec{Interval: minutesOf(5), Suspend: true}},
		want:   meta.Schedule{Interval: 5 * time.Minute, Timeout: time.Minute, Suspended: true},
	},
	"a repository of images has its own timeout": {
		object: &imagev1.ImageRepository{Spec: imagev1.ImageRepositorySpec{Interval: minutesOf(5),
			Timeout: &twoMinutes}},
		want: meta.Schedule{Interval: 5 * time.Minute, Timeout: 2 * time.Minute},
	},
	"a policy without an interval waits for a scan": {object: &imagev1.ImagePolicy{}, want: meta.Schedule{}},
	"a policy reads its digest again": {
		object: &imagev1.ImagePolicy{Spec: imagev1.ImagePolicySpec{Interval: &twoMinutes}},
		want:   meta.Schedule{Interval: 2 * time.Minute}},
	"an automation runs at its interval": {
		object: &imagev1.ImageUpdateAutomation{Spec: imagev1.ImageUpdateAutomationSpec{Interval: minutesOf(5),
			Suspend: true}},
		want: meta.Schedule{Interval: 5 * time.Minute, Suspended: true},
	},
	"a job runs once": {object: &imagev1alpha1.ImageUpdateJob{}, want: meta.Schedule{}},
	"a Kustomization that sets no timeout has its interval": {
		object: &kustomizev1.Kustomization{Spec: kustomizev1.KustomizationSpec{Interval: minutesOf(5)}},
		want:   meta.Schedule{Interval: 5 * time.Minute, Timeout: 5 * time.Minute},
	},
	"a Kustomization's own timeout and retry interval count": {
		object: &kustomizev1.Kustomization{Spec: kustomizev1.KustomizationSpec{Interval: minutesOf(5),
			Timeout:       &twoMinutes,
			RetryInterval: &threeMinutes, Suspend: true}},
		want: meta.Schedule{Interval: 5 * time.Minute, RetryInterval: 3 * time.Minute, Timeout: 2 * time.Minute,
			Suspended: true},
	},
}

func TestSchedule(t *testing.T) {
	for name, c := range scheduleCases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.object.Schedule()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValuesFilesOfOlderVersionsComeFirst(t *testing.T) {
	chart := &sourcev1.HelmChart{Spec: sourcev1.HelmChartSpec{ValuesFile: "a.yaml",
		ValuesFiles: []string{"b.yaml", "c.yaml"}}}
	if diff := cmp.Diff([]string{"a.yaml", "b.yaml", "c.yaml"}, chart.GetValuesFiles()); diff != "" {
		t.Error(diff)
	}
}

func TestURLOfTheNewestArtifact(t *testing.T) {
	const server = "http://source-controller"
	for url, want := range map[string]string{
		server + "/ocirepository/apps/app/0a1b2c.tar.gz": server + "/ocirepository/apps/app/latest.tar.gz",
		server + "/helmchart/apps/app/0a1b2c.tgz":        server + "/helmchart/apps/app/latest.tgz",
		server + "/helmrepository/apps/app/0a1b2c.yaml":  server + "/helmrepository/apps/app/latest.yaml",
	} {
		for _, source := range []interface{ SetArtifact(*meta.Artifact) }{
			&sourcev1.OCIRepository{}, &sourcev1.HelmRepository{}, &sourcev1.HelmChart{}, &sourcev1.Bucket{},
		} {
			shown := func() any {
				u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(source)
				if err != nil {
					t.Fatal(err)
				}
				return u["status"].(map[string]any)["url"]
			}
			source.SetArtifact(&meta.Artifact{URL: url})
			if got := shown(); got != want {
				t.Errorf("%T shows %v, want %s", source, got, want)
			}
			source.SetArtifact(nil)
			if got := shown(); got != nil {
				t.Errorf("%T without an artifact shows %v", source, got)
			}
		}
	}
}

func TestTheLatestImageBeforeStaysVisible(t *testing.T) {
	policy := &imagev1.ImagePolicy{}
	for _, tag := range []string{"1.0.0", "1.1.0", "1.1.0"} {
		policy.SetLatest(imagev1.ImageRef{Name: "example.com/app", Tag: tag})
	}
	first, second := imagev1.ImageRef{Name: "example.com/app", Tag: "1.0.0"},
		imagev1.ImageRef{Name: "example.com/app", Tag: "1.1.0"}
	want := imagev1.ImagePolicyStatus{
		LatestRef: &second, LatestImage: "example.com/app:1.1.0", ObservedPreviousRef: &first,
		ObservedPreviousImage: "example.com/app:1.0.0",
	}
	if diff := cmp.Diff(want, policy.Status); diff != "" {
		t.Error(diff)
	}
}
