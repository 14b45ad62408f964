package gate_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/static"
	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/chartrepo"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestRolloutContinuesBehindClosedGate(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Gate("approval")
	s.TurnGate("approval", gatingv1.Opened)
	first := s.Git.Commit("app", map[string]string{"d.yaml": system.WebDeployment("web:1", "not-ready")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "", system.WaitForHealth(system.NoTimeout),
		func(k *kustomizev1.Kustomization) { k.Spec.Gates = system.GateRefs("approval") })
	s.Unhealthy("app", metav1.ConditionUnknown, first)

	t.Log("a closed gate or a new revision does not interrupt a running step")
	s.TurnGate("approval", gatingv1.Closed)
	k := &kustomizev1.Kustomization{}
	s.says(k, "app", "Approved", metav1.ConditionFalse, "GateClosed",
		fmt.Sprintf("Reconciliation is waiting approval, gate '%s/approval' is closed.", s.Namespace))
	second := s.Git.Commit("app", map[string]string{"d.yaml": system.WebDeployment("web:2", "")})
	s.RequestFetch("app")
	s.StoredArtifact("app", second)
	s.Reconcile(k, "app")
	s.Unhealthy("app", metav1.ConditionUnknown, first)
	if err := s.Get(k, "app"); err != nil || !apimeta.IsStatusConditionTrue(k.Status.Conditions, "Reconciling") {
		t.Errorf("%+v, %v", k.Status.Conditions, err)
	}

	t.Log("it completes, and then the next revision waits")
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "web"}}
	patch := `{"spec":{"template":{"metadata":{"annotations":{"playground.sluice.dev/fail":""}}}}}`
	if err := s.Client.Patch(t.Context(), web,
		client.RawPatch(types.StrategicMergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	s.Ready("app", first)
	s.pending("app", second, 0, 1, 0)
	s.TurnGate("approval", gatingv1.Opened)
	s.Ready("app", second)
}

// kept is an object that gates hold, and the state that it keeps in the meantime.
type kept struct {
	kind, name string
	object     interface {
		reconcile.Gated
		CommonStatus() *meta.Status
	}
	revision func() string
}

func TestGatesHoldEverySourceKind(t *testing.T) {
	t.Parallel()
	s, registry, server, charts := newHarness(t), ociregistry.New(t), s3server.New(t), chartrepo.New(t)
	s.Gate("freeze")
	s.TurnGate("freeze", gatingv1.Opened)
	layer := func(value string) {
		registry.Push("app", "latest", nil, static.NewLayer(system.Archive(t,
			map[string]string{"a.yaml": system.ConfigMap("oci", value)}),
			system.ContentMediaType))
	}
	layer("1")
	server.Put("apps", map[string]string{"a.yaml": system.ConfigMap("s3", "1")})
	charts.Publish(chartrepo.NewChart("app", "1.0.0"))
	createGatedSources(s, registry, server, charts)
	all := gatedSources()
	had := map[string]string{}
	eventuallyEach(t, s, all, "all are ready", func(k kept) error {
		if had[k.kind] = k.revision(); had[k.kind] == "" || !reconcile.IsReady(k.object) ||
			len(k.object.Held().Gates) != 1 {
			return fmt.Errorf("%+v", k.object.CommonStatus().Conditions)
		}
		return nil
	})

	s.TurnGate("freeze", gatingv1.Closed)
	eventuallyEach(t, s, all, "all know that the gate is closed", func(k kept) error {
		if !apimeta.IsStatusConditionTrue(k.object.CommonStatus().Conditions, "Blocked") {
			return fmt.Errorf("%+v", k.object.CommonStatus().Conditions)
		}
		return nil
	})
	changeSources(layer, server, charts, s, all)
	eventuallyEach(t, s, all, "all are blocked and ready, and report the pending change", func(k kept) error {
		held := k.object.Held().Pending
		switch {
		case !apimeta.IsStatusConditionTrue(k.object.CommonStatus().Conditions, "Blocked") ||
			!reconcile.IsReady(k.object):
			return fmt.Errorf("%+v", k.object.CommonStatus().Conditions)
		case k.revision() != had[k.kind]:
			t.Fatalf("%s moved to %s", k.kind, k.revision())
		case k.kind == "HelmChart": // its index is held too
			return nil
		case held == nil || held.Revision == "" || held.Revision == had[k.kind] || held.Since == nil:
			return fmt.Errorf("pending %+v", held)
		}
		return nil
	})

	s.TurnGate("freeze", gatingv1.Opened)
	eventuallyEach(t, s, all, "all move on", func(k kept) error {
		if k.revision() == had[k.kind] || apimeta.FindStatusCondition(k.object.CommonStatus().Conditions,
			"Blocked") != nil || k.object.Held().Pending != nil {
			return fmt.Errorf("%s, %+v", k.revision(), k.object.CommonStatus().Conditions)
		}
		return nil
	})
}

// createGatedSources creates an object of each kind of source that the gates hold.
func createGatedSources(s *harness, registry *ociregistry.Server, server *s3server.Server, charts *chartrepo.Server) {
	s.Git.Commit("app", map[string]string{"a/a.yaml": system.ConfigMap("a", "1")})
	gates := meta.Gated{Gates: system.GateRefs("freeze")}
	s.GitRepository("app")
	s.OCIRepository(registry, "app", func(o *sourcev1.OCIRepositorySpec) { o.Gated = gates })
	s.Bucket(server, func(b *sourcev1.Bucket) { b.Spec.Gated = gates })
	s.HelmRepository(charts, func(r *sourcev1.HelmRepositorySpec) { r.Gated = gates })
	s.HelmChart("app", func(c *sourcev1.HelmChartSpec) { c.Gated = gates })
	s.Create(&extensionsv1beta1.ArtifactGenerator{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "split"},
		Spec: extensionsv1beta1.ArtifactGeneratorSpec{
			Sources:   []extensionsv1beta1.SourceReference{{Alias: "app", Kind: "GitRepository", Name: "app"}},
			Artifacts: []extensionsv1beta1.OutputArtifact{system.ArtifactOutput("out", "@app/a/**")}, Gated: gates,
		},
	})
}

