package gate_test

import (
	"fmt"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// job returns a Job with the image of a version, which completes, or fails at once.
func job(name, version, fail string) string {
	return fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nmetadata: {name: %s}\nspec:\n  backoffLimit: 0\n  template:\n"+
		"    metadata: {annotations: {playground.sluice.dev/fail: %q}}\n"+
		"    spec:\n      restartPolicy: Never\n      containers: [{name: main, image: \"shop:%s\"}]\n",
		name, fail, version)
}

// ran waits until the Job of a version is complete.
func (s *harness) ran(name, version string) {
	s.Helper()
	testenv.Eventually(s, name+" ran with "+version, func() error {
		j := &batchv1.Job{}
		if err := s.Get(j, name); err != nil {
			return err
		}
		if image := j.Spec.Template.Spec.Containers[0].Image; image != "shop:"+version || j.Status.Succeeded != 1 {
			return fmt.Errorf("%s %+v", image, j.Status)
		}
		return nil
	})
}

// TestPageAboutJobs runs docs/jobs-before-and-after.md: a migration before an app and a smoke test after it. A version
// whose test fails is taken back, with its app.
func TestPageAboutJobs(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	version := func(v, smoke string) string {
		return s.Git.Commit("shop", map[string]string{"deploy/migrate/job.yaml": job("migrate", v, ""),
			"deploy/app/a.yaml": system.ConfigMap("app", v), "deploy/smoke/job.yaml": job("smoke", v, smoke)})
	}
	first := version("1", "")
	s.GitRepository("shop")
	for _, text := range testenv.Blocks(t, "jobs-before-and-after.md", "yaml") {
		if strings.Contains(text, "kind: Gate\n") {
			g := &gatingv1.Gate{}
			s.must(yaml.UnmarshalStrict([]byte(text), g))
			g.Namespace = s.Namespace
			s.Create(g)
			continue
		}
		k := &kustomizev1.Kustomization{}
		s.must(yaml.UnmarshalStrict([]byte(text), k))
		k.Namespace, k.Spec.TargetNamespace = s.Namespace, s.Namespace
		s.Create(k)
	}
	s.Ready("shop-smoke", first)
	s.ran("migrate", "1")
	s.ran("smoke", "1")
	s.ConfigMapHas("app", "1")
	second := version("2", "job-failed")
	s.RequestFetch("shop")
	for _, name := range []string{"shop-migrate", "shop"} { // for a moment only, so by events
		s.HasEvent(name, meta.ReconciliationSucceededReason, second)
	}
	s.ConfigMapHas("app", "1")
	s.ran("migrate", "1")
	s.ran("smoke", "1")
	for _, name := range []string{"shop-migrate", "shop", "shop-smoke"} {
		if k := s.Ready(name, first); k.Status.Reverted == nil || !strings.HasSuffix(k.Status.Reverted.From, second) {
			t.Errorf("%s: status.reverted is %+v", name, k.Status.Reverted)
		}
	}
}

func (s *harness) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}
