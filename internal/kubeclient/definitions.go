package kubeclient

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// kindsNotServed is the error of a cluster that does not serve all our kinds.
type kindsNotServed struct {
	kinds []string // Kind.group/version
	*apimeta.NoKindMatchError
}

func (e *kindsNotServed) Error() string { return strings.Join(e.kinds, ", ") }

// Unwrap makes it an error of [apimeta.IsNoMatchError].
func (e *kindsNotServed) Unwrap() error { return e.NoKindMatchError }

// missingKinds returns an error that names the kinds which the cluster does not serve, or nil.
func missingKinds(cfg *rest.Config) error {
	c, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	missing, served := &kindsNotServed{}, map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, obj := range append(labelledKinds(), &gatingv1.Gate{}, &gatingv1.GateApproval{}) {
		gvk, err := apiutil.GVKForObject(obj, Scheme())
		if err != nil {
			return err
		}
		gv := gvk.GroupVersion()
		if _, asked := served[gv]; !asked {
			served[gv], err = c.ServerResourcesForGroupVersion(gv.String())
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		if !serves(served[gv], gvk.Kind) {
			missing.kinds = append(missing.kinds, fmt.Sprintf("%s of %s", gvk.Kind, gv))
			missing.NoKindMatchError = &apimeta.NoKindMatchError{GroupKind: gvk.GroupKind(),
				SearchedVersions: []string{gvk.Version}}
		}
	}
	if len(missing.kinds) == 0 {
		return nil
	}
	return missing
}

func serves(list *metav1.APIResourceList, kind string) bool {
	if list == nil {
		return false
	}
	for _, r := range list.APIResources {
		if r.Kind == kind {
			return true
		}
	}
	return false
}

// notServed returns the error for users.
func notServed(err error) error {
	return fmt.Errorf("the cluster does not serve all kinds of Sluice: %w. Run `sluice install` or `sluice install "+
		"--crds-only`", err)
}

// definitionsWait reports what the process waits for until it can start: in the log, and at /readyz.
type definitionsWait struct {
	addr    string // of the health endpoints; "0" or empty for none
	message atomic.Pointer[string]
	server  *http.Server
}

// report logs an error that differs from the last one, and serves it at /readyz.
func (w *definitionsWait) report(err error) {
	message := notServed(err).Error()
	if last := w.message.Swap(&message); last == nil || *last != message {
		log.Log.Info("waiting: " + message)
	}
	if w.server != nil || w.addr == "" || w.addr == "0" {
		return
	}
	l, err := net.Listen("tcp", w.addr)
	if err != nil {
		log.Log.Error(err, "cannot serve the health endpoints", "address", w.addr)
		return
	}
	w.server = &http.Server{Handler: guard.Handler("reporting health", w), ReadHeaderTimeout: 10 * time.Second}
	server := w.server
	guard.Go("serving health endpoints", func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Log.Error(err, "the health endpoints ended")
		}
	})
}

// ServeHTTP answers that the process is alive but not ready.
func (w *definitionsWait) ServeHTTP(resp http.ResponseWriter, req *http.Request) {
	if strings.HasPrefix(req.URL.Path, "/healthz") {
		fmt.Fprintln(resp, "ok")
		return
	}
	http.Error(resp, *w.message.Load(), http.StatusServiceUnavailable)
}

// end stops to serve the health endpoints.
func (w *definitionsWait) end() {
	if w.server != nil {
		_ = w.server.Close() // closes the listener; there is nothing else to do
		w.server = nil
	}
}
