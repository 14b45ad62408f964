package ui

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// configMap returns a manifest.
func configMap(name, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {value: '" + value + "'}\n"
}

// world is a cluster in which controllers made everything that the pages show.
type world struct {
	*system.Images
}

// newWorld starts the controllers and waits until all objects are what the tests expect.
func newWorld(s *system.Images) *world {
	w := &world{Images: s}
	for _, name := range []string{"shop", "payments"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := s.Client.Create(s.Context(), namespace); err != nil {
			s.Fatal(err)
		}
	}
	w.payments()
	s.Namespace = "shop"
	w.shop()
	w.promotion()
	w.failures()
	w.west()
	w.images()
	w.awaitRevert()
	return w
}

// policies installs the admission policies, without which no approval counts.
func (w *world) policies() {
	objects, err := config.Policies()
	if err != nil {
		w.Fatal(err)
	}
	for _, o := range objects {
		if err := w.Client.Create(w.Context(), o); err != nil {
			w.Fatal(err)
		}
	}
}

// shop is an application with two parts, and a third one behind a gate.
func (w *world) shop() {
	commit := w.Git.Commit("app", map[string]string{
		"web/web.yaml":      webDeployment(w.Registry.Host + "/web:1.1.0"),
		"web/settings.yaml": configMap("web", "1"),
		"api/api.yaml":      configMap("api", "1"), "checkout/checkout.yaml": configMap("checkout", "1"),
		"report/report.yaml": configMap("report", "1"), "worker/worker.yaml": worker,
	})
	w.policies()
	w.GitRepository("app")
	w.Gate("release")
	w.Create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "audit"},
		Spec: gatingv1.GateSpec{Interval: meta.DurationOf(time.Minute), Default: gatingv1.Opened,
			Approvals: &gatingv1.Approvals{Required: 1}}})
	w.Kustomization("report", "app", "report", func(k *kustomizev1.Kustomization) {
		k.Spec.Gated = meta.Gated{Gates: system.GateRefs("audit")}
	})
	w.Create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "nights"},
		Spec: gatingv1.GateSpec{Interval: meta.DurationOf(time.Minute), Default: gatingv1.Closed,
			Schedule: []gatingv1.ScheduleEntry{{Name: "night", State: gatingv1.Opened, Cron: "0 22 * * *",
				Duration: &meta.Duration{Duration: 6 * time.Hour}}}}})
	w.Kustomization("web", "app", "web", system.WaitForHealth(2*time.Minute))
	w.Kustomization("worker", "app", "worker", system.WaitForHealth(2*time.Minute))
	w.Kustomization("api", "app", "api", func(k *kustomizev1.Kustomization) {
		k.Spec.DependsOn = []meta.DependencyReference{{NamespacedName: meta.NamespacedName{Name: "web"}}}
	})
	w.Kustomization("checkout", "app", "checkout", func(k *kustomizev1.Kustomization) {
		k.Spec.Gated = meta.Gated{Gates: system.GateRefs("release")}
	})
	w.Ready("web", commit)
	w.Ready("api", commit)
	w.Ready("worker", commit)
	w.usage()
	w.awaitPending("checkout", commit)
	w.awaitPending("report", commit)
}

// worker is a workload with several pods whose logs are JSON, and a CronJob.
const worker = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: worker}
spec:
  replicas: 3
  selector: {matchLabels: {app: worker}}
  template:
    metadata:
      labels: {app: worker}
      annotations:
        playground.sluice.dev/log: |
          {"level":"info","msg":"started","version":"2.4.1","time":"2026-11-29T05:00:00Z"}
          {"level":"info","msg":"order taken","order":4711,"customer":"ada"}
          {"level":"warn","msg":"the queue is slow","waits":"2.4s"}
          {"level":"error","msg":"card was refused","order":4711,"attempt":2,"cause":{"code":"51"}}
          level=info msg="order sent" order=4712
          GET /healthz 200 in 0.4 ms
        playground.sluice.dev/previous-log: |
          panic: out of cards
    spec: {containers: [{name: worker, image: "registry.example/shop/worker:2.4.1"}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: backup}
spec:
  schedule: 0 4 * * *
  jobTemplate:
    spec: {template: {spec: {restartPolicy: Never, containers: [{name: backup, image: "registry.example/backup:1"}]}}}
`

// usage is what pods use, as metrics-server would say it.
func (w *world) usage() {
	set := definitions.ServePodMetrics(w, testenv.Cluster(w))
	var pods corev1.PodList
	if err := w.Client.List(w.Context(), &pods, client.InNamespace("shop")); err != nil {
		w.Fatal(err)
	}
	for i, p := range pods.Items {
		set(p.Namespace, p.Name, fmt.Sprint(20+30*i, "m"), fmt.Sprint(48+16*i, "Mi"))
	}
}

// west is a cluster that does not answer.
func (w *world) west() {
	kubeconfig := `{apiVersion: v1, kind: Config, current-context: west, clusters: [{name: west, cluster: {` +
		`server: "https://west.invalid:6443"}}], users: [{name: west, user: {token: x}}], contexts: [{name: west, ` +
		`context: {cluster: west, user: west}}]}`
	w.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "west"},
		StringData: map[string]string{"value": kubeconfig}})
	w.Kustomization("catalog-west", "app", "api", func(k *kustomizev1.Kustomization) {
		k.Spec.KubeConfig = &meta.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: "west"}}
	})
	w.fails(&kustomizev1.Kustomization{}, "catalog-west", "cannot be reached")
}

// webDeployment is a workload whose pods have a log with HTML in it.
func webDeployment(image string) string {
	return strings.Replace(system.WebDeployment(image, ""), "annotations: {",
		`annotations: {playground.sluice.dev/log: "first line\n<b>second</b> line\n", `, 1)
}

// failures is a source that fails with three dependents.
func (w *world) failures() {
	w.Git.Commit("legacy", map[string]string{"a.yaml": configMap("legacy", "1")})
	w.GitRepository("legacy", func(g *sourcev1.GitRepository) { g.Spec.Reference.Branch = "gone" })
	for _, name := range []string{"legacy-billing", "legacy-mail", "legacy-search"} {
		w.Kustomization(name, "legacy", "./")
	}
	w.fails(&sourcev1.GitRepository{}, "legacy", "")
}

// fails waits until an object is not Ready with a message that contains a text.
func (w *world) fails(o reconcile.Object, name, text string) {
	w.Helper()
	testenv.Eventually(w, name+" fails", func() error {
		if err := w.Get(o, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, reconcile.TypeReady)
		if c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, text) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

// images is an image with a policy that selects a newer one than the one that runs, and what can commit it.
func (w *world) images() {
	w.Push("web", time.Now(), "1.0.0", "1.1.0", "1.2.0")
	w.ImageRepository("web")
	w.ImagePolicy("web", "web", system.BySemVer(">=1"))
	w.Latest("web", "1.2.0")
	w.ImageUpdateAutomation("releases", "app", func(a *imagev1.ImageUpdateAutomation) { a.Spec.Suspend = true })
}

// payments is a namespace that belongs to another team.
func (w *world) payments() {
	w.Namespace = "payments"
	commit := w.Git.Commit("ledger", map[string]string{"a.yaml": configMap("ledger", "1")})
	w.GitRepository("ledger")
	w.Kustomization("ledger", "ledger", "./")
	w.Ready("ledger", commit)
}
