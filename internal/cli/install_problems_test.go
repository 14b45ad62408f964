package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// deploymentOf returns a Deployment of the namespace of the controllers.
func deploymentOf(name string, labels map[string]string, change func(*corev1.PodTemplateSpec)) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: name,
		Labels: labels}}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	d.Spec.Template.Labels = d.Spec.Selector.MatchLabels
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "manager", Image: "example.com/" + name + ":v1"}}
	if change != nil {
		change(&d.Spec.Template)
	}
	return d
}

// createNamespace creates the namespace of the controllers with labels.
func createNamespace(t *testing.T, c client.Client, labels map[string]string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.DefaultNamespace, Labels: labels}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
}

// TestInstallUnderRestrictedPodSecurity checks that the admission of the API server takes the pods of both layouts.
func TestInstallUnderRestrictedPodSecurity(t *testing.T) {
	testenv.Full(t)
	c := without(t)
	for _, args := range [][]string{nil, {"--split", "--profile", "multi-tenant", "--flux-compatible"}} {
		at(t, "uninstall", "--silent").wants(t, exitOK)
		createNamespace(t, c, map[string]string{"pod-security.kubernetes.io/enforce": "restricted"})
		r := at(t, append([]string{"install"}, args...)...).wants(t, exitOK, "is available")
		if strings.Contains(r.err, "PodSecurity") {
			t.Errorf("the API server warns:\n%s", r.err)
		}
		pods := &corev1.PodList{}
		if err := c.List(t.Context(), pods, client.InNamespace(cluster.DefaultNamespace)); err != nil ||
			len(pods.Items) == 0 {
			t.Errorf("%q runs %d pods: %v", args, len(pods.Items), err)
		}
		if args == nil {
			checkFluxFinds(t, c, []string{"sluice"}, false)
		} else {
			checkFluxFinds(t, c, slices.Sorted(slices.Values(options.AllControllers)), true)
		}
	}
	if second := at(t, "install").wants(t, exitOK).err; !strings.Contains(second, "source-controller deleted") {
		t.Errorf("the Deployments of --split remain:\n%s", second)
	}
}

func TestInstallDoesNotReplaceFluxSilently(t *testing.T) {
	c := without(t)
	createNamespace(t, c, nil)
	flux := deploymentOf("source-controller", map[string]string{"app.kubernetes.io/part-of": "flux"}, nil)
	if err := c.Create(t.Context(), flux); err != nil {
		t.Fatal(err)
	}
	at(t, "install").wants(t, exitFailed, "Flux runs in this cluster", "flux-system/source-controller", "--force")
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: "source-controller"},
		&corev1.Service{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Service of Flux was taken over: %v", err)
	}
	at(t, "install", "--components", "kustomize-controller").wants(t, exitOK, "is available") // side by side
	at(t, "uninstall", "--silent").wants(t, exitOK, "Flux runs in this cluster")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(flux), flux); err != nil {
		t.Errorf("uninstall removed the Deployment of Flux: %v", err)
	}
	if err := c.Delete(t.Context(), flux); err != nil {
		t.Fatal(err)
	}
}

func TestInstallNamesWhyThePodDoesNotStart(t *testing.T) {
	c := without(t)
	at(t, "install", "--wait=false").wants(t, exitOK)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "sluice"}}
	failing := []byte(`{"spec":{"template":{"metadata":{"annotations":{"playground.sluice.dev/fail":"image-pull"}}}}}`)
	if err := c.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, failing)); err != nil {
		t.Fatal(err)
	}
	expires(t, []string{"install"}, "Deployment/flux-system/sluice is not available", "ImagePullBackOff",
		"--image-pull-secret")
	expires(t, []string{"check"}, "0 of 1 replicas available")
}

func TestInstallNeedsRights(t *testing.T) {
	without(t)
	at(t, "install", "--as", "jane").wants(t, exitFailed, "this account may not install", "create, patch",
		"customresourcedefinitions.apiextensions.k8s.io", "Nothing was changed")
}

// TestInstallSaysWhichKubernetesItNeeds asks an API server through a proxy that states an old version.
func TestInstallSaysWhichKubernetesItNeeds(t *testing.T) {
	t.Parallel()
	cfg := testenv.Cluster(t)
	target, err := url.Parse(cfg.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			fmt.Fprint(w, `{"major":"1","minor":"27","gitVersion":"v1.27.4"}`)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer server.Close()
	for _, command := range []string{"install", "check"} {
		run(t, command, "--server", server.URL, "--kubeconfig", "/dev/null").wants(t, exitFailed,
			"Kubernetes v1.27.4 is too old", "1.30")
	}
}

func TestInstallExplainsARefusingWebhook(t *testing.T) {
	testenv.Full(t)
	c := without(t)
	fail, none, nowhere := admissionv1.Fail, admissionv1.SideEffectClassNone, "https://127.0.0.1:1/"
	hook := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "refuses"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "refuses.example.com", FailurePolicy: &fail, SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"}, ClientConfig: admissionv1.WebhookClientConfig{URL: &nowhere},
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.OperationAll},
				Rule: admissionv1.Rule{APIGroups: []string{"rbac.authorization.k8s.io"}, APIVersions: []string{"*"},
					Resources: []string{"clusterroles"}}}}}}}
	if err := c.Create(t.Context(), hook); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the webhook takes effect", func() error {
		err := c.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "probe"}},
			client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "refuses.example.com") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	at(t, "install", "--timeout", "60s").wants(t, exitFailed, "refuses.example.com", "run the command again")
	if err := c.Delete(t.Context(), hook); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "a second run finishes the installation", func() error {
		return at(t, "install").check(exitOK, "is available")
	})
}
