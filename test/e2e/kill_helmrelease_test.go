package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/release/common"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/helm/storage"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// Flags of the test that kills upgrades. The goal of the project is a run with -releasekills=1000.
var (
	releaseKills = flag.Int("releasekills", 0, "how often the controllers are killed during upgrades of a release; "+
		"0 for 4, and 8 in make test-full")
	releaseSeed = flag.Uint64("releaseseed", 0, "seed of the points in time of these kills; 0 for a random one")
)

// killedChart is a chart with a hook before and a hook after its objects, so that kills hit each phase of an upgrade.
// One of its objects exists only for even numbers.
var killedChart = map[string]string{
	"Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n",
	"templates/all.yaml": `apiVersion: v1
kind: ConfigMap
metadata: {name: first}
data: {number: {{ .Values.n | quote }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: second}
data: {number: {{ .Values.n | quote }}}
{{- if eq (mod .Values.n 2) 0 }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: even}
data: {number: {{ .Values.n | quote }}}
{{- end }}
`,
	"templates/before.yaml": killedHook("before", "pre-install,pre-upgrade"),
	"templates/after.yaml":  killedHook("after", "post-install,post-upgrade"),
}

func killedHook(name, events string) string {
	return fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s, annotations: {helm.sh/hook: "%s"}}
spec:
  backoffLimit: 0
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: example.com/hook}]}
`, name, events)
}

// The test changes the values of a HelmRelease and kills the controllers at a random time of the upgrade, again and
// again. Then other controllers complete it: the release is consistent in its history, and Ready.
func TestKillAtRandomTimesOfUpgradesLeavesAConsistentRelease(t *testing.T) {
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := testenv.Kubeconfig(t)
	if out, err := exec.Command(sluice, "install", "--crds-only", "--kubeconfig", kubeconfig).
		CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	k := newKilled(t)
	seed := *releaseSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	random, folder := rand.New(rand.NewPCG(seed, 0)), t.TempDir()
	run := func() *exec.Cmd { return controller(t, sluice, kubeconfig, k.namespace, folder) }
	process := run()
	defer func() {
		_ = process.Process.Signal(syscall.SIGTERM) // it may have stopped already
		_ = process.Wait()
	}()
	k.settles(0)
	kills := *releaseKills
	switch {
	case kills == 0 && testenv.IsFull():
		kills = 8
	case kills == 0:
		kills = 2
	}
	for n := 1; n <= kills; n++ {
		k.change(n)
		<-time.After(time.Duration(random.IntN(2500)) * time.Millisecond) // an upgrade takes about 2 s
		if err := process.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = process.Wait() // it was killed
		wanted := n
		if random.IntN(3) == 0 {
			wanted = n + 1 // the upgrade that was killed is never completed
			k.change(wanted)
		}
		process = run()
		k.settles(wanted)
	}
}

// killed is a HelmRelease whose upgrades are killed.
type killed struct {
	*testing.T
	client    client.Client
	namespace string
	releases  *storage.Driver
}

func newKilled(t *testing.T) *killed {
	t.Helper()
	cfg := testenv.Cluster(t)
	c, err := client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	k := &killed{T: t, client: c, namespace: testenv.Namespace(t)}
	k.releases = storage.New(typed.CoreV1().Secrets(k.namespace))
	git := testenv.NewGit(t)
	files := map[string]string{}
	for name, text := range killedChart {
		files["chart/"+name] = text
	}
	git.Commit("charts", files)
	hour := meta.Duration{Duration: time.Hour}
	for _, o := range []client.Object{
		&sourcev1.GitRepository{ObjectMeta: k.named("charts"), Spec: sourcev1.GitRepositorySpec{
			URL: git.URL + "/charts", Interval: hour, Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}},
		&sourcev1.HelmChart{ObjectMeta: k.named("app"), Spec: sourcev1.HelmChartSpec{Chart: "chart", Interval: hour,
			SourceRef: sourcev1.LocalHelmChartSourceReference{Kind: sourcev1.GitRepositoryKind, Name: "charts"}}},
		&helmv2.HelmRelease{ObjectMeta: k.named("app"), Spec: helmv2.HelmReleaseSpec{Interval: hour,
			ChartRef: &helmv2.ChartReference{Kind: sourcev1.HelmChartKind, Name: "app"}, Values: valuesOf(0)}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

func (k *killed) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: k.namespace, Name: name}
}

func valuesOf(n int) *apiextensionsv1.JSON {
	return &apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `{"n":%d}`, n)}
}

// change changes the values.
func (k *killed) change(n int) {
	k.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"values":{"n":%d}}}`, n))
	if err := k.client.Patch(k.Context(), &helmv2.HelmRelease{ObjectMeta: k.named("app")}, patch); err != nil {
		k.Fatal(err)
	}
}

// settles waits until the HelmRelease is Ready with the values, and checks what is stored and in the cluster.
func (k *killed) settles(n int) {
	k.Helper()
	testenv.Eventually(k, fmt.Sprintf("the release is consistent with n=%d", n), func() error {
		r := &helmv2.HelmRelease{}
		if err := k.client.Get(k.Context(), types.NamespacedName{Namespace: k.namespace, Name: "app"}, r); err != nil {
			return err
		}
		if !reconcile.IsReady(r) || len(r.Status.History) == 0 {
			return fmt.Errorf("conditions: %+v", r.Status.Conditions)
		}
		stored, err := k.releases.History(context.Background(), "app")
		if err != nil {
			return err
		}
		if len(stored) == 0 || stored[0].Version != r.Status.History[0].Version ||
			stored[0].Info.Status != common.StatusDeployed || stored[0].Config["n"] != float64(n) {
			return fmt.Errorf("the last release differs from status.history: %+v", r.Status.History)
		}
		for _, rel := range stored[1:] {
			if s := rel.Info.Status; s != common.StatusSuperseded && s != common.StatusFailed {
				return fmt.Errorf("release %d is %s beside a deployed one", rel.Version, s)
			}
		}
		return k.hasObjects(n)
	})
}

func (k *killed) hasObjects(n int) error {
	for name, wanted := range map[string]bool{"first": true, "second": true, "even": n%2 == 0} {
		cm := &corev1.ConfigMap{}
		err := k.client.Get(k.Context(), types.NamespacedName{Namespace: k.namespace, Name: name}, cm)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if found := err == nil; found != wanted || found && cm.Data["number"] != fmt.Sprint(n) {
			return errors.New(name + ": " + cm.Data["number"])
		}
	}
	return nil
}
