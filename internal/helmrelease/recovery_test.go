package helmrelease_test

import (
	"testing"

	"helm.sh/helm/v4/pkg/release/common"
	corev1 "k8s.io/api/core/v1"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
)

// TestInterruptedActionsAreRecovered leaves a release as a process that was killed leaves it.
func TestInterruptedActionsAreRecovered(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	for name, c := range map[string]struct {
		status common.Status
		next   bool // of a further version
		ready  int
	}{
		"install":   {status: common.StatusPendingInstall, ready: 2},
		"upgrade":   {status: common.StatusPendingUpgrade, next: true, ready: 3},
		"rollback":  {status: common.StatusPendingRollback, next: true, ready: 3},
		"uninstall": {status: common.StatusUninstalling, ready: 2},
	} {
		t.Run(name, func(t *testing.T) {
			h := h.in(t)
			h.release(name)
			h.ready(name, 1)
			h.edit(name, func(s *helmv2.HelmReleaseSpec) { s.Suspend = true })
			rel := h.stored(name)[0]
			rel.Info.Status = c.status
			var err error
			if c.next {
				rel.Version++
				err = h.driver().Storage(0).Create(rel)
			} else {
				err = h.driver().Storage(0).Update(rel)
			}
			if err != nil {
				t.Fatal(err)
			}
			h.edit(name, func(s *helmv2.HelmReleaseSpec) { s.Suspend = false })
			h.ready(name, c.ready)
			h.configMap(name+"-config", "red")
			if got := h.stored(name)[0]; got.Info.Status != common.StatusDeployed {
				t.Errorf("the stored release is %s", got.Info.Status)
			}
		})
	}
}

func TestALostReleaseIsInstalledAgainWithoutALoss(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(*steps, *corev1.Secret) error{
		"deleted": func(h *steps, s *corev1.Secret) error { return h.Client.Delete(h.Context(), s) },
		"corrupt": func(h *steps, s *corev1.Secret) error {
			s.Data["release"] = []byte("corrupt")
			return h.Client.Update(h.Context(), s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newSteps(t)
			h.publish("1.0.0", nil)
			h.release("app")
			h.ready("app", 1)
			before := h.configMap("app-config", "red")
			secret := &corev1.Secret{}
			if err := h.Get(secret, "sh.helm.release.v1.app.v1"); err != nil {
				t.Fatal(err)
			}
			if err := damage(h, secret); err != nil {
				t.Fatal(err)
			}
			h.reconcile("app")
			h.ready("app", 1)
			if after := h.configMap("app-config", "red"); after.UID != before.UID {
				t.Error("the object was created again")
			}
			if got, want := h.statuses("app"), "1 deployed"; got != want {
				t.Errorf("stored releases are %q, want %q", got, want)
			}
		})
	}
}

func TestAReleaseThatIsRenamedMoves(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	h.release("app")
	h.ready("app", 1)
	h.configMap("app-config", "red")
	h.edit("app", func(s *helmv2.HelmReleaseSpec) { s.ReleaseName = "other" })
	if err := h.Get(&corev1.ConfigMap{}, "other-config"); err != nil {
		t.Error(err)
	}
	h.Gone(&corev1.ConfigMap{}, "app-config")
	r := h.ready("app", 1)
	if r.Status.History[0].Name != "other" || h.statuses("app") != "" || h.statuses("other") != "1 deployed" {
		t.Errorf("the history is %+v; stored: %q and %q", r.Status.History, h.statuses("app"), h.statuses("other"))
	}
}

func TestTwoHelmReleasesDoNotShareARelease(t *testing.T) {
	t.Parallel()
	h := newSteps(t)
	h.publish("1.0.0", nil)
	h.release("app")
	h.ready("app", 1)
	h.release("second", values(map[string]any{"color": "blue"}),
		func(s *helmv2.HelmReleaseSpec) { s.ReleaseName = "app" })
	h.NotReady(&helmv2.HelmRelease{}, "second", "ReconciliationFailed",
		"Give one of them another spec.releaseName, or delete one")
	h.configMap("app-config", "red")
}
