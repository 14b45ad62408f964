package campaign

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestCampaignReverts kills the process while a gate takes a failed revision back, and while another revision goes
// through its waves. Afterwards the objects have the healthy revision, the failed one is refused, and it never came to
// the second wave.
func TestCampaignReverts(t *testing.T) {
	const short, full = 3, 100
	e := begin(t, short, full)
	r := newReverted(t)
	e.each(func(i int, random *rand.Rand) {
		failed := r.push(fmt.Sprintf("bad-%d", i))
		<-time.After(time.Duration(random.IntN(1500)) * time.Millisecond)
		r.controller.restart()
		r.goesBack(failed)

		healthy := r.push(fmt.Sprintf("good-%d", i))
		<-time.After(time.Duration(random.IntN(1500)) * time.Millisecond)
		r.controller.restart()
		r.good, r.head = fmt.Sprintf("good-%d", i), healthy
		r.isDeployed()
	})
	e.note("%d kills while a revision was taken back, and as many while one went through waves", e.count)
}

// reverted is a tenant with a gate that takes failed revisions back, and that has two waves.
type reverted struct {
	*tenant
	controller *controller
	good, head string // that is healthy
}

// apps are the Kustomizations, by wave.
var apps = []string{"canary", "rest"}

func newReverted(t *testing.T) *reverted {
	t.Helper()
	r := &reverted{tenant: newTenant(t, testenv.NewGit(t)), good: "good"}
	r.head = r.push(r.good)
	r.create(&gatingv1.Gate{ObjectMeta: r.named("release"), Spec: gatingv1.GateSpec{
		Default: gatingv1.Opened, OnFailure: gatingv1.OnFailureRevert, Soak: &hour,
		Waves: []gatingv1.Wave{{Name: "canary",
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"wave": "canary"}}}}}}, r.source("app"))
	for _, name := range apps {
		r.create(r.app(name, func(k *kustomizev1.Kustomization) {
			k.Labels = map[string]string{"wave": name}
			k.Spec.Path, k.Spec.Wait, k.Spec.Timeout = name, true, &hour
			k.Spec.Gates = []meta.GateReference{{Name: "release"}}
			k.Spec.HealthCheckExprs = []meta.HealthCheckExpr{{APIVersion: "v1", Kind: "ConfigMap",
				Current: "!data.k.startsWith('bad')", Failed: "data.k.startsWith('bad')"}}
		}))
	}
	r.controller = start(t, settings{namespace: r.namespace, isAlone: true})
	r.isDeployed()
	return r
}

// push commits a value for both Kustomizations, and lets the source fetch it if it exists.
func (r *reverted) push(value string) (hash string) {
	r.Helper()
	files := map[string]string{}
	for _, name := range apps {
		files[name+"/app.yaml"] = configMap(name, value)
	}
	hash = r.git.Commit(r.repo, files)
	if r.controller != nil {
		r.fetch()
	}
	return hash
}

// isDeployed waits until both Kustomizations have the healthy commit.
func (r *reverted) isDeployed() {
	r.Helper()
	for _, name := range apps {
		testenv.Eventually(r, name+" has "+r.good, func() error {
			k, value, err := r.read(name)
			if err != nil || value != r.good || !reconcile.IsReady(k) ||
				!strings.HasSuffix(k.Status.LastAppliedRevision, r.head) {
				return fmt.Errorf("value %s, %s, %+v (%w)", value, k.Status.LastAppliedRevision,
					k.Status.Conditions, err)
			}
			return nil
		})
	}
}

// goesBack waits until a failed commit waits at the gate, both Kustomizations have the healthy one, and the gate
// refuses the failed one.
func (r *reverted) goesBack(failed string) {
	r.Helper()
	testenv.Eventually(r, "the gate refuses the failed commit", func() error {
		g := &gatingv1.Gate{}
		err := r.client.Get(context.Background(), types.NamespacedName{Namespace: r.namespace, Name: "release"}, g)
		for _, f := range g.Status.Failures {
			if strings.HasSuffix(f.Revision, failed) && f.ResolvedAt != nil {
				return err
			}
		}
		return fmt.Errorf("failures are %+v (%w)", g.Status.Failures, err)
	})
	r.isDeployed()
	for _, name := range apps {
		testenv.Eventually(r, "the failed commit waits in "+name, func() error {
			k, value, err := r.read(name)
			if strings.HasPrefix(value, "bad") && name != apps[0] {
				r.Fatalf("the second wave has %s", value)
			}
			if p := k.Status.Pending; err != nil || p == nil || !strings.HasSuffix(p.Revision, failed) ||
				value != r.good {
				return fmt.Errorf("value %s, pending %+v, reverted %+v (%w)", value, p, k.Status.Reverted, err)
			}
			return nil
		})
	}
}

// read returns a Kustomization and the value of its ConfigMap.
func (r *reverted) read(name string) (*kustomizev1.Kustomization, string, error) {
	k := &kustomizev1.Kustomization{}
	if err := r.client.Get(context.Background(), types.NamespacedName{Namespace: r.namespace, Name: name},
		k); err != nil {
		return k, "", err
	}
	value, err := r.tenant.value(name)
	return k, value, err
}
