package source

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=impersonate

// writers returns who writes the objects of a generator. In its own namespace this is the controller, unless
// spec.serviceAccountName is set; in others and for Namespaces it is always a service account of the namespace of the
// generator, so that a generator can write only where its account may.
type writers struct {
	generator *ArtifactGenerator
	obj       *extensionsv1beta1.ArtifactGenerator

	impersonated *Outputs // nil until it is used
}

// of returns the writer for a namespace.
func (w *writers) of(ctx context.Context, namespace string) (Outputs, error) {
	if namespace == w.obj.Namespace && w.obj.Spec.ServiceAccountName == "" {
		return w.generator.Outputs, nil
	}
	if namespace != w.obj.Namespace && w.generator.OneNamespace {
		return Outputs{}, fault.New(meta.AccessDeniedReason,
			"namespace '%s' is not that of the generator, and Sluice runs with --watch-all-namespaces=false",
			namespace).WithHint("Remove the field namespace of spec.artifacts")
	}
	return w.account(ctx)
}

// key returns the service account; its name is empty if there is none.
func (w *writers) key() types.NamespacedName {
	return types.NamespacedName{Namespace: w.obj.Namespace,
		Name: cmp.Or(w.obj.Spec.ServiceAccountName, w.generator.DefaultServiceAccount)}
}

// account returns the writer that impersonates the service account.
func (w *writers) account(ctx context.Context) (Outputs, error) {
	key := w.key()
	switch {
	case w.impersonated != nil:
		return *w.impersonated, nil
	case key.Name == "":
		return Outputs{}, fault.New(meta.AccessDeniedReason,
			"writing to another namespace needs a service account that is allowed to").
			WithHint("Set spec.serviceAccountName, and grant the account what it writes")
	case w.isMissing(ctx):
		return Outputs{}, fault.New(meta.AccessDeniedReason,
			"ServiceAccount '%s' not found, which spec.serviceAccountName or --default-service-account names", key).
			WithHint("Create it, and bind a role to it that allows what it writes")
	}
	c, err := w.generator.Impersonate(key)
	if err != nil {
		return Outputs{}, fault.New(meta.ReconciliationFailedReason, "cannot impersonate ServiceAccount '%s'", key).
			Because(err)
	}
	w.impersonated = &Outputs{Client: c, Reader: w.generator.Outputs.Reader, Status: w.generator.Outputs.Client}
	return *w.impersonated, nil
}

// isMissing reports whether the service account does not exist.
func (w *writers) isMissing(ctx context.Context) bool {
	key := w.key()
	return key.Name != "" &&
		apierrors.IsNotFound(w.generator.Outputs.Reader.Get(ctx, key, &corev1.ServiceAccount{}))
}