// gatedSources returns the objects to read.
func gatedSources() []kept {
	image, bucket, index, chart, split := &sourcev1.OCIRepository{}, &sourcev1.Bucket{}, &sourcev1.HelmRepository{},
		&sourcev1.HelmChart{}, &extensionsv1beta1.ArtifactGenerator{}
	of := func(o interface{ GetArtifact() *meta.Artifact }) func() string {
		return func() string {
			if o.GetArtifact() == nil {
				return ""
			}
			return o.GetArtifact().Revision
		}
	}
	all := []kept{
		{kind: "OCIRepository", name: "app", object: image, revision: of(image)},
		{kind: "Bucket", name: "apps", object: bucket, revision: of(bucket)},
		{kind: "HelmRepository", name: "charts", object: index, revision: of(index)},
		{kind: "HelmChart", name: "app", object: chart, revision: of(chart)},
		{kind: "ArtifactGenerator", name: "split", object: split,
			revision: func() string { return split.Status.ObservedSourcesDigest }},
	}
	return all
}

// changeSources publishes new content of all sources and requests a fetch.
func changeSources(layer func(value string), server *s3server.Server, charts *chartrepo.Server, s *harness,
	all []kept) {
	layer("2")
	server.Put("apps", map[string]string{"a.yaml": system.ConfigMap("s3", "2")})
	charts.Publish(chartrepo.NewChart("app", "1.0.0"), chartrepo.NewChart("app", "1.1.0"))
	moved := s.Git.Commit("app", map[string]string{"a/a.yaml": system.ConfigMap("a", "2")})
	s.RequestFetch("app")
	s.StoredArtifact("app", moved)
	for _, k := range all {
		if k.kind != "ArtifactGenerator" && k.kind != "HelmChart" {
			s.RequestReconcile(k.object, k.name)
		}
	}
}

// eventuallyEach waits until the check succeeds for all objects.
func eventuallyEach(t *testing.T, s *harness, all []kept, what string, check func(kept) error) {
	t.Helper()
	testenv.Eventually(t, what, func() error {
		var errs []error
		for _, k := range all {
			err := s.Get(k.object, k.name)
			if err == nil {
				err = check(k)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", k.kind, err))
			}
		}
		return errors.Join(errs...)
	})
}
