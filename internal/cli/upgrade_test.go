package cli

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestUpgradeGoesBackAndMigratesStoredVersions(t *testing.T) {
	c := without(t)
	at(t, "upgrade").wants(t, exitFailed, "Sluice is not installed in namespace 'flux-system'")
	at(t, "install", "--version", "v1", "--log-level", "debug").wants(t, exitOK)
	at(t, "check", "--pre").wants(t, exitOK, "this account may install")
	at(t, "check").wants(t, exitOK, "all checks passed")
	name := client.ObjectKey{Name: "gitrepositories.source.toolkit.fluxcd.io"}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name.Name}}
	if err := c.Status().Patch(t.Context(), crd, client.RawPatch(types.MergePatchType,
		[]byte(`{"status":{"storedVersions":["v1beta2","v1"]}}`))); err != nil {
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
	if err := c.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(`{"spec":{
		"progressDeadlineSeconds":5,
		"template":{"metadata":{"annotations":{"playground.sluice.dev/fail":"image-pull"}}}}}`))); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "a failed upgrade names the reason", func() error { // which comes late on a slow machine
		return at(t, "upgrade", "--version", "v3").check(exitFailed, "ImagePullBackOff",
			"applying the former manifests")
	})
	if image := running().Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, ":v2") {
		t.Errorf("after a failed upgrade, %s runs", image)
	}
}

// TestUpgradeKeepsArguments checks that no command loses arguments that a migration took over, and that an upgrade
// refuses an installation whose settings it does not know.
func TestUpgradeKeepsArguments(t *testing.T) {
	testenv.Full(t)
	c := without(t)
	lockdown := "--default-service-account=default"
	at(t, "install", "--controller-arg", "--unknown=1").wants(t, exitUsage, "--controller-arg")
	at(t, "install", "--controller-arg", lockdown).wants(t, exitOK)
	name, d := client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: "sluice"}, &appsv1.Deployment{}
	check := func(command string, want bool) {
		t.Helper()
		at(t, strings.Fields(command)...).wants(t, exitOK)
		if err := c.Get(t.Context(), name, d); err != nil {
			t.Fatal(err)
		}
		if args := d.Spec.Template.Spec.Containers[0].Args; slices.Contains(args, lockdown) != want {
			t.Errorf("after %q, the arguments are %q", command, args)
		}
	}
	check("upgrade --log-level debug", true)
	check("install", true)
	check("install --controller-arg --concurrent=8", false)
	if err := c.Patch(t.Context(), d, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":null}}`))); err != nil {
		t.Fatal(err)
	}
	at(t, "upgrade").wants(t, exitFailed, "the settings of Deployment 'flux-system/sluice' are not known")
	check("install --controller-arg=", false)
}

// TestFormerAutoscalerIsRemoved checks that an autoscaler does not start replicas of an installation for one.
func TestFormerAutoscalerIsRemoved(t *testing.T) {
	testenv.Full(t)
	c := without(t)
	in := []string{"--wait=false", "--storage-backend-s3-endpoint", "https://s3.example.com",
		"--storage-backend-s3-bucket", "b", "--auto-shards"}
	at(t, append([]string{"install", "--replicas", "4"}, in...)...).wants(t, exitOK)
	at(t, append([]string{"install", "--max-replicas", "6"}, in...)...).wants(t, exitOK)
	name, d := client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: "sluice"}, &appsv1.Deployment{}
	if err := c.Get(t.Context(), name, d); err != nil || *d.Spec.Replicas != 4 {
		t.Errorf("with an autoscaler, %d replicas run (%v), want the 4 that ran before", *d.Spec.Replicas, err)
	}
	if err := c.Get(t.Context(), name, &autoscalingv2.HorizontalPodAutoscaler{}); err != nil {
		t.Error(err)
	}
	preview := at(t, append([]string{"install", "--max-replicas", "6", "--dry-run"}, in...)...).wants(t, exitOK).out
	if !strings.Contains(preview, "Deployment/flux-system/sluice would be unchanged") {
		t.Errorf("what is installed would change:\n%s", preview)
	}
	at(t, "install", "--wait=false").wants(t, exitOK)
	if err := c.Get(t.Context(), name, &autoscalingv2.HorizontalPodAutoscaler{}); !apierrors.IsNotFound(err) {
		t.Errorf("the autoscaler remains (%v)", err)
	}
	if err := c.Get(t.Context(), name, d); err != nil || *d.Spec.Replicas != 1 {
		t.Errorf("without an autoscaler, %d replicas run (%v)", *d.Spec.Replicas, err)
	}
}

