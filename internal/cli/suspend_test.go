package cli

import (
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestSuspendAndResume(t *testing.T) {
	c, namespace := withDefinitions(t)
	samples(t, c, namespace)
	suspendedNow := func(name string) bool {
		t.Helper()
		ks := &kustomizev1.Kustomization{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, ks); err != nil {
			t.Fatal(err)
		}
		return ks.Spec.Suspend
	}
	at(t, "suspend", "ks", "none", "fresh", "-n", namespace).wants(t, exitFailed, "fresh' suspended", "none' not found")
	if !suspendedNow("fresh") {
		t.Error("the error for one name kept the others from being suspended")
	}
	at(t, "resume", "ks", "--all", "--wait=false", "-n", namespace).
		wants(t, exitOK, "common' resumed", "fresh' resumed")
	if suspendedNow("common") || suspendedNow("fresh") {
		t.Error("not all objects were resumed")
	}
	at(t, "suspend", "source", "git", "--all", "-n", namespace).wants(t, exitOK, "app' suspended", "lost' suspended")
	at(t, "suspend", "ks", "--all", "-n", testenv.Namespace(t)).wants(t, exitOK, "no Kustomization found in namespace")
	at(t, "reconcile", "source", "git", "app", "-n", namespace).
		wants(t, exitFailed, "is suspended", "sluice resume source git app")

	split := &extensionsv1beta1.ArtifactGenerator{}
	for line, want := range map[string]string{"resume artifact generator split --wait=false": "",
		"suspend artifact ag split": extensionsv1beta1.ReconcileDisabled} {
		at(t, append(strings.Fields(line), "-n", namespace)...).wants(t, exitOK)
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "split"}, split); err != nil {
			t.Fatal(err)
		}
		if got := split.Annotations[extensionsv1beta1.ReconcileAnnotation]; got != want {
			t.Errorf("after %s the annotation is %q, want %q", line, got, want)
		}
	}
}

// TestWithoutControllers checks the errors of commands that wait if no controller runs.
func TestWithoutControllers(t *testing.T) {
	c, namespace := withDefinitions(t)
	samples(t, c, namespace)
	expires(t, []string{"reconcile", "ks", "fresh", "-n", namespace}, "was not reconciled within ",
		"Check that the controllers are running")
	expires(t, []string{"resume", "ks", "common", "-n", namespace}, "common' resumed",
		"Check that the controllers are running")
	expires(t, []string{"reconcile", "source", "chart", "app", "--with-source", "-n", namespace},
		"requesting a reconcile of HelmRepository")
	parts := &kustomizev1.Kustomization{}
	parts.Name, parts.Namespace, parts.Spec.Interval.Duration = "parts", namespace, 60e9
	parts.Spec.SourceRef.Kind, parts.Spec.SourceRef.Name = sourcev1.ExternalArtifactKind, "part"
	if err := c.Create(t.Context(), parts); err != nil {
		t.Fatal(err)
	}
	at(t, "reconcile", "ks", "parts", "--with-source", "-n", namespace).
		wants(t, exitFailed, "ArtifactGenerator '"+namespace+"/split' is suspended")

	ended := make(chan result, 1)
	go func() {
		ended <- runWith(t.Context(), "", "reconcile", "source", "git", "lost", "-n", namespace, "--kubeconfig",
			testenv.Kubeconfig(t))
	}()
	lost := &sourcev1.GitRepository{}
	testenv.Eventually(t, "the request is written", func() error {
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "lost"}, lost); err != nil {
			return err
		}
		if cluster.ReconcileRequest(lost) == "" {
			return errors.New("no annotation yet")
		}
		return nil
	})
	if err := c.Delete(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	r := <-ended
	if r.code != exitFailed || !strings.Contains(r.err, "lost' was deleted while waiting") &&
		!strings.Contains(r.err, "not found") {
		t.Errorf("exit code %d, standard error:\n%s", r.code, r.err)
	}
}
