package kubeclient

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
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
	for _, obj := range append(ownKinds(), &gatingv1.Gate{}, &gatingv1.GateApproval{}) {
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
	health *Health
	last   string
}

// report logs an error that differs from the last one, and names it at /readyz.
func (w *definitionsWait) report(err error) {
	message := notServed(err).Error()
	if message != w.last {
		log.Log.Info("waiting: " + message)
	}
	w.last = message
	w.health.Set("definitions", message)
}

// end reports that the cluster serves all kinds.
func (w *definitionsWait) end() { w.health.Set("definitions", "") }
