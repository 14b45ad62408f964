package kubeclient

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	inputsv1 "github.com/sluice-gitops/sluice/api/inputs/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// Scheme returns a scheme with the kinds of Kubernetes and of Sluice.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, sourcev1.AddToScheme, extensionsv1beta1.AddToScheme, gatingv1.AddToScheme,
		imagev1.AddToScheme, imagev1alpha1.AddToScheme, kustomizev1.AddToScheme, notificationv1.AddToScheme,
		helmv2.AddToScheme, controlplanev1.AddToScheme, inputsv1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}
