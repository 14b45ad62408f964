package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	forever = 100 * time.Hour // a test that waits for it fails
	// runsOut is long enough for a pass of a slow machine, which it bounds, too.
	runsOut = 5 * time.Second
)

// waits makes a Kustomization wait for all that it applies.
func waits(timeout time.Duration) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) {
		k.Spec.Wait = true
		k.Spec.Timeout = &metav1.Duration{Duration: timeout}
	}
}

func webDeployment(image, fail string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {playground.sluice.dev/fail: %q}}
    spec: {containers: [{name: web, image: %q}]}
`, fail, image)
}

// unhealthy waits until the condition Healthy of a Kustomization is of a status, and says something.
func (s *system) unhealthy(name string, status metav1.ConditionStatus, says string) {
	s.Helper()
	testenv.Eventually(s, name+" waits", func() error {
		k := &kustomizev1.Kustomization{}
		if err := s.get(k, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(k.Status.Conditions, meta.HealthyCondition)
		if c == nil || c.Status != status || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v", k.Status.Conditions)
		}
		if reconcile.IsReady(k) {
			return errors.New("it is Ready")
		}
		return nil
	})
}

func TestANewRevisionEndsTheWaitForTheOneBefore(t *testing.T) {
	s := newSystem(t)
	first := s.git.Commit("app", map[string]string{"d.yaml": webDeployment("web:1", "")})
	s.source("app")
	s.sync("app", "app", "", waits(forever))
	s.ready("app", first)

	t.Log("what was healthy before it was changed is not healthy because of that")
	second := s.git.Commit("app", map[string]string{"d.yaml": webDeployment("web:2", "not-ready")})
	s.pull("app")
	s.unhealthy("app", metav1.ConditionUnknown, second)

	third := s.git.Commit("app", map[string]string{"d.yaml": webDeployment("web:3", "")})
	s.pull("app")
	s.ready("app", third)
	s.told("app", "HealthCheckCanceled", second)
}

const brokenJob = `apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec:
  backoffLimit: 0
  template:
    metadata: {annotations: {playground.sluice.dev/fail: job-failed}}
    spec: {restartPolicy: Never, containers: [{name: c, image: i}]}
`

func TestWhatFailedIsNotWaitedFor(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("app", map[string]string{"job.yaml": brokenJob})
	s.source("app")
	s.sync("app", "app", "", waits(forever))
	s.fails(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "Job/"+s.namespace+"/migrate Failed")
	s.fails(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "exit code 1")
	s.unhealthy("app", metav1.ConditionFalse, "exit code 1")
}

func TestJobsThatExpireRunOnce(t *testing.T) {
	s := newSystem(t)
	expiring := func(image, fail string) string {
		return strings.NewReplacer("spec:\n  backoffLimit", "spec:\n  ttlSecondsAfterFinished: 0\n  backoffLimit",
			"job-failed", fail, "image: i", "image: "+image).Replace(brokenJob)
	}
	first := s.git.Commit("app", map[string]string{"job.yaml": expiring("i:1", ""), "a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("app", "app", "", waits(forever))
	s.ready("app", first)
	s.gone(&batchv1.Job{}, "migrate")

	t.Log("its end is no drift: a later revision finds it gone, and so does a new process")
	second := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "2")})
	s.pull("app")
	s.ready("app", second)
	s.stop()
	s.start()
	s.edit("person", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	s.told("app", "DriftCorrected", "ConfigMap/"+s.namespace+"/a configured")
	if n := s.ran("migrate"); n != 1 {
		t.Errorf("it ran %d times", n)
	}

	t.Log("a request runs it once more, and so does another declaration")
	s.handled(&kustomizev1.Kustomization{}, "app")
	testenv.Eventually(s, "it runs", func() error {
		if n := s.ran("migrate"); n != 2 {
			return fmt.Errorf("it ran %d times", n)
		}
		return nil
	})
	s.git.Commit("app", map[string]string{"job.yaml": expiring("i:2", "job-failed")})
	s.pull("app")
	s.fails(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "Job/"+s.namespace+"/migrate")
	s.gone(&batchv1.Job{}, "migrate")
	s.unhealthy("app", metav1.ConditionFalse, "Job/"+s.namespace+"/migrate")
}

// ran counts how often the controllers created a Job.
func (s *system) ran(job string) int {
	writes := s.requests.about("PATCH /apis/batch/v1/namespaces/" + s.namespace + "/jobs/" + job + "?")
	return len(slices.DeleteFunc(writes, func(w string) bool { return strings.Contains(w, "dryRun") }))
}

func TestWhatFailedIsWaitedForOnRequest(t *testing.T) {
	s := newSystem(t, func(o *Options) { o.FeatureGates = map[string]string{"DisableFailFastBehavior": "true"} })
	s.git.Commit("app", map[string]string{"job.yaml": brokenJob})
	s.source("app")
	s.sync("app", "app", "", waits(runsOut))
	s.fails(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "health check failed after 5s")
}

func TestExpressionsDecideOverHealth(t *testing.T) {
	s := newSystem(t)
	expressions := func(k *kustomizev1.Kustomization) {
		k.Spec.HealthCheckExprs = []kustomizev1.HealthCheckExpr{{
			APIVersion: "v1", Kind: "ConfigMap", InProgress: "data.k == 'begun'", Failed: "data.k == 'bad'",
			Current: "data.k == 'good'",
		}}
	}
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "begun")})
	s.source("app")
	s.sync("app", "app", "", waits(forever), expressions)
	s.unhealthy("app", metav1.ConditionUnknown, commit)
	s.git.Commit("app", map[string]string{"a.yaml": cm("a", "bad")})
	s.pull("app")
	s.fails(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "'data.k == 'bad'' holds")
	commit = s.git.Commit("app", map[string]string{"a.yaml": cm("a", "good")})
	s.pull("app")
	s.ready("app", commit)
}

func TestHealthOfOtherObjects(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"base/d.yaml": webDeployment("web:1", "not-ready"),
		"top/a.yaml": cm("top", "1")})
	s.source("app")
	s.sync("base", "app", "base", waits(forever))
	s.sync("top", "app", "top", func(k *kustomizev1.Kustomization) {
		k.Spec.Timeout = &metav1.Duration{Duration: forever}
		k.Spec.HealthChecks = []meta.ObjectReference{
			{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization", Name: "base", Namespace: s.namespace},
			{APIVersion: "v1", Kind: "ConfigMap", Name: "made-by-hand", Namespace: s.namespace},
		}
	})
	s.unhealthy("top", metav1.ConditionUnknown, commit)
	s.configMap("top", "1")
	commit = s.git.Commit("app", map[string]string{"base/d.yaml": webDeployment("web:2", "")})
	s.pull("app")
	s.ready("base", commit)
	s.unhealthy("top", metav1.ConditionUnknown, commit)
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "made-by-hand"}})
	s.ready("top", commit)
}

func TestObjectsThatAreMissedAreNamedAtTheTimeOut(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Timeout = &metav1.Duration{Duration: runsOut}
		k.Spec.HealthChecks = []meta.ObjectReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone",
			Namespace: s.namespace}}
	})
	s.fails(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "ConfigMap/"+s.namespace+
		"/gone NotFound: the object does not exist")
}
