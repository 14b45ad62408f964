package helmrelease_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// definition returns a CRD whose group is unique for the test.
func definition(group, description string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {plural: things, singular: thing, kind: Thing, listKind: ThingList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, description: %[2]s, x-kubernetes-preserve-unknown-fields: true}}
`, group, description)
}

func TestDefinitionsOfAChart(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	group := h.Namespace + ".example.com"
	thing := fmt.Sprintf("apiVersion: %s/v1\nkind: Thing\nmetadata: {name: a}\n", group)
	h.publish("1.0.0", map[string]string{"crds/thing.yaml": definition(group, "one"), "templates/thing.yaml": thing})
	h.release("app", func(s *helmv2.HelmReleaseSpec) { s.Upgrade = &helmv2.Upgrade{CRDs: helmv2.CRDsCreateReplace} })
	r := h.ready("app", 1)
	var ids []string
	for _, e := range r.Status.Inventory.Entries {
		ids = append(ids, e.ID)
	}
	if want := "_things." + group + "_apiextensions.k8s.io_CustomResourceDefinition"; !strings.Contains(
		strings.Join(ids, " "), want) {
		t.Errorf("the inventory is %q, without %s", ids, want)
	}
	h.publish("1.1.0", map[string]string{"crds/thing.yaml": definition(group, "two"), "templates/thing.yaml": thing})
	h.pass("app")
	h.ready("app", 2)
	h.describes(group, "two")
	h.edit("app", func(s *helmv2.HelmReleaseSpec) { s.Upgrade.CRDs = helmv2.CRDsSkip })
	h.publish("1.2.0", map[string]string{"crds/thing.yaml": definition(group, "three"), "templates/thing.yaml": thing})
	h.pass("app")
	if got := h.ready("app", 3).Status.LastAttemptedRevision; got != "1.2.0" {
		t.Errorf("the revision is %s", got)
	}
	h.describes(group, "two")
	h.publish("1.3.0", nil) // without the definition: it stays, as its objects could be lost
	h.pass("app")
	if got := h.ready("app", 4).Status.LastAttemptedRevision; got != "1.3.0" {
		t.Errorf("the revision is %s", got)
	}
	h.describes(group, "two")
	h.delete("app")
	h.Gone(&helmv2.HelmRelease{}, "app")
	h.describes(group, "two")
}

// describes checks the description of the definition of a group.
func (h *releases) describes(group, want string) {
	h.Helper()
	crds := apiextensions.NewForConfigOrDie(testenv.Cluster(h)).ApiextensionsV1().CustomResourceDefinitions()
	crd, err := crds.Get(h.Context(), "things."+group, metav1.GetOptions{})
	if err != nil {
		h.Fatal(err)
	}
	if got := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Description; got != want {
		h.Errorf("the description is %q, want %q", got, want)
	}
}

// testTemplate is the template of a test, a Pod.
const testTemplate = `apiVersion: v1
kind: Pod
metadata:
  name: {{ .Release.Name }}-test
  annotations: {helm.sh/hook: test, playground.sluice.dev/fail: {{ .Values.fail | default "" | quote }}}
spec:
  restartPolicy: Never
  containers: [{name: main, image: example.com/test}]
`

func TestTestsOfAChartDecide(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", map[string]string{"templates/test.yaml": testTemplate})
	h.release("app", func(s *helmv2.HelmReleaseSpec) { s.Test = &helmv2.Test{Enable: true} })
	r := h.ready("app", 1)
	h.hasCondition("app", helmv2.TestSuccessCondition, "True", helmv2.TestSucceededReason, "1 test hook")
	if got := r.Status.History[0].TestHooks["app-test"].Phase; got != "Succeeded" {
		t.Errorf("the phase of the test is %q", got)
	}
	h.edit("app", values(failing("blue")))
	h.NotReady(r, "app", helmv2.TestFailedReason, "Helm test failed")
	h.hasCondition("app", helmv2.TestSuccessCondition, "False", helmv2.TestFailedReason, "app-test")
	if got := r.Status.History[0].TestHooks["app-test"].Phase; got != "Failed" {
		t.Errorf("the phase of the test is %q", got)
	}
	h.edit("app", func(s *helmv2.HelmReleaseSpec) { s.Test.IgnoreFailures = true })
	h.ready("app", 2)
}

// TestTestsThatCannotRun has a test of a kind that the cluster does not serve.
func TestTestsThatCannotRun(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", map[string]string{"templates/test.yaml": "apiVersion: none.example.com/v1\nkind: Nothing\n" +
		"metadata: {name: {{ .Release.Name }}-test, annotations: {helm.sh/hook: test}}\n"})
	h.release("app", func(s *helmv2.HelmReleaseSpec) { s.Test = &helmv2.Test{Enable: true} })
	r := &helmv2.HelmRelease{}
	h.NotReady(r, "app", helmv2.TestFailedReason, "Helm test failed")
	h.reconcile("app")
	h.NotReady(r, "app", helmv2.TestFailedReason, "Helm test failed")
	h.publish("1.0.1", map[string]string{"templates/test.yaml": testTemplate})
	h.pass("app")
	h.ready("app", 2)
	h.hasCondition("app", helmv2.TestSuccessCondition, "True", helmv2.TestSucceededReason, "1 test hook")
}

func TestAGateHoldsAnUpgradeAndShowsIt(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	gate := &gatingv1.Gate{Spec: gatingv1.GateSpec{Default: "opened"}}
	gate.Namespace, gate.Name = h.Namespace, "gate"
	h.Create(gate)
	h.release("app", func(s *helmv2.HelmReleaseSpec) { s.Gates = []meta.GateReference{{Name: "gate"}} })
	h.ready("app", 1)
	h.Update(gate, "gate", func() { gate.Spec.Default = "closed" })
	h.hasCondition("app", meta.ApprovedCondition, "False", meta.GateClosedReason, "gate")
	h.publish("1.1.0", map[string]string{"values.yaml": "color: blue\n"})
	testenv.Eventually(t, "the change is shown", func() error {
		r := &helmv2.HelmRelease{}
		if err := h.Get(r, "app"); err != nil {
			return err
		}
		p := r.Status.Pending
		if p == nil || p.Revision != "1.1.0" || p.Configured != 1 {
			return fmt.Errorf("pending is %+v", p)
		}
		return nil
	})
	h.configMap("app-config", "red")
	h.Update(gate, "gate", func() { gate.Spec.Default = "opened" })
	h.ready("app", 2)
	h.configMap("app-config", "blue")
}

func TestDependenciesAreReleasedFirst(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	h.release("second", func(s *helmv2.HelmReleaseSpec) {
		s.DependsOn = []meta.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "first"},
			ReadyExpr: "dep.status.history[0].chartVersion == '1.0.0'"}}
	})
	h.NotReady(&helmv2.HelmRelease{}, "second", meta.DependencyNotReadyReason, "first")
	h.release("first")
	h.ready("second", 1)
}

func TestReleasesUseTheRightsOfTheirAccount(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = h.Namespace, "tenant"
	h.Create(account)
	h.release("app", func(s *helmv2.HelmReleaseSpec) { s.ServiceAccountName = "tenant" })
	h.NotReady(&helmv2.HelmRelease{}, "app", "ReconciliationFailed", "forbidden")
	if err := h.Get(&corev1.ConfigMap{}, "app-config"); !apierrors.IsNotFound(err) {
		t.Errorf("the object was created without the right to: %v", err)
	}
}
