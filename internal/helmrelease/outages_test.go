package helmrelease_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// notCounted waits until an attempt fails with a text, and checks that it does not count against the retries.
func (h *releases) notCounted(name, text string) {
	h.Helper()
	r := &helmv2.HelmRelease{}
	testenv.Eventually(h, name+" fails", func() error {
		if err := h.Get(r, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(r.Status.Conditions, helmv2.ReleasedCondition)
		if r.Status.Failures < 2 || c == nil || !strings.Contains(c.Message, text) { // it is tried again
			return fmt.Errorf("%+v", r.Status.Conditions)
		}
		return nil
	})
	if s := r.Status; s.InstallFailures != 0 || s.UpgradeFailures != 0 {
		h.Errorf("the failure counts: %d of installs, %d of upgrades", s.InstallFailures, s.UpgradeFailures)
	}
}

// TestAnExhaustedQuotaDoesNotCountAsARetry installs a release that fits no quota, until the quota is raised.
func TestAnExhaustedQuotaDoesNotCountAsARetry(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", map[string]string{"templates/service.yaml": "apiVersion: v1\nkind: Service\n" +
		"metadata: {name: {{ .Release.Name }}}\nspec: {ports: [{port: 80}]}\n"})
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "services"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"services": resource.MustParse("0")}}}
	h.Create(quota)
	probe := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: "probe"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	testenv.Eventually(t, "the quota is in force", func() error { // the API server reads quotas from a cache
		if err := h.Client.Create(t.Context(), probe.DeepCopy(), client.DryRunAll); err == nil ||
			!strings.Contains(err.Error(), "exceeded quota") {
			return fmt.Errorf("a Service is not refused: %w", err)
		}
		return nil
	})
	h.release("app")
	h.retry("app")
	h.notCounted("app", "exceeded quota")
	h.Update(quota, "services", func() { quota.Spec.Hard["services"] = resource.MustParse("5") })
	testenv.Eventually(t, "the quota is raised", func() error {
		return h.Client.Create(t.Context(), probe.DeepCopy(), client.DryRunAll)
	})
	h.retry("app")
	h.deployed("app")
}

// deployed waits until a HelmRelease is Ready, at any version.
func (h *releases) deployed(name string) *helmv2.HelmRelease {
	h.Helper()
	r := &helmv2.HelmRelease{}
	testenv.Eventually(h, name+" is Ready", func() error {
		if err := h.Get(r, name); err != nil {
			return err
		}
		if len(r.Status.History) == 0 || r.Status.History[0].Status != "deployed" ||
			!strings.Contains(fmt.Sprint(r.Status.Conditions), "{Ready True") {
			return fmt.Errorf("%+v", r.Status.Conditions)
		}
		return nil
	})
	return r
}

// TestAWebhookThatIsDownDoesNotCountAsARetry installs a release while an admission webhook cannot be reached.
func TestAWebhookThatIsDownDoesNotCountAsARetry(t *testing.T) {
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	scope := admissionregistrationv1.AllScopes
	hook := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: h.Namespace},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "down.example.com", AdmissionReviewVersions: []string{"v1"},
			SideEffects:       ptr.To(admissionregistrationv1.SideEffectClassNone),
			ClientConfig:      admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/check")},
			FailurePolicy:     ptr.To(admissionregistrationv1.Fail),
			NamespaceSelector: metav1.SetAsLabelSelector(map[string]string{corev1.LabelMetadataName: h.Namespace}),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
					Resources: []string{"configmaps"}, Scope: &scope}}},
		}},
	}
	h.Create(hook)
	t.Cleanup(func() { _ = h.Client.Delete(context.Background(), hook) }) // the test may have deleted it
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, GenerateName: "probe-"}}
	testenv.Eventually(t, "the webhook is in force", func() error {
		if err := h.Client.Create(t.Context(), probe.DeepCopy(), client.DryRunAll); err == nil {
			return fmt.Errorf("the webhook is not asked yet")
		}
		return nil
	})
	h.release("app")
	h.notCounted("app", "down.example.com")
	if err := h.Client.Delete(t.Context(), hook); err != nil {
		t.Fatal(err)
	}
	h.deployed("app")
}

// TestANamespaceThatIsBeingDeletedHoldsNothing releases to a namespace that is being deleted. The failures do not
// count, and the HelmRelease can be deleted.
func TestANamespaceThatIsBeingDeletedHoldsNothing(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	target := testenv.Namespace(t)
	keep := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: target, Name: "keep",
		Finalizers: []string{"test.example.com/keep"}}}
	h.Create(keep)
	ns := &corev1.Namespace{}
	if err := h.Client.Get(t.Context(), types.NamespacedName{Name: target}, ns); err != nil {
		t.Fatal(err)
	}
	if err := h.Client.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = h.Client.Patch(context.Background(), keep, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`)))
	})
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.TargetNamespace, s.StorageNamespace, s.ReleaseName = target, h.Namespace, "app"
	})
	h.retry("app")
	h.notCounted("app", "terminated")
	h.delete("app")
	h.Gone(&helmv2.HelmRelease{}, "app")
}
