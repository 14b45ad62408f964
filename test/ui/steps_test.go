package ui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// steps are what a browser test asks the cluster to do, by name.
func (b *bench) steps() map[string]func() (string, error) {
	steps := map[string]func() (string, error){
		"address":         func() (string, error) { return b.ui.address, nil },
		"stop-ui":         func() (string, error) { return "", b.ui.stop() },
		"start-ui":        func() (string, error) { return "", b.startUI() },
		"cut-cluster":     func() (string, error) { b.proxy.Interrupt(true); return "", nil },
		"restore-cluster": func() (string, error) { b.proxy.Interrupt(false); return "", nil },
		"delete-doomed": func() (string, error) {
			return "", b.Client.Delete(b.Context(), &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop",
				Name: "doomed"}})
		},
		"push-checkout": b.pushCheckout,
		"await-checkout": func() (string, error) {
			b.Ready("checkout", b.pushed)
			return "", nil
		},
	}
	for name, namespace := range map[string]string{"doomed": "shop", "appears": "shop", "after-outage": "shop",
		"after-restart": "shop", "visible": "shop", "hidden": "payments"} {
		steps["create-"+name] = func() (string, error) {
			return "", b.Client.Create(b.Context(), &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
				Name: name}})
		}
	}
	return steps
}

// pushCheckout changes what waits at the gate, and returns when the controllers report it.
func (b *bench) pushCheckout() (string, error) {
	b.pushed = b.Git.Commit("app", map[string]string{"checkout/later.yaml": configMap("added-later", "1")})
	b.RequestFetch("app")
	b.awaitPending("checkout", b.pushed)
	testenv.Eventually(b, "the gate lists the new revision", func() error {
		g := &gatingv1.Gate{}
		if err := b.Get(g, "release"); err != nil {
			return err
		}
		if w := g.Status.Waiting; len(w) != 1 || !strings.HasSuffix(w[0].Revision, b.pushed) {
			return fmt.Errorf("%+v", w)
		}
		return nil
	})
	return "", nil
}

// awaitPending waits until a commit waits at the gate of a Kustomization, with its changes.
func (w *world) awaitPending(name, commit string) {
	w.Helper()
	testenv.Eventually(w, "the change of "+name+" waits", func() error {
		k := &kustomizev1.Kustomization{}
		if err := w.Get(k, name); err != nil {
			return err
		}
		if p := k.Status.Pending; p == nil || !strings.HasSuffix(p.Revision, commit) || len(p.Changes) == 0 {
			return fmt.Errorf("pending is %+v", p)
		}
		return nil
	})
}

// serve lets the browser tests run steps, by POST /NAME.
func serve(t testing.TB, steps map[string]func() (string, error)) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		do := steps[strings.TrimPrefix(r.URL.Path, "/")]
		if do == nil {
			http.Error(w, "unknown step", http.StatusNotFound)
			return
		}
		answer, err := do()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
