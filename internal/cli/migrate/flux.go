package migrate

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names of controllers, which are the names of their container images.
const (
	sourceController          = "source-controller"
	kustomizeController       = "kustomize-controller"
	helmController            = "helm-controller"
	notificationController    = "notification-controller"
	imageReflectorController  = "image-reflector-controller"
	imageAutomationController = "image-automation-controller"
	sourceWatcher             = "source-watcher" // part of our source-controller
	fluxOperator              = "flux-operator"  // our resourceset-controller
	resourceSetController     = "resourceset-controller"
)

// required are the controllers without which an installation of Flux is incomplete.
var required = []string{sourceController, kustomizeController, helmController, notificationController}

var fluxControllers = append(slices.Clone(required), imageReflectorController, imageAutomationController,
	sourceWatcher, fluxOperator)

// Controller is a Deployment of Flux.
type Controller struct {
	Name       string `json:"name"` // such as "source-controller"
	Deployment string `json:"deployment"`
	Version    string `json:"version"`
	Replicas   int32  `json:"replicas"` // 0 if it was scaled down
	Moves      bool   `json:"moves"`    // whether Sluice takes it over

	live *appsv1.Deployment
}

// Ours returns the name of our controller that does the work of this one.
func (c Controller) Ours() string { return ourName(c.Name) }

func ourName(name string) string {
	switch name {
	case sourceWatcher:
		return sourceController
	case fluxOperator:
		return resourceSetController
	}
	return name
}

// lease returns the prefix of the leases by which processes of a controller elect their leader.
func lease(controller string) string {
	if controller == fluxOperator {
		return fluxOperator
	}
	return controller + "-leader-election"
}

// controllers returns the Deployments of Flux in the namespace, sorted by name, and Flux Operator before them. Several
// Deployments may run the same controller for different shards. Flux Operator has no shards.
func (e *Engine) controllers(ctx context.Context) ([]Controller, error) {
	list := &appsv1.DeploymentList{}
	if err := e.Client.List(ctx, list, client.InNamespace(e.Namespace)); err != nil {
		return nil, fmt.Errorf("cannot list the Deployments of namespace '%s': %w", e.Namespace, err)
	}
	var found []Controller
	for i := range list.Items {
		d := &list.Items[i]
		name, version := controllerOf(d)
		if name == "" {
			continue
		}
		c := Controller{Name: name, Deployment: d.Name, Version: version, Replicas: replicas(d), live: d}
		c.Moves = e.moves(c.Ours()) && (name != fluxOperator || !e.isSharded())
		found = append(found, c)
	}
	rank := func(c Controller) int {
		if c.Name == fluxOperator {
			return 0
		}
		return 1
	}
	slices.SortFunc(found, func(a, b Controller) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Deployment, b.Deployment))
	})
	return found, nil
}

// controllerOf returns which controller of Flux a Deployment runs, by its image, and the version of that. The name is
// empty if it runs none.
func controllerOf(d *appsv1.Deployment) (name, version string) {
	for _, c := range d.Spec.Template.Spec.Containers {
		image, _, _ := strings.Cut(c.Image, "@")
		base := path.Base(image)
		base, tag, _ := strings.Cut(base, ":")
		if slices.Contains(fluxControllers, base) {
			return base, tag
		}
	}
	return "", ""
}

func replicas(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

// moves reports whether one of our controllers is in the scope.
func (e *Engine) moves(controller string) bool {
	return len(e.Scope.Controllers) == 0 || slices.Contains(e.Scope.Controllers, controller)
}

// controllerFor returns the controller that reconciles a kind; "" if none does.
func controllerFor(gk schema.GroupKind) string {
	switch gk.Group {
	case operatorGroup:
		if gk.Kind == "ResourceSet" || gk.Kind == "ResourceSetInputProvider" {
			return resourceSetController
		}
		return ""
	case "source.toolkit.fluxcd.io":
		if gk.Kind == "ExternalArtifact" {
			return ""
		}
		return sourceController
	case "source.extensions.fluxcd.io":
		return sourceController
	case "kustomize.toolkit.fluxcd.io":
		return kustomizeController
	case "helm.toolkit.fluxcd.io":
		return helmController
	case "notification.toolkit.fluxcd.io":
		return notificationController
	case "image.toolkit.fluxcd.io":
		if gk.Kind == "ImageUpdateAutomation" {
			return imageAutomationController
		}
		return imageReflectorController
	}
	return ""
}
