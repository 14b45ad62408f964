package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	kills     = 10               // number of kills
	fullKills = 100              // in make test-full
	killing   = 10 * time.Minute // maximum duration, for slow machines
)

// The test commits changes while the controllers are killed at random times, and then compares the objects in
// the cluster with the last commit.
func TestKillAtRandomTimesLosesNothing(t *testing.T) {
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := testenv.Kubeconfig(t)
	if out, err := exec.Command(sluice, "install", "--crds-only", "--kubeconfig", kubeconfig).
		CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	namespace, git, storage := testenv.Namespace(t), testenv.NewGit(t), t.TempDir()
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	wanted := map[string]string{}
	commit := func() string { return git.Commit("app", step(random, wanted)) }
	commit()
	for _, o := range declarations(namespace, git.URL) {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	want := kills
	if testenv.IsFull() {
		want = fullKills
	}
	began := time.Now()
	for n := 0; n < want && time.Since(began) < killing; n++ {
		head := commit()
		process := controller(t, sluice, kubeconfig, namespace, storage)
		pull(t, c, namespace)
		// Half of the kills are during start and apply, the others right after an apply.
		if random.IntN(2) == 0 {
			<-time.After(time.Duration(random.IntN(600)) * time.Millisecond)
		} else {
			applied(t, c, namespace, head)
		}
		if err := process.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = process.Wait() // it was killed
	}
	head := commit()
	process := controller(t, sluice, kubeconfig, namespace, storage)
	defer func() {
		_ = process.Process.Signal(syscall.SIGTERM) // it may have stopped already
		_ = process.Wait()
	}()
	pull(t, c, namespace)
	applied(t, c, namespace, head)
	hasObjects(t, c, namespace, wanted)
}

// hasObjects waits until the namespace has exactly the wanted objects.
func hasObjects(t *testing.T, c client.Client, namespace string, wanted map[string]string) {
	t.Helper()
	testenv.Eventually(t, "the cluster has the objects of the last commit", func() error {
		var list corev1.ConfigMapList
		if err := c.List(context.Background(), &list, client.InNamespace(namespace)); err != nil {
			return err
		}
		found := 0
		for _, cm := range list.Items {
			if cm.Name == "kube-root-ca.crt" {
				continue
			}
			if value, ok := wanted[cm.Name]; !ok || cm.Data["k"] != value {
				return fmt.Errorf("%s has value %q, want %q (declared: %v)", cm.Name, cm.Data["k"], value, ok)
			}
			found++
		}
		if found != len(wanted) {
			return fmt.Errorf("%d objects, want %d", found, len(wanted))
		}
		return nil
	})
}

// step changes the declarations randomly and returns the changed files.
func step(random *rand.Rand, wanted map[string]string) map[string]string {
	files := map[string]string{}
	for range 1 + random.IntN(5) {
		name := fmt.Sprintf("cm-%d", random.IntN(20))
		if _, ok := wanted[name]; ok && random.IntN(3) == 0 && len(wanted) > 1 {
			delete(wanted, name)
			files[name+".yaml"] = ""
			continue
		}
		wanted[name] = fmt.Sprint(random.Uint32())
		files[name+".yaml"] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {k: %q}\n",
			name, wanted[name])
	}
	return files
}

func declarations(namespace, url string) []client.Object {
	minute := meta.Duration{Duration: time.Minute}
	return []client.Object{
		&sourcev1.GitRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"},
			Spec: sourcev1.GitRepositorySpec{URL: url + "/app", Interval: minute,
				Reference: &sourcev1.GitRepositoryRef{Branch: "main"}},
		},
		&kustomizev1.Kustomization{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"},
			Spec: kustomizev1.KustomizationSpec{
				Interval: minute, Prune: true, TargetNamespace: namespace,
				SourceRef: kustomizev1.SourceReference{Kind: "GitRepository",
					NamespacedName: meta.NamespacedName{Name: "app"}},
			},
		},
	}
}

func controller(t *testing.T, sluice, kubeconfig, namespace, storage string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(sluice, "controller", "--kubeconfig", kubeconfig, "-n", namespace,
		"--watch-all-namespaces=false",
		"--storage-path", storage, "--storage-addr", "127.0.0.1:0", "--metrics-addr", "0", "--health-addr", "0",
		"--receiverAddr", "0", "--events-addr", "0", "--images-addr", "0", "--min-retry-delay", "50ms", "--log-level",
		"error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// pull requests a fetch.
func pull(t *testing.T, c client.Client, namespace string) {
	t.Helper()
	o := &sourcev1.GitRepository{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app"}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, time.Now().
		Format(time.RFC3339Nano))
	if err := c.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// applied waits until a commit is applied.
func applied(t *testing.T, c client.Client, namespace, commit string) {
	t.Helper()
	testenv.Eventually(t, "commit "+commit+" is applied", func() error {
		k := &kustomizev1.Kustomization{}
		if err := c.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: "app"}, k); err != nil {
			return err
		}
		if !strings.HasSuffix(k.Status.LastAppliedRevision, commit) {
			return errors.New(k.Status.LastAppliedRevision)
		}
		return nil
	})
}
