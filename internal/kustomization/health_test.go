package kustomization_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

const (
	// runsOut is a timeout that expires in the test, but is long enough for a pass on a slow machine.
	runsOut = 5 * time.Second
)

func TestNewRevisionCancelsHealthChecks(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	first := s.Git.Commit("app", map[string]string{"d.yaml": system.WebDeployment("web:1", "")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", system.WaitForHealth(system.NoTimeout))
	s.Ready("app", first)

	t.Log("the health of the previous generation does not count")
	second := s.Git.Commit("app", map[string]string{"d.yaml": system.WebDeployment("web:2", "not-ready")})
	s.RequestFetch("app")
	s.Unhealthy("app", metav1.ConditionUnknown, second)

	third := s.Git.Commit("app", map[string]string{"d.yaml": system.WebDeployment("web:3", "")})
	s.RequestFetch("app")
	s.Ready("app", third)
	s.HasEvent("app", "HealthCheckCanceled", second)
}

func TestExcludedObjectsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	ignored := strings.Replace(system.WebDeployment("web:1", "not-ready"), "metadata: {",
		"metadata: {annotations: {kustomize.toolkit.fluxcd.io/ssa: Ignore}, ", 1)
	if !strings.Contains(ignored, "ssa: Ignore") {
		t.Fatal(ignored)
	}
	commit := s.Git.Commit("app", map[string]string{"d.yaml": ignored, "a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", system.WaitForHealth(system.NoTimeout))
	s.Ready("app", commit)
	s.ConfigMapHas("a", "1")
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

func TestFailedObjectsFailAtOnce(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("app", map[string]string{"job.yaml": brokenJob})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", system.WaitForHealth(system.NoTimeout))
	s.NotReady(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "Job/"+s.Namespace+"/migrate Failed")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "exit code 1")
	s.Unhealthy("app", metav1.ConditionFalse, "exit code 1")
}

func TestJobsWithTTLRunOnce(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	expiring := func(image, fail string) string {
		return strings.NewReplacer("spec:\n  backoffLimit", "spec:\n  ttlSecondsAfterFinished: 0\n  backoffLimit",
			"job-failed", fail, "image: i", "image: "+image).Replace(brokenJob)
	}
	first := s.Git.Commit("app", map[string]string{"job.yaml": expiring("i:1", ""),
		"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", system.WaitForHealth(system.NoTimeout))
	s.Ready("app", first)
	s.Gone(&batchv1.Job{}, "migrate")

	t.Log("the expired Job is not drift, for a later revision and after a restart")
	second := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2")})
	s.RequestFetch("app")
	s.Ready("app", second)
	s.Stop()
	s.Start()
	s.edit("person", &corev1.ConfigMap{}, "a", `{"data":{"k":"9"}}`)
	s.HasEvent("app", "DriftCorrected", "ConfigMap/"+s.Namespace+"/a configured")
	if n := s.ran("migrate"); n != 1 {
		t.Errorf("the Job ran %d times", n)
	}

	t.Log("a request and a changed declaration run it again")
	s.Reconcile(&kustomizev1.Kustomization{}, "app")
	testenv.Eventually(s, "the Job runs again", func() error {
		if n := s.ran("migrate"); n != 2 {
			return fmt.Errorf("the Job ran %d times", n)
		}
		return nil
	})
	s.Git.Commit("app", map[string]string{"job.yaml": expiring("i:2", "job-failed")})
	s.RequestFetch("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "Job/"+s.Namespace+"/migrate")
	s.Gone(&batchv1.Job{}, "migrate")
	s.Unhealthy("app", metav1.ConditionFalse, "Job/"+s.Namespace+"/migrate")
}

// ran returns how many times the controllers created a Job.
func (s *harness) ran(job string) int {
	writes := s.Requests.Matching("PATCH /apis/batch/v1/namespaces/" + s.Namespace + "/jobs/" + job + "?")
	return len(slices.DeleteFunc(writes, func(w string) bool { return strings.Contains(w, "dryRun") }))
}

func TestFailedObjectsAreWaitedForWithFeatureGate(t *testing.T) {
	t.Parallel()
	s := newHarness(t, func(o *options.Options) {
		o.FeatureGates = map[string]string{"DisableFailFastBehavior": "true"}
	})
	s.Git.Commit("app", map[string]string{"job.yaml": brokenJob})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", system.WaitForHealth(runsOut))
	s.NotReady(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "health check failed after 5s")
}

func TestHealthCheckExpressions(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	expressions := func(k *kustomizev1.Kustomization) {
		k.Spec.HealthCheckExprs = []kustomizev1.HealthCheckExpr{{
			APIVersion: "v1", Kind: "ConfigMap", InProgress: "data.k == 'begun'", Failed: "data.k == 'bad'",
			Current: "data.k == 'good'",
		}}
	}
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "begun")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", system.WaitForHealth(system.NoTimeout), expressions)
	s.Unhealthy("app", metav1.ConditionUnknown, commit)
	s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "bad")})
	s.RequestFetch("app")
	s.NotReady(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "'data.k == 'bad'' is true")
	commit = s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "good")})
	s.RequestFetch("app")
	s.Ready("app", commit)
}

func TestHealthChecksOfOtherObjects(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	commit := s.Git.Commit("app", map[string]string{"base/d.yaml": system.WebDeployment("web:1", "not-ready"),
		"top/a.yaml": system.ConfigMap("top", "1")})
	s.GitRepository("app")
	s.Kustomization("base", "app", "base", system.WaitForHealth(system.NoTimeout))
	s.Kustomization("top", "app", "top", func(k *kustomizev1.Kustomization) {
		k.Spec.Timeout = &meta.Duration{Duration: system.NoTimeout}
		k.Spec.HealthChecks = []meta.ObjectReference{
			{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization", Name: "base", Namespace: s.Namespace},
			{APIVersion: "v1", Kind: "ConfigMap", Name: "made-by-hand", Namespace: s.Namespace},
		}
	})
	s.Unhealthy("top", metav1.ConditionUnknown, commit)
	s.ConfigMapHas("top", "1")
	commit = s.Git.Commit("app", map[string]string{"base/d.yaml": system.WebDeployment("web:2", "")})
	s.RequestFetch("app")
	s.Ready("base", commit)
	s.Unhealthy("top", metav1.ConditionUnknown, commit)
	s.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "made-by-hand"}})
	s.Ready("top", commit)
}

func TestMissingObjectsAreNamedAtTimeout(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Timeout = &meta.Duration{Duration: runsOut}
		k.Spec.HealthChecks = []meta.ObjectReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone",
			Namespace: s.Namespace}}
	})
	s.NotReady(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "ConfigMap/"+s.Namespace+
		"/gone NotFound: the object does not exist")
}
