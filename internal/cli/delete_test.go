package cli

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestDeleteNamesWhatHolds deletes a Kustomization whose ConfigMap has a finalizer that stays.
func TestDeleteNamesWhatHolds(t *testing.T) {
	const finalizer = "example.com/backup"
	c, namespace := withDefinitions(t)
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "held",
		Finalizers: []string{finalizer}}}
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kept"}}
	ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app",
		Finalizers: []string{finalizer}}}
	ks.Spec.SourceRef.Kind, ks.Spec.SourceRef.Name = "GitRepository", "app"
	for _, o := range []client.Object{held, kept, ks} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	ks.Status.Inventory = &meta.ResourceInventory{Entries: []meta.ResourceRef{
		{ID: namespace + "_held__ConfigMap", Version: "v1"}, {ID: namespace + "_kept__ConfigMap", Version: "v1"},
		{ID: namespace + "_gone__ConfigMap", Version: "v1"}}}
	if err := c.Status().Patch(t.Context(), ks, statusOf(t, ks)); err != nil {
		t.Fatal(err)
	}
	sluice := func(args ...string) result { return at(t, append(args, "-n", namespace)...) }
	expires(t, []string{"delete", "ks", "app", "--silent", "-n", namespace},
		"still exists after TIMEOUT: its finalizers ("+finalizer+") were not removed")
	if out := sluice("get", "ks").wants(t, exitOK).out; !strings.Contains(out, "Terminating") ||
		!strings.Contains(out, "held by finalizers: "+finalizer) {
		t.Errorf("a Kustomization that is being deleted is shown as\n%s", out)
	}

	t.Log("the Kustomization goes, and what it made stays behind")
	if err := c.Delete(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(ks), ks); err != nil {
		t.Fatal(err)
	}
	made, timeout := ks.DeepCopy(), 2*time.Second
	ks.Finalizers = nil
	if err := c.Update(t.Context(), ks); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the command names what is not gone", func() error {
		timeout *= 2 // for a slow machine: it passes in any case
		made.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "app"}
		if err := c.Create(t.Context(), made); client.IgnoreAlreadyExists(err) != nil {
			return err
		}
		made.Status = ks.Status
		if err := c.Status().Patch(t.Context(), made, statusOf(t, made)); err != nil {
			return err
		}
		return sluice("delete", "ks", "app", "--silent", "--timeout", timeout.String()).check(exitFailed,
			"is deleted, but 1 object that it made is not gone after "+timeout.String()+": ConfigMap/"+namespace+
				"/held (finalizers: "+finalizer+")")
	})
	held.Finalizers = nil
	if err := c.Patch(t.Context(), held, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
}
