package cli

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/install"
)

// checkFluxFinds checks that what `flux check` and `flux version` read from a cluster is there: by one label, available
// Deployments of the namespace with images that have a tag, and definitions with stored versions. With
// --flux-compatible, the version of the installation is a label of the definition of GitRepository.
func checkFluxFinds(t *testing.T, c client.Client, want []string, labelled bool) {
	t.Helper()
	selector := client.MatchingLabels{install.PartOfLabel: "flux"}
	deployments := &appsv1.DeploymentList{}
	if err := c.List(t.Context(), deployments, client.InNamespace(cluster.DefaultNamespace), selector); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range deployments.Items {
		names = append(names, d.Name)
		if d.Status.AvailableReplicas == 0 || d.Status.AvailableReplicas != d.Status.Replicas {
			t.Errorf("Deployment '%s' is not available: %+v", d.Name, d.Status)
		}
		for _, container := range d.Spec.Template.Spec.Containers {
			image, tag, _ := strings.Cut(container.Image, ":") // as `flux version` splits it
			if !strings.HasSuffix(image, "/sluice") || tag == "" {
				t.Errorf("`flux version` cannot tell name and version of image %q", container.Image)
			}
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("`flux check` finds Deployments %q, want %q", names, want)
	}
	definitions := &apiextensionsv1.CustomResourceDefinitionList{}
	if err := c.List(t.Context(), definitions, selector); err != nil {
		t.Fatal(err)
	}
	stored := map[string]string{}
	for _, d := range definitions.Items {
		if len(d.Status.StoredVersions) > 0 {
			stored[d.Name] = d.Status.StoredVersions[len(d.Status.StoredVersions)-1]
		}
		if labelled && d.Name == "gitrepositories.source.toolkit.fluxcd.io" &&
			d.Labels["app.kubernetes.io/version"] == "" {
			t.Errorf("`flux check` finds no version in labels %v", d.Labels)
		}
	}
	for name, want := range map[string]string{
		"gitrepositories.source.toolkit.fluxcd.io":       "v1",
		"kustomizations.kustomize.toolkit.fluxcd.io":     "v1",
		"helmreleases.helm.toolkit.fluxcd.io":            "v2",
		"imagepolicies.image.toolkit.fluxcd.io":          "v1",
		"receivers.notification.toolkit.fluxcd.io":       "v1",
		"artifactgenerators.source.extensions.fluxcd.io": "v1beta1",
		"imageupdateautomations.image.toolkit.fluxcd.io": "v1",
		"externalartifacts.source.toolkit.fluxcd.io":     "v1",
		"alerts.notification.toolkit.fluxcd.io":          "v1beta3",
		"providers.notification.toolkit.fluxcd.io":       "v1beta3",
	} {
		if stored[name] != want {
			t.Errorf("`flux check` finds version %q of %s, want %q", stored[name], name, want)
		}
	}
	for i := range definitions.Items {
		replaceableByFlux(t, c, &definitions.Items[i])
	}
}

// replaceableByFlux checks that the API server accepts a definition that has only the version that objects are stored
// in, as definitions of Flux have no older ones, and those of Flux 2.9 no newer one of Alerts and Providers.
func replaceableByFlux(t *testing.T, c client.Client, d *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	d.Spec.Versions = slices.DeleteFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return !v.Storage
	})
	if err := c.Update(t.Context(), d, client.DryRunAll); err != nil {
		t.Errorf("a definition of Flux cannot replace ours: %v", err)
	}
}
