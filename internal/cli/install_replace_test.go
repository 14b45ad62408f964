package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestInstallReplacesFluxByForce checks that --force takes over the definitions and stops the controllers, and that
// its dry-run changes nothing.
func TestInstallReplacesFluxByForce(t *testing.T) {
	testenv.Full(t)
	c := without(t)
	createNamespace(t, c, nil)
	definitions, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	theirs := definitions[0]
	theirs.SetLabels(map[string]string{"app.kubernetes.io/part-of": "flux"})
	if err := c.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	at(t, "install").wants(t, exitFailed, "1 CustomResourceDefinitions of Flux are installed, such as "+
		theirs.GetName()+". Nothing was changed. Use --force")
	flux := deploymentOf("source-controller", map[string]string{"app.kubernetes.io/part-of": "flux"}, nil)
	if err := c.Create(t.Context(), flux); err != nil {
		t.Fatal(err)
	}
	name := "Deployment/" + cluster.DefaultNamespace + "/source-controller"
	changes := at(t, "install", "--force", "--dry-run").wants(t, exitOK).out
	for _, want := range []string{name + " of Flux would be scaled to 0", "CustomResourceDefinition/" +
		theirs.GetName() + " would be configured", "Service/flux-system/source-controller would be created"} {
		if !strings.Contains(changes, want) {
			t.Errorf("the dry-run lacks %q:\n%s", want, changes)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(flux), flux); err != nil || *flux.Spec.Replicas != 1 {
		t.Errorf("a dry-run changed the replicas of Flux: %v", err)
	}
	at(t, "install").wants(t, exitFailed, "Flux runs in this cluster")
	at(t, "install", "--force").wants(t, exitOK, name+" of Flux scaled to 0",
		"CustomResourceDefinition/"+theirs.GetName()+" configured", "is available")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(flux), flux); err != nil || *flux.Spec.Replicas != 0 {
		t.Errorf("Flux still runs next to Sluice: %v", err)
	}
	at(t, "install").wants(t, exitOK) // Flux is not in the way any longer
	if err := c.Delete(t.Context(), flux); err != nil {
		t.Fatal(err)
	}
}

// TestInstallIntoATerminatingNamespace checks the message, and that a second run installs.
func TestInstallIntoATerminatingNamespace(t *testing.T) {
	testenv.Full(t)
	c := without(t)
	createNamespace(t, c, nil)
	keep := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "keep",
		Finalizers: []string{"example.com/keep"}}}
	if err := c.Create(t.Context(), keep); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: cluster.DefaultNamespace}}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "install names what remains in the namespace", func() error {
		return at(t, "install").check(exitFailed, "namespace 'flux-system' is terminating",
			"example.com/keep in 1 resource instances", "Nothing was changed. Wait until it is gone")
	})
	if err := c.Patch(t.Context(), keep, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "a second run installs", func() error {
		return at(t, "install").check(exitOK, "is available")
	})
}

// tenantReferences are the specs of objects of tenants, and whether the policy refuses them.
func tenantReferences(namespace string) map[string]struct {
	object  client.Object
	refused bool
} {
	interval := meta.Duration{Duration: 60e9}
	kustomization := func(change func(*kustomizev1.KustomizationSpec)) client.Object {
		k := &kustomizev1.Kustomization{}
		k.Spec.Interval, k.Spec.SourceRef.Kind, k.Spec.SourceRef.Name = interval, "GitRepository", "app"
		change(&k.Spec)
		return k
	}
	release := func(spec helmv2.HelmReleaseSpec) client.Object {
		spec.Interval = interval
		return &helmv2.HelmRelease{Spec: spec}
	}
	chart := func(in string) *helmv2.HelmChartTemplate {
		return &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{Chart: "app",
			SourceRef: &helmv2.SourceReference{Kind: "HelmRepository", Name: "app", Namespace: in}}}
	}
	return map[string]struct {
		object  client.Object
		refused bool
	}{
		"own source": {object: kustomization(func(s *kustomizev1.KustomizationSpec) {
			s.SourceRef.Namespace = namespace
		})},
		"source of others": {refused: true,
			object: kustomization(func(s *kustomizev1.KustomizationSpec) { s.SourceRef.Namespace = "default" })},
		"dependency of others": {refused: true, object: kustomization(func(s *kustomizev1.KustomizationSpec) {
			s.DependsOn = make([]kustomizev1.DependencyReference, 2)
			s.DependsOn[0].Name, s.DependsOn[1].Name, s.DependsOn[1].Namespace = "a", "b", "default"
		})},
		"own chart": {object: release(helmv2.HelmReleaseSpec{Chart: chart("")})},
		"chart of a registry": {object: release(helmv2.HelmReleaseSpec{Chart: &helmv2.HelmChartTemplate{
			Kind: "OCIRepository", Spec: helmv2.HelmChartTemplateSpec{URL: "oci://example.com/app"}}})},
		"chart of others": {refused: true, object: release(helmv2.HelmReleaseSpec{Chart: chart("default")})},
		"referred chart of others": {refused: true, object: release(helmv2.HelmReleaseSpec{
			ChartRef: &helmv2.ChartReference{Kind: "OCIRepository", Name: "a", Namespace: "default"}})},
	}
}

