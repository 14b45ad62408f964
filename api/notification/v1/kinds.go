package v1

// groups maps the kinds that a Receiver or an Alert can reference to their API groups.
var groups = map[string]string{
	"GitRepository": "source.toolkit.fluxcd.io", "OCIRepository": "source.toolkit.fluxcd.io",
	"Bucket":         "source.toolkit.fluxcd.io",
	"HelmRepository": "source.toolkit.fluxcd.io", "HelmChart": "source.toolkit.fluxcd.io",
	"ExternalArtifact":  "source.toolkit.fluxcd.io",
	"ArtifactGenerator": "source.extensions.fluxcd.io",
	"Kustomization":     "kustomize.toolkit.fluxcd.io",
	"HelmRelease":       "helm.toolkit.fluxcd.io",
	"ImageRepository":   "image.toolkit.fluxcd.io", "ImagePolicy": "image.toolkit.fluxcd.io",
	"ImageUpdateAutomation": "image.toolkit.fluxcd.io",
	"Gate":                  "gating.toolkit.fluxcd.io",

	"ResourceSetInputProvider": "fluxcd.controlplane.io",
	"ClusterInputProvider":     "inputs.toolkit.fluxcd.io",
}

// GroupOf returns the API group of a kind that a Receiver or an Alert can reference; empty for other kinds.
func GroupOf(kind string) string { return groups[kind] }
