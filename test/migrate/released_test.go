package migrate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// releasedEnv names a directory with the programs kustomize-controller and helm-controller of a release of Flux. With
// it, they apply and install what the tests else apply and install in their way.
const releasedEnv = "SLUICE_FLUX"

func (f *flux) runsFlux() bool { return os.Getenv(releasedEnv) != "" }

// runFlux runs the released controllers until all Kustomizations and HelmReleases are Ready.
func (w *world) runFlux() {
	w.Helper()
	w.removeDefinition()
	for _, name := range []string{"kustomize-controller", "helm-controller"} {
		defer w.runReleased(name)()
	}
	for _, gvk := range fluxKinds {
		if gvk.Kind == "Kustomization" || gvk.Kind == "HelmRelease" {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(gvk)
			testenv.Eventually(w, "all of "+gvk.Kind+" are Ready", func() error {
				if err := w.List(w.Context(), list); err != nil {
					return err
				}
				for i := range list.Items {
					if err := isReady(&list.Items[i]); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

// isReady returns an error unless a controller of Flux says that the object is Ready.
func isReady(u *unstructured.Unstructured) error {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, raw := range conditions {
		c := raw.(map[string]any)
		if c["type"] == "Ready" && c["status"] == string(metav1.ConditionTrue) {
			return nil
		}
	}
	return fmt.Errorf("%s '%s': %v", u.GetKind(), client.ObjectKeyFromObject(u), conditions)
}

// runReleased starts a controller of Flux, and returns a function that ends it.
func (w *world) runReleased(name string) (stop func()) {
	w.Helper()
	log, err := os.Create(filepath.Join(w.TempDir(), name+".log"))
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(os.Getenv(releasedEnv), name), "--watch-all-namespaces=true",
		"--metrics-addr=0", "--health-addr=127.0.0.1:0", "--requeue-dependency=1s", "--concurrent=10")
	cmd.Env = append(os.Environ(), "RUNTIME_NAMESPACE="+w.namespace, "KUBECONFIG="+testenv.Kubeconfig(w))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if w.Failed() {
			b, _ := os.ReadFile(log.Name())
			w.Logf("%s:\n%s", name, b[max(0, len(b)-10000):])
		}
	}
}
