package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// controllers runs `sluice controller` until stop is called.
func controllers(t *testing.T, flags ...string) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	storage, err := os.MkdirTemp("", "sluice-test-") // it may outlive the test
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan result, 1)
	args := []string{"controller", "--kubeconfig", testenv.Kubeconfig(t), "--storage-path", storage,
		"--storage-addr", "127.0.0.1:0",
		"--metrics-addr", "0", "--health-addr", "0", "--receiverAddr", "0", "--events-addr", "0", "--images-addr", "0",
		"--log-level", "error"}
	go func() { ended <- runWith(ctx, "", append(args, flags...)...) }()
	return func() error {
		cancel()
		if r := <-ended; r.code != exitOK {
			return fmt.Errorf("sluice controller exited with code %d:\n%s", r.code, r.err)
		}
		return os.RemoveAll(storage)
	}
}

var errNotDeleted = errors.New("the object still exists")

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\ndata:\n  at: "

// TestReconcile runs the commands that wait, with real controllers and a git server.
func TestReconcile(t *testing.T) {
	c, namespace := withControllers(t)
	git := testenv.NewGit(t)
	git.Commit("app", map[string]string{"deploy/app.yaml": configMap + `"1"`})
	in := metav1.ObjectMeta{Namespace: namespace, Name: "app"}
	hour := meta.Duration{Duration: 3600e9}
	kustomization := func(name, path string) *kustomizev1.Kustomization {
		ks := &kustomizev1.Kustomization{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		ks.Spec = kustomizev1.KustomizationSpec{Interval: hour, Path: path, Prune: true, TargetNamespace: namespace}
		ks.Spec.SourceRef.Kind, ks.Spec.SourceRef.Name = sourcev1.GitRepositoryKind, "app"
		return ks
	}
	repository := &sourcev1.GitRepository{ObjectMeta: in, Spec: sourcev1.GitRepositorySpec{
		URL: git.URL + "/app.git", Interval: hour, Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
	}}
	for _, o := range []client.Object{repository, kustomization("app", "./deploy"),
		kustomization("astray", "./nowhere")} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	at(t, "reconcile", "source", "git", "app", "-n", namespace).
		wants(t, exitOK, "requesting a reconcile of GitRepository", "app' is ready")
	at(t, "reconcile", "ks", "app", "-n", namespace).
		wants(t, exitOK, "Kustomization '"+namespace+"/app' is ready", "main@sha1:")

	commit := git.Commit("app", map[string]string{"deploy/app.yaml": configMap + `"2"`})
	at(t, "reconcile", "kustomization", "app", "--with-source", "-n", namespace).
		wants(t, exitOK, "of GitRepository", "of Kustomization", commit[:8])
	if r := at(t, "get", "ks", "app", "-n", namespace).
		wants(t, exitOK); !strings.Contains(r.out, "main@sha1:"+commit[:8]) {
		t.Errorf("the new commit is not applied:\n%s", r.out)
	}

	at(t, "reconcile", "ks", "astray", "-n", namespace).wants(t, exitFailed, "astray' is not ready: ", "nowhere")
	at(t, "reconcile", "ks", "none", "-n", namespace).
		wants(t, exitFailed, "none' not found", "sluice get kustomizations -A")

	at(t, "suspend", "ks", "app", "-n", namespace).wants(t, exitOK, "app' suspended")
	at(t, "reconcile", "ks", "app", "-n", namespace).
		wants(t, exitFailed, "is suspended", "sluice resume kustomization app")
	at(t, "resume", "ks", "app", "-n", namespace).wants(t, exitOK, "app' resumed", "app' is ready")

	// Delete the objects while the controllers run, which remove the finalizers.
	for _, o := range []client.Object{kustomization("app", ""), kustomization("astray", ""), repository} {
		if err := c.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		testenv.Eventually(t, o.GetName()+" is deleted", func() error {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o)
			if client.IgnoreNotFound(err) == nil && err != nil {
				return nil
			}
			return errNotDeleted
		})
	}
}
