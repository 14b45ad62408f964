package cli

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestInstallAndUninstall checks that install ends when the kinds are served, that a second run changes nothing,
// and that uninstall removes everything.
func TestInstallAndUninstall(t *testing.T) {
	c := without(t)
	golden(t, "install.txt", at(t, "install").wants(t, exitOK).err)
	keep := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.DefaultNamespace, Name: "app",
		Finalizers: []string{reconcile.Finalizer}}}
	keep.Spec.URL, keep.Spec.Interval.Duration = "https://example.com/app", 1e9
	if err := c.Create(t.Context(), keep); err != nil {
		t.Fatalf("the kinds are not served after install: %v", err)
	}
	if second := at(t, "install").wants(t, exitOK).err; strings.Contains(second, "created") ||
		strings.Contains(second, "configured") {
		t.Errorf("a second install made changes:\n%s", second)
	}
	testenv.Eventually(t, "the Deployment is accepted and its Pods run", func() error {
		d := &appsv1.Deployment{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: "sluice"},
			d); err != nil {
			return err
		}
		if d.Status.ReadyReplicas != 1 {
			return fmt.Errorf("status is %+v", d.Status)
		}
		return nil
	})

	golden(t, "uninstall-dry-run.txt", at(t, "uninstall", "--dry-run").wants(t, exitOK).err)
	args := []string{"uninstall", "--keep-namespace", "--kubeconfig", testenv.Kubeconfig(t)}
	runWith(t.Context(), "n\n", args...).wants(t, exitFailed, "cancelled: nothing was removed")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(keep), keep); err != nil {
		t.Fatalf("an uninstall without confirmation removed an object: %v", err)
	}
	runWith(t.Context(), "yes\n", args...).wants(t, exitOK)
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := c.List(t.Context(), crds); err != nil {
		t.Error(err)
	}
	for _, crd := range crds.Items {
		if strings.HasSuffix(crd.Spec.Group, ".fluxcd.io") { // tests in parallel have definitions of their own
			t.Errorf("CustomResourceDefinition '%s' remains", crd.Name)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKey{Name: cluster.DefaultNamespace}, &corev1.Namespace{}); err != nil {
		t.Errorf("the namespace was deleted: %v", err)
	}
	at(t, "uninstall", "--silent").wants(t, exitOK)
	if err := c.Get(t.Context(), client.ObjectKey{Name: cluster.DefaultNamespace},
		&corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace remains: %v", err)
	}
	const nothing = "► nothing is installed in namespace 'flux-system': nothing was removed\n"
	if r := at(t, "uninstall", "--silent").wants(t, exitOK); r.err != nothing {
		t.Errorf("a second uninstall says %q, want %q", r.err, nothing)
	}
}
