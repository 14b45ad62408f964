package helmrelease_test

import (
	"bytes"
	"log/slog"
	"testing"

	helmaction "helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	helmkube "helm.sh/helm/v4/pkg/kube"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// helm returns a configuration of Helm's library with its own client, for releases in the namespace.
func (h *harness) helm() *helmaction.Configuration {
	h.Helper()
	flags := genericclioptions.NewConfigFlags(true)
	flags.KubeConfig, flags.Namespace = ptr.To(testenv.Kubeconfig(h)), ptr.To(h.Namespace)
	cfg := helmaction.NewConfiguration(helmaction.ConfigurationSetLogger(slog.DiscardHandler))
	if err := cfg.Init(flags, h.Namespace, "secret"); err != nil {
		h.Fatal(err)
	}
	return cfg
}

// loadChart returns the chart app with a template.
func (h *harness) loadChart(version string, files map[string]string) *chart.Chart {
	h.Helper()
	c, err := loader.LoadArchive(bytes.NewReader(h.archive(version, files)))
	if err != nil {
		h.Fatal(err)
	}
	return c
}

// TestReleasesOfHelmAreTakenOver installs releases by Helm's library, as Helm 3 and Helm 4 do. They are adopted without
// an upgrade and without a write to their objects, and Helm still works on them.
func TestReleasesOfHelmAreTakenOver(t *testing.T) {
	t.Parallel()
	h := sharedHarness(t)
	h.publish("1.0.0", nil)
	for name, serverSide := range map[string]bool{"helm-3": false, "helm-4": true} {
		t.Run(name, func(t *testing.T) {
			h := &harness{releases{h.For(t)}, h.repository}
			i := helmaction.NewInstall(h.helm())
			i.ReleaseName, i.Namespace, i.ServerSideApply, i.WaitStrategy = name, h.Namespace, serverSide,
				helmkube.HookOnlyStrategy
			if _, err := i.Run(h.loadChart("1.0.0", nil), map[string]any{"color": "blue"}); err != nil {
				t.Fatal(err)
			}
			before := h.configMap(name+"-config", "blue")
			h.release(name, values(map[string]any{"color": "blue"}), func(s *helmv2.HelmReleaseSpec) {
				s.DriftDetection = &meta.DriftDetection{Mode: meta.DriftEnabled}
			})
			r := h.ready(name, 1)
			after := &corev1.ConfigMap{}
			if err := h.Get(after, name+"-config"); err != nil {
				t.Fatal(err)
			}
			if after.ResourceVersion != before.ResourceVersion || h.statuses(name) != "1 deployed" {
				t.Errorf("the release was changed: %s", h.statuses(name))
			}
			if r.Status.Inventory == nil || len(r.Status.Inventory.Entries) != 1 {
				t.Errorf("the inventory is %+v", r.Status.Inventory)
			}
			h.edit(name, values(map[string]any{"color": "green"}))
			h.ready(name, 2)
			h.configMap(name+"-config", "green")

			h.edit(name, func(s *helmv2.HelmReleaseSpec) { s.Suspend = true })
			h.Suspended(helmv2.HelmReleaseKind, name)
			b := helmaction.NewRollback(h.helm())
			b.Version, b.WaitStrategy = 1, helmkube.HookOnlyStrategy
			b.ForceConflicts = h.stored(name)[0].ApplyMethod == "ssa"
			if err := b.Run(name); err != nil {
				t.Fatalf("Helm cannot roll the release back: %v", err)
			}
			h.configMap(name+"-config", "blue")
			h.edit(name, func(s *helmv2.HelmReleaseSpec) { s.Suspend = false })
			h.ready(name, 4)
			h.configMap(name+"-config", "green")
		})
	}
}

// TestARestartChangesNothing starts other controllers with the status that earlier ones wrote.
func TestARestartChangesNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.publish("1.0.0", nil)
	h.release("app", func(s *helmv2.HelmReleaseSpec) {
		s.DriftDetection = &meta.DriftDetection{Mode: meta.DriftEnabled}
		s.CommonMetadata = &meta.CommonMetadata{Labels: map[string]string{"team": "web"}}
	})
	h.ready("app", 1)
	before := h.configMap("app-config", "red")
	h.Stop()
	h.Requests.Reset()
	h.Start()
	h.Reconcile(&helmv2.HelmRelease{}, "app")
	after := h.configMap("app-config", "red")
	if before.ResourceVersion != after.ResourceVersion || h.statuses("app") != "1 deployed" {
		t.Errorf("the release was changed: %s", h.statuses("app"))
	}
	if before.Labels["team"] != "web" {
		t.Errorf("the labels are %v", before.Labels)
	}
	if writes := h.Requests.Matching("PUT /api/v1/namespaces/" + h.Namespace + "/secrets"); len(writes) > 0 {
		t.Errorf("the storage was written: %q", writes)
	}
}
