package campaign

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestCampaignRequestPoints kills the process after each write request of a new Kustomization: the API server has done
// it, and the process does not see the answer. While no process runs, a commit removes all objects of a kind, the
// Kustomization is deleted, or nothing changes. The next process must leave what is declared then, and nothing else.
func TestCampaignRequestPoints(t *testing.T) {
	const short, full = 3, 200
	e := begin(t, short, full)
	p := newPoints(t)
	reached := map[int]int{}
	e.each(func(i int, random *rand.Rand) {
		name := fmt.Sprint("app-", i)
		p.declare(name, bothKinds...)
		p.fetch()
		reached[p.killAt(1+random.IntN(mostWrites), func() { p.create(p.app(name, in(name))) })]++
		wanted := bothKinds
		switch random.IntN(3) {
		case 0:
		case 1:
			wanted = bothKinds[:2]
			p.declare(name, wanted...)
		case 2:
			wanted = nil
			p.delete(name)
		}
		p.controller.launch()
		p.fetch()
		p.becomes(name, wanted...)
		p.delete(name)
		p.becomes(name)
		p.controller.mustLive()
	})
	e.note("kills after the n-th write: %v", reached)
}

// mostWrites is how many requests write a new Kustomization of four objects: finalizer, inventory, objects, status.
const mostWrites = 7

var bothKinds = []string{"ConfigMap/a", "ConfigMap/b", "ServiceAccount/a", "ServiceAccount/b"}

// in sets the directory of a Kustomization.
func in(path string) func(*kustomizev1.Kustomization) {
	return func(k *kustomizev1.Kustomization) { k.Spec.Path = path }
}

// points is a tenant whose controller is killed after a write.
type points struct {
	*tenant
	proxy      *apiProxy
	controller *controller
	head       string
}

func newPoints(t *testing.T) *points {
	t.Helper()
	p := &points{tenant: newTenant(t, testenv.NewGit(t)), proxy: newAPIProxy(t)}
	p.commit("1")
	p.create(p.source("app"))
	p.controller = start(t, settings{namespace: p.namespace, isAlone: true, kubeconfig: p.proxy.kubeconfig})
	return p
}

// declare commits the objects of a Kustomization, such as ConfigMap/a, whose names begin with its name.
func (p *points) declare(name string, objects ...string) {
	p.Helper()
	var text strings.Builder
	for _, o := range objects {
		kind, suffix, _ := strings.Cut(o, "/")
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: %s\nmetadata: {name: %s-%s}\n", kind, name, suffix)
	}
	p.head = p.git.Commit(p.repo, map[string]string{name + "/all.yaml": text.String()})
}

// killAt kills the process when the API server has answered the n-th write since act, and returns n.
func (p *points) killAt(n int, act func()) int {
	p.Helper()
	var writes atomic.Int32
	p.proxy.setMutation(func(r *http.Request, b body) []byte {
		isOf := strings.Contains(r.URL.Path, "/kustomizations/") || strings.Contains(r.URL.Path, "/configmaps") ||
			strings.Contains(r.URL.Path, "/serviceaccounts")
		if r.Method != http.MethodGet && isOf && !r.URL.Query().Has("dryRun") && int(writes.Add(1)) == n {
			_ = p.controller.cmd.Process.Kill() // it has not ended yet
			<-p.controller.ended
		}
		return b.data
	})
	act()
	testenv.Eventually(p, "the process is killed", func() error {
		select {
		case <-p.controller.ended:
			return nil
		default:
			return fmt.Errorf("%d writes, want %d", writes.Load(), n)
		}
	})
	p.controller.stop(syscall.SIGKILL) // it has ended on purpose
	p.proxy.setMutation(nil)
	return n
}

// delete deletes a Kustomization if it exists.
func (p *points) delete(name string) {
	p.Helper()
	if err := client.IgnoreNotFound(p.client.Delete(context.Background(), p.app(name))); err != nil {
		p.Fatal(err)
	}
}

// becomes waits until the cluster has exactly the objects of a Kustomization, and it is applied; without objects, it
// must be gone.
func (p *points) becomes(name string, objects ...string) {
	p.Helper()
	testenv.Eventually(p, fmt.Sprintf("%s has %v", name, objects), func() error {
		var found []string
		for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.ServiceAccountList{}} {
			if err := p.client.List(context.Background(), list, client.InNamespace(p.namespace)); err != nil {
				return err
			}
			err := apimeta.EachListItem(list, func(o runtime.Object) error {
				object := o.(client.Object)
				if suffix, ok := strings.CutPrefix(object.GetName(), name+"-"); ok {
					kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")
					found = append(found, kind+"/"+suffix)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if !slices.Equal(found, objects) {
			return fmt.Errorf("there are %v", found)
		}
		err := p.applied(name, p.head)
		if len(objects) == 0 && apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
