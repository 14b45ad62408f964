package install

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/process/options"
)

// manifests returns the objects of options by kind and name.
func manifests(t *testing.T, o Options) map[string]*unstructured.Unstructured {
	t.Helper()
	objects, err := Manifests(o)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*unstructured.Unstructured{}
	for _, u := range objects {
		key := u.GetKind() + "/" + u.GetName()
		if byName[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		if ns := u.GetNamespace(); ns != "" && ns != o.Namespace {
			t.Errorf("%s is in namespace '%s'", key, ns)
		}
		byName[key] = u
	}
	return byName
}

// argsOf returns the arguments of the controllers of a Deployment.
func argsOf(t *testing.T, u *unstructured.Unstructured) []string {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	if err != nil || len(containers) != 1 {
		t.Fatal(err, containers)
	}
	args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	return args
}

// TestNamespaceIsANumber checks that a name such as 123 stays a text in all objects.
func TestNamespaceIsANumber(t *testing.T) {
	o := Default("v1")
	o.Namespace, o.Profile, o.FluxCompatible = "123", ProfileMultiTenant, true
	got := manifests(t, o)
	if got["Namespace/123"] == nil || got["Deployment/sluice"].GetNamespace() != "123" {
		t.Error("the namespace was lost")
	}
	args := argsOf(t, got["Deployment/sluice"])
	if !slices.Contains(args, "--storage-adv-addr=source-controller.123.svc.cluster.local.") {
		t.Errorf("the arguments are %q", args)
	}
}

func TestSplitRunsEachControllerWithItsOwnAccount(t *testing.T) {
	o := Default("v1")
	o.Namespace, o.Split = "gitops", true
	got := manifests(t, o)
	for _, c := range options.AllControllers {
		d := got["Deployment/"+c]
		if d == nil || got["ServiceAccount/"+c] == nil || got["PodDisruptionBudget/"+c] == nil {
			t.Fatalf("%s has no Deployment, ServiceAccount or PodDisruptionBudget", c)
		}
		if args := argsOf(t, d); !slices.Contains(args, "--controllers="+c) {
			t.Errorf("%s runs with %q", c, args)
		}
	}
	if got["Deployment/sluice"] != nil || got["ServiceAccount/sluice"] != nil {
		t.Error("the Deployment of all controllers is there as well")
	}
	app, _, _ := unstructured.NestedString(got["Service/webhook-receiver"].Object, "spec", "selector", "app")
	if app != options.NotificationController {
		t.Errorf("Service 'webhook-receiver' selects '%s'", app)
	}
	subjects, _, _ := unstructured.NestedSlice(got["ClusterRoleBinding/sluice-reconciler"].Object, "subjects")
	if len(subjects) != 2 {
		t.Errorf("the administrators of the cluster are %v", subjects)
	}
	if !slices.Contains(argsOf(t, got["Deployment/source-controller"]),
		"--events-addr=http://notification-controller.gitops.svc.cluster.local./") {
		t.Error("source-controller does not forward its events")
	}
}

func TestComponentsDecideAboutServices(t *testing.T) {
	o := Default("v1")
	o.Components = []string{"kustomize-controller"}
	got := manifests(t, o)
	for name := range services {
		if got["Service/"+name] != nil {
			t.Errorf("Service '%s' is installed without its controller", name)
		}
	}
	if args := argsOf(t, got["Deployment/sluice"]); !slices.Contains(args, "--controllers=kustomize-controller") ||
		strings.Contains(strings.Join(args, " "), "--storage-adv-addr") {
		t.Errorf("the arguments are %q", args)
	}
	o.Components = []string{"source-watcher"} // the name that Flux has for the controller of ArtifactGenerators
	if got = manifests(t, o); got["Service/source-controller"] == nil {
		t.Error("source-watcher does not run source-controller")
	}
}

func TestMultiTenantProfile(t *testing.T) {
	o := Default("v1")
	o.Profile = ProfileMultiTenant
	got := manifests(t, o)
	args := argsOf(t, got["Deployment/sluice"])
	for _, want := range []string{"--no-cross-namespace-refs", "--no-remote-bases",
		"--default-service-account=default"} {
		if !slices.Contains(args, want) {
			t.Errorf("%s is missing in %q", want, args)
		}
	}
	for _, want := range []string{"ServiceAccount/kustomize-controller", "ServiceAccount/helm-controller",
		"ResourceQuota/sluice-critical-pods", "ValidatingAdmissionPolicy/sluice-tenant-references"} {
		if got[want] == nil {
			t.Errorf("%s is missing", want)
		}
	}
}

// TestToolsOfFluxFindAnInstallation checks the label by which `flux check`, `flux version` and `flux logs` select
// Deployments and definitions, for an installation without flags, and that we do not take it for Flux.
func TestToolsOfFluxFindAnInstallation(t *testing.T) {
	selected := map[string]int{}
	for name, u := range manifests(t, Default("v1.2.3")) {
		if u.GetLabels()["app.kubernetes.io/part-of"] == "flux" {
			selected[u.GetKind()]++
		}
		if isFlux(u) || !isOwn(u) {
			t.Errorf("%s is taken for an object of Flux", name)
		}
	}
	if selected["Deployment"] != 1 || selected["CustomResourceDefinition"] < 16 {
		t.Errorf("got %v", selected)
	}
}

func TestFluxCompatibleLabels(t *testing.T) {
	o := Default("v1.2.3")
	o.FluxCompatible = true
	for name, u := range manifests(t, o) {
		labels := u.GetLabels()
		if labels[PartOfLabel] != "flux" || labels[instanceLabel] != "flux-system" || labels[versionLabel] != "v1.2.3" {
			t.Errorf("%s has labels %v", name, labels)
		}
		if isFlux(u) || !isOwn(u) {
			t.Errorf("%s is taken for an object of Flux", name)
		}
		if image := containerImage(u); image != "" && image != "ghcr.io/sluice-gitops/sluice:v1.2.3" {
			t.Errorf("`flux version` prints image %q of %s", image, name)
		}
	}
}

// containerImage returns the image of a Deployment, empty for other objects.
func containerImage(u *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	if len(containers) != 1 {
		return ""
	}
	image, _ := containers[0].(map[string]any)["image"].(string)
	return image
}

func TestInvalidOptionsNameTheFlag(t *testing.T) {
	for flag, change := range map[string]func(*Options){
		"--components":        func(o *Options) { o.Components = []string{"other"} },
		"--log-level":         func(o *Options) { o.LogLevel = "loud" },
		"--profile":           func(o *Options) { o.Profile = "none" },
		"--namespace":         func(o *Options) { o.Namespace = "a b" },
		"--cluster-domain":    func(o *Options) { o.ClusterDomain = "a b" },
		"--toleration-keys":   func(o *Options) { o.TolerationKeys = []string{"a b"} },
		"--image-pull-secret": func(o *Options) { o.RegistryLogin = "me:secret" },
		"--replicas":          func(o *Options) { o.Replicas = 2 },
		"--replicas -1":       func(o *Options) { o.Replicas = -1 },
		"--storage-backend-s3-bucket": func(o *Options) {
			o.Backend.Endpoint = "https://a.example"
		},
		"--storage-backend-secret": func(o *Options) {
			o.Backend = Backend{Endpoint: "https://a.example", Bucket: "b", Secret: "a b"}
		},
		"--registry-creds": func(o *Options) { o.RegistryLogin, o.PullSecret = "secret", "pull" },
	} {
		o := Default("v1")
		change(&o)
		_, err := Manifests(o)
		if err == nil || !strings.Contains(err.Error(), flag) || strings.Contains(err.Error(), "secret\"") {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}
