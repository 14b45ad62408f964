package ui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
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
		"push-checkout":        b.pushCheckout,
		"start-without-rights": b.startWithoutRights,
		"create-many":          b.createMany,
		"create-endless": func() (string, error) {
			return "", b.Client.Create(b.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop",
				Name: "endless", Annotations: map[string]string{"playground.sluice.dev/log": "endless"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}}})
		},
		"touch-many": func() (string, error) {
			o := scaleObject("scale-0", "app-0")
			patch := []byte(`{"status":{"lastAppliedRevision":"v2@sha256:` + strings.Repeat("2", 64) + `"}}`)
			return "", b.Client.Status().Patch(b.Context(), o, client.RawPatch(types.MergePatchType, patch))
		},
		"requested-web": func() (string, error) {
			k := &kustomizev1.Kustomization{}
			err := b.Get(k, "web")
			return k.Annotations[meta.ReconcileRequestAnnotation], err
		},
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

// manyObjects is the short form of the 10,000 objects that TestScale measures with.
const manyObjects = 1000

// createMany creates objects in namespaces of their own, and returns how many there are of their kind.
func (b *bench) createMany() (string, error) {
	if err := fill(b.Context(), b.Client, manyObjects); err != nil {
		return "", err
	}
	list := &kustomizev1.KustomizationList{}
	err := b.Client.List(b.Context(), list)
	return strconv.Itoa(len(list.Items)), err
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
		if r.Method == http.MethodGet { // another site, for attacks from there
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<title>another site</title>")
			return
		}
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