// TestInstallForTenants installs into a namespace whose name is a number, and checks the policy for tenants.
func TestInstallForTenants(t *testing.T) {
	testenv.Full(t)
	c := without(t)
	in := []string{"-n", "123"}
	at(t, append(in, "install", "--profile", "multi-tenant")...).wants(t, exitOK, "Deployment/123/sluice is available")
	at(t, append(in, "check")...).wants(t, exitOK)
	namespace := testenv.Namespace(t)
	create := func(o client.Object) error {
		o = o.DeepCopyObject().(client.Object)
		o.SetNamespace(namespace)
		o.SetName("app")
		return c.Create(t.Context(), o, client.DryRunAll)
	}
	cases := tenantReferences(namespace)
	for name, one := range cases {
		if err := create(one.object); err != nil {
			t.Errorf("%s in a namespace that is of no tenant: %v", name, err)
		}
	}
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"toolkit.fluxcd.io/tenant":"a"}}}`))
	if err := c.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, label); err !=
		nil {
		t.Fatal(err)
	}
	for name, one := range cases {
		testenv.Eventually(t, name, func() error { // the API server reads policies and namespaces from caches
			err := create(one.object)
			refused := err != nil && strings.Contains(err.Error(), "a tenant cannot refer to objects of other")
			if refused != one.refused || err != nil && !refused {
				return fmt.Errorf("refused: %v, want %v: %w", refused, one.refused, err)
			}
			return nil
		})
	}
	at(t, append(in, "uninstall", "--silent")...).wants(t, exitOK)
}

// TestInstallNextToFluxOperator checks that the definitions of a running Flux Operator are left as they are, and become
// ours once it has gone.
func TestInstallNextToFluxOperator(t *testing.T) {
	testenv.Full(t)
	c := without(t)
	definitions, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	const name = "resourcesets.fluxcd.controlplane.io"
	theirs := definitions[slices.IndexFunc(definitions, func(d *unstructured.Unstructured) bool {
		return d.GetName() == name
	})]
	theirs.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "Helm"})
	operator := deploymentOf("flux-operator", map[string]string{"app.kubernetes.io/name": "flux-operator"}, nil)
	createNamespace(t, c, nil)
	for _, o := range []client.Object{theirs, operator} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	owner := func() string {
		t.Helper()
		d := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(t.Context(), client.ObjectKey{Name: name}, d); err != nil {
			t.Fatal(err)
		}
		return d.Labels["app.kubernetes.io/name"]
	}
	at(t, "install", "--crds-only").wants(t, exitOK, "CustomResourceDefinition/"+name+" is left to Flux Operator",
		"resourcesetinputproviders.fluxcd.controlplane.io created")
	if got := owner(); got != "" {
		t.Errorf("the definition belongs to %q", got)
	}
	at(t, "uninstall", "--silent", "--keep-namespace").wants(t, exitOK, "gitrepositories")
	if got := owner(); got != "" {
		t.Errorf("the definition belongs to %q after uninstall", got)
	}
	if err := c.Delete(t.Context(), operator); err != nil {
		t.Fatal(err)
	}
	at(t, "install", "--crds-only").wants(t, exitOK, "CustomResourceDefinition/"+name+" configured")
	if got := owner(); got != "sluice" {
		t.Errorf("the definition belongs to %q after the takeover", got)
	}
}