// TestUninstallKeepsWhatOthersNeed has installations in two namespaces.
func TestUninstallKeepsWhatOthersNeed(t *testing.T) {
	testenv.Full(t)
	c := without(t)
	at(t, "install", "-n", "gitops").wants(t, exitOK)
	at(t, "uninstall", "--silent").wants(t, exitFailed, "is installed in namespace 'gitops'", "-n gitops")
	at(t, "install", "--force", "--wait=false").wants(t, exitOK)
	at(t, "uninstall", "--silent").wants(t, exitOK, "also runs in namespace 'gitops'")
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "gitrepositories.source.toolkit.fluxcd.io"}, crd); err != nil ||
		crd.DeletionTimestamp != nil {
		t.Errorf("the definitions are removed: %v", err)
	}
	at(t, "check", "-n", "gitops").wants(t, exitOK, "all checks passed")
	at(t, "uninstall", "--silent", "-n", "gitops").wants(t, exitOK)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); !apierrors.IsNotFound(err) {
		t.Errorf("the definitions remain: %v", err)
	}
}

func TestCheckFindsReplacedDefinitions(t *testing.T) {
	testenv.Full(t)
	c := without(t)
	at(t, "install").wants(t, exitOK)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: "kustomizations.kustomize.toolkit.fluxcd.io"},
		crd); err != nil {
		t.Fatal(err)
	}
	before := crd.DeepCopy()
	for i := range crd.Spec.Versions {
		spec := crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"]
		delete(spec.Properties, "gates")
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"] = spec
	}
	if err := c.Patch(t.Context(), crd, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	at(t, "check").wants(t, exitFailed, "lacks 1 fields, such as spec.gates", "sluice install --force")
	at(t, "install", "--force").wants(t, exitOK)
	at(t, "check").wants(t, exitOK, "all checks passed")
}

func TestCreateTenant(t *testing.T) {
	testenv.Full(t)
	c := without(t)
	at(t, "install", "--crds-only").wants(t, exitOK)
	at(t, "create", "tenant", "blue").wants(t, exitUsage, "--with-namespace is missing")
	args := []string{"create", "tenant", "blue", "--with-namespace", "blue-web", "--profile", "multi-tenant"}
	at(t, args...).wants(t, exitOK, "Namespace 'blue-web' created",
		"RoleBinding 'blue-web/blue-reconciler' created",
		"ResourceQuota 'blue-web/blue' created")
	if second := at(t, args...).wants(t, exitOK); strings.Contains(second.err, "created") {
		t.Errorf("a second run created objects:\n%s", second.err)
	}
	account := &corev1.ServiceAccount{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "blue-web", Name: "blue"}, account); err != nil {
		t.Fatal(err)
	}
	account.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	account.AutomountServiceAccountToken = ptr.To(false)
	if err := c.Update(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	at(t, append(args, "--label", "team=blue")...).wants(t, exitOK)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(account), account); err != nil ||
		len(account.ImagePullSecrets) != 1 || account.AutomountServiceAccountToken == nil {
		t.Errorf("a third run changed what others set: %+v (%v)", account, err)
	}
	exported := at(t, append(args, "--export", "--skip-namespace", "--with-service-account", "deployer",
		"--cluster-role", "edit")...).wants(t, exitOK).out
	if strings.Contains(exported, "kind: Namespace") || !strings.Contains(exported, "name: deployer") ||
		!strings.Contains(exported, "name: edit") {
		t.Errorf("exported\n%s", exported)
	}
}
