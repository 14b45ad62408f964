package cli

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
)

func TestUpgradeGoesBackAndMigratesStoredVersions(t *testing.T) {
	c := without(t)
	at(t, "upgrade").wants(t, exitFailed, "Sluice is not installed in namespace 'flux-system'")
	at(t, "install", "--version", "v1", "--log-level", "debug").wants(t, exitOK)
	at(t, "check", "--pre").wants(t, exitOK, "this account may install")
	at(t, "check").wants(t, exitOK, "all checks passed")
	name := client.ObjectKey{Name: "gitrepositories.source.toolkit.fluxcd.io"}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), name, crd); err != nil {
		t.Fatal(err)
	}
	crd.Status.StoredVersions = []string{"v1beta2", "v1"}
	if err := c.Status().Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	at(t, "check").wants(t, exitOK, "v1beta2, v1", "sluice upgrade")
	at(t, "upgrade", "--version", "v2").wants(t, exitOK, "are stored in version v1")
	if err := c.Get(t.Context(), name, crd); err != nil ||
		!slices.Equal(crd.Status.StoredVersions, []string{"v1"}) {
		t.Errorf("stored versions are %q: %v", crd.Status.StoredVersions, err)
	}
	running := func() *appsv1.Deployment {
		d := &appsv1.Deployment{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: "sluice"},
			d); err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := running()
	if container := d.Spec.Template.Spec.Containers[0]; !strings.HasSuffix(container.Image, ":v2") ||
		!slices.Contains(container.Args, "--log-level=debug") {
		t.Errorf("an upgrade runs %s with %q", container.Image, container.Args)
	}

	// A pod that no node takes: the new version never becomes available.
	at(t, "upgrade", "--version", "v3", "--registry", "unavailable.example.com", "--timeout", "20s",
		"--components", "unknown").wants(t, exitUsage, "--components")
	d.Spec.Template.Annotations = map[string]string{"playground.sluice.dev/fail": "image-pull"}
	if err := c.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	at(t, "upgrade", "--version", "v3", "--timeout", "15s").wants(t, exitFailed, "ImagePullBackOff",
		"applying the former manifests")
	if image := running().Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v2") {
		t.Errorf("after a failed upgrade, %s runs", image)
	}
}

func TestCheckFindsReplacedDefinitions(t *testing.T) {
	c := without(t)
	at(t, "install").wants(t, exitOK)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "kustomizations.kustomize.toolkit.fluxcd.io"},
		crd); err != nil {
		t.Fatal(err)
	}
	for i := range crd.Spec.Versions {
		spec := crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"]
		delete(spec.Properties, "gates")
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	}
	if err := c.Update(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	at(t, "check").wants(t, exitFailed, "lacks 1 fields, such as spec.gates", "sluice install --force")
	at(t, "install", "--force").wants(t, exitOK)
	at(t, "check").wants(t, exitOK, "all checks passed")
}

func TestCreateTenant(t *testing.T) {
	without(t)
	at(t, "install", "--crds-only").wants(t, exitOK)
	at(t, "create", "tenant", "blue").wants(t, exitUsage, "--with-namespace is missing")
	args := []string{"create", "tenant", "blue", "--with-namespace", "blue-web", "--profile", "multi-tenant"}
	at(t, args...).wants(t, exitOK, "Namespace 'blue-web' created",
		"RoleBinding 'blue-web/blue-reconciler' created",
		"ResourceQuota 'blue-web/blue' created")
	if second := at(t, args...).wants(t, exitOK); strings.Contains(second.err, "created") {
		t.Errorf("a second run created objects:\n%s", second.err)
	}
	exported := at(t, append(args, "--export", "--skip-namespace", "--with-service-account", "deployer",
		"--cluster-role", "edit")...).wants(t, exitOK).out
	if strings.Contains(exported, "kind: Namespace") || !strings.Contains(exported, "name: deployer") ||
		!strings.Contains(exported, "name: edit") {
		t.Errorf("exported\n%s", exported)
	}
}
