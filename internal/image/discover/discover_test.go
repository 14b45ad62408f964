package discover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// env is a namespace on an API server with discovery.
type env struct {
	*testing.T
	client.Client
	namespace string
}

func newEnv(t *testing.T) *env {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), imagev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	cfg := testenv.Cluster(t)
	cfg.UserAgent = "discovery-" + t.Name()
	if _, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{Paths: []string{"../../../config/crd"},
		ErrorIfPathMissing: true, MaxTime: 3 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	w := &env{T: t, namespace: testenv.Namespace(t)}
	mgr, err := ctrlmanager.New(cfg, ctrlmanager.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(3 * time.Minute),
		Controller:              ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}})
	if err == nil {
		err = Register(mgr, w.namespace, Replica{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if w.Client, err = client.New(testenv.Cluster(t), client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

func (w *env) create(o client.Object) {
	w.Helper()
	o.SetNamespace(w.namespace)
	if err := w.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func (w *env) patch(o client.Object, patch string) {
	w.Helper()
	if err := w.Patch(w.Context(), o, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		w.Fatal(err)
	}
}

func (w *env) enable(annotations string) {
	w.Helper()
	w.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}},
		`{"metadata":{"labels":{"image.toolkit.fluxcd.io/discovery":"enabled"},"annotations":{`+annotations+`}}}`)
}

// has waits until the namespace has exactly these image objects. Digests are removed from names.
func (w *env) has(what string, want ...string) {
	w.Helper()
	testenv.Eventually(w.T, what, func() error {
		var repositories imagev1.ImageRepositoryList
		var policies imagev1.ImagePolicyList
		err := errors.Join(w.List(w.Context(), &repositories, client.InNamespace(w.namespace)),
			w.List(w.Context(), &policies, client.InNamespace(w.namespace)))
		if err != nil {
			return err
		}
		var got []string
		for _, r := range repositories.Items {
			got = append(got, fmt.Sprintf("repository %s every %s", r.Spec.Image, r.Spec.Interval.Duration))
		}
		for _, p := range policies.Items {
			repository := p.Spec.ImageRepositoryRef.Name
			if i := strings.LastIndex(repository, "-"); i > 0 && repository != "by-hand" {
				repository = repository[:i]
			}
			got = append(got, fmt.Sprintf("policy %s of %s automated=%s", p.Name, repository, p.Labels[plan.Automated]))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}

func pods(containers ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}}
	t.Spec.RestartPolicy = corev1.RestartPolicyAlways
	for i := 0; i < len(containers); i += 2 {
		t.Spec.Containers = append(t.Spec.Containers, corev1.Container{Name: containers[i], Image: containers[i+1]})
	}
	return t
}

var selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}

func TestDiscovery(t *testing.T) {
	w := newEnv(t)
	web := createWorkloads(w)

	t.Log("discovery is enabled")
	created := testenv.NewAuditLog(t)
	w.enable("")
	agent, webPolicy := "policy daemonset.agent.agent of ghcr-io-org-agent automated=",
		"policy deployment.web.app of ghcr-io-org-web automated=true"
	w.has("all workloads have image objects", agent, webPolicy, "repository ghcr.io/org/agent every 5m0s",
		"repository ghcr.io/org/backup every 5m0s",
		"repository ghcr.io/org/db every 1h0m0s", "repository ghcr.io/org/web every 5m0s")

	testenv.Eventually(t, "all creations are in the audit log", func() error {
		if n := created.Count(t, testenv.Request{Verb: "create", Namespace: w.namespace,
			Group:     imagev1.GroupVersion.Group,
			UserAgent: "discovery-", Code: 201}); n < 5 {
			return fmt.Errorf("%d of 3 repositories and 2 policies", n)
		}
		return nil
	})

	changeWorkload(t, w, web)

	deleteImageObjects(t, w, agent, webPolicy)

	t.Log("invalid annotations are reported as an event of the namespace")
	w.patch(web, `{"metadata":{"annotations":{"filter.fluxcd.io/app":"semver:newest"}}}`)
	w.has("the policy is deleted", agent, "repository ghcr.io/org/agent every 10m0s",
		"repository ghcr.io/org/backup every 10m0s",
		"repository ghcr.io/org/db every 1h0m0s", "repository ghcr.io/org/web every 10m0s")
	testenv.Eventually(t, "the event", func() error {
		var events eventsv1.EventList
		if err := w.List(t.Context(), &events); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Regarding.Kind == "Namespace" && e.Regarding.Name == w.namespace && e.Reason == "InvalidPolicy" &&
				strings.Contains(e.Note, "Deployment/web: annotation filter.fluxcd.io/app") {
				return nil
			}
		}
		return fmt.Errorf("not among %d events", len(events.Items))
	})

	t.Log("objects of deleted workloads are deleted; without the label all are deleted, except those of users")
	if err := w.Delete(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	w.has("the objects of the workload are deleted", agent, "repository ghcr.io/org/agent every 10m0s",
		"repository ghcr.io/org/backup every 10m0s", "repository ghcr.io/org/db every 1h0m0s")
	w.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}},
		`{"metadata":{"labels":{"image.toolkit.fluxcd.io/discovery":null}}}`)
	w.has("only objects of users are left", agent, "repository ghcr.io/org/db every 1h0m0s")
}

// createWorkloads creates a workload of each kind and an ImageRepository, and returns the Deployment.
func createWorkloads(w *env) *appsv1.Deployment {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web",
		Annotations: map[string]string{"fluxcd.io/automated": "true", "filter.fluxcd.io/app": "semver:~1.0"}},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(0)), Selector: selector,
			Template: pods("app", "ghcr.io/org/web:1.0.0")}}
	w.create(web)
	w.create(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(int32(0)), Selector: selector,
			Template: pods("db", "ghcr.io/org/db:3")}})
	w.create(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent",
		Annotations: map[string]string{"filter.fluxcd.io/agent": "glob:v*"}},
		Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pods("agent", "ghcr.io/org/agent:v1")}})
	job := batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pods("backup", "ghcr.io/org/backup:1")}}
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	w.create(&batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "backup"},
		Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", Suspend: ptr.To(true), JobTemplate: job}})
	byHand := &imagev1.ImageRepository{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"},
		Spec: imagev1.ImageRepositorySpec{Image: "ghcr.io/org/db", Interval: meta.Duration{Duration: 3600e9}}}
	w.create(byHand)
	return web
}

// changeWorkload changes the image and the annotation of the Deployment.
func changeWorkload(t *testing.T, w *env, web *appsv1.Deployment) {
	t.Helper()
	t.Log("unchanged objects are not written again")
	log := testenv.NewAuditLog(t)
	w.patch(web, `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"ghcr.io/org/web:1.0.1"}]}}}}`)
	testenv.Eventually(t, "the workloads are listed", func() error {
		if log.Count(t, testenv.Request{Verb: "list", Resource: "cronjobs", Namespace: w.namespace,
			UserAgent: "discovery-"}) == 0 {
			return errors.New("no request")
		}
		return nil
	})
	w.patch(web, `{"metadata":{"annotations":{"filter.fluxcd.io/app":"semver:~1.1"}}}`)
	testenv.Eventually(t, "the policy follows the annotation", func() error {
		p := &imagev1.ImagePolicy{}
		if err := w.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "deployment.web.app"},
			p); err != nil {
			return err
		}
		if p.Spec.Policy.SemVer.Range != "~1.1" {
			return errors.New(p.Spec.Policy.SemVer.Range)
		}
		return nil
	})
	for _, verb := range []string{"create", "update", "patch", "delete"} {
		for _, r := range log.Requests(t, testenv.Request{Verb: verb, Namespace: w.namespace,
			Group: imagev1.GroupVersion.Group, UserAgent: "discovery-"}) {
			// a create with a cache that lags behind is refused
			if r.Code < 400 && (r.Verb != "update" || r.Name != "deployment.web.app") {
				t.Errorf("unexpected request: %+v", r)
			}
		}
	}
}

// deleteImageObjects deletes the discovered policies, one of which a user took over.
func deleteImageObjects(t *testing.T, w *env, agent, webPolicy string) {
	t.Helper()
	t.Log("deleted objects are created again; objects without the label belong to users")
	w.patch(&imagev1.ImagePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "daemonset.agent.agent"}},
		`{"metadata":{"labels":{"image.toolkit.fluxcd.io/discovered":null}}}`)
	if err := w.DeleteAllOf(t.Context(), &imagev1.ImagePolicy{}, client.InNamespace(w.namespace),
		client.MatchingLabels{plan.Discovered: "true"}); err != nil {
		t.Fatal(err)
	}
	w.enable(`"image.toolkit.fluxcd.io/scan-interval":"10m"`)
	w.has("the deleted policy is back", agent, webPolicy, "repository ghcr.io/org/agent every 10m0s",
		"repository ghcr.io/org/backup every 10m0s",
		"repository ghcr.io/org/db every 1h0m0s", "repository ghcr.io/org/web every 10m0s")
}
