package install

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

// Labels of everything that is installed.
const (
	NameLabel     = "app.kubernetes.io/name"
	PartOfLabel   = "app.kubernetes.io/part-of"
	instanceLabel = "app.kubernetes.io/instance"
	versionLabel  = "app.kubernetes.io/version"
	appLabel      = "app" // of Deployments and their pods
	ownName       = "sluice"
	fluxName      = "flux"
)

// Kinds that are treated in a special way.
const (
	deploymentKind = "Deployment"
	definitionKind = "CustomResourceDefinition"
	namespaceKind  = "Namespace"
)

// services maps the Services to the components that serve them.
var services = map[string]string{
	"source-controller":          options.SourceController,
	"image-reflector-controller": options.ImageReflectorController,
	"notification-controller":    options.NotificationController,
	"webhook-receiver":           options.NotificationController,
}

// Manifests returns the objects to install: the namespace first, then definitions, policies, roles and the controllers.
// The same options yield the same objects.
func Manifests(o Options) ([]*unstructured.Unstructured, error) {
	o, err := o.Complete()
	if err != nil {
		return nil, err
	}
	dirs := []string{"manager", "crd", "policy"}
	if !o.CRDsOnly {
		dirs = append(dirs, "rbac")
	}
	if o.Profile == ProfileMultiTenant || o.FluxCompatible && !o.CRDsOnly {
		dirs = append(dirs, "tenancy")
	}
	if o.UI.URL != "" && !o.CRDsOnly {
		dirs = append(dirs, "ui")
	}
	if o.Hub.Only {
		dirs = []string{"manager"} // for the namespace
	}
	if o.Hub.URL != "" && !o.CRDsOnly {
		dirs = append(dirs, "hub")
	}
	var objects []*unstructured.Unstructured
	for _, dir := range dirs {
		found, err := o.read(dir)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	objects = slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool { return !o.includes(u) })
	if objects, err = o.configure(objects); err != nil {
		return nil, err
	}
	if o.RegistryLogin != "" {
		objects = append(objects, o.pullSecret())
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	for _, u := range objects {
		o.label(u)
	}
	return objects, nil
}

// read returns the objects of a directory of config, with the namespace and the cluster domain replaced.
func (o Options) read(dir string) ([]*unstructured.Unstructured, error) {
	entries, err := fs.ReadDir(config.Files, dir)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, entry := range entries {
		name := dir + "/" + entry.Name()
		if entry.Name() == config.Kustomization {
			continue
		}
		b, err := config.Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		found, err := manifest.Decode(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if dir == "manager" || dir == "tenancy" || dir == "ui" || dir == "hub" {
			names := strings.NewReplacer(DefaultNamespace, o.Namespace, ".svc."+DefaultClusterDomain,
				".svc."+o.ClusterDomain)
			for _, u := range found {
				replaceTexts(u.Object, names)
			}
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// replaceTexts replaces parts of all texts in a map. The manifests are not replaced as text, since a name such as 123
// would become a number.
func replaceTexts(in map[string]any, names *strings.Replacer) {
	for key, value := range in {
		in[key] = replaced(value, names)
	}
}

func replaced(value any, names *strings.Replacer) any {
	switch value := value.(type) {
	case string:
		return names.Replace(value)
	case map[string]any:
		replaceTexts(value, names)
	case []any:
		for i := range value {
			value[i] = replaced(value[i], names)
		}
	}
	return value
}

// includes reports whether an object belongs to an installation with these options.
func (o Options) includes(u *unstructured.Unstructured) bool {
	policy := strings.HasPrefix(u.GetKind(), "ValidatingAdmissionPolicy")
	if o.CRDsOnly {
		return policy || u.GetKind() == definitionKind || u.GetKind() == namespaceKind
	}
	if o.Hub.Only && !isHub(u) && u.GetName() != "sluice-fleet-viewer" {
		return u.GetKind() == namespaceKind
	}
	switch component := services[u.GetName()]; {
	case u.GetKind() == "Service" && component != "":
		return o.Runs(component)
	case u.GetKind() == "NetworkPolicy":
		return o.NetworkPolicy
	case u.GetKind() == "ResourceQuota", policy && strings.HasPrefix(u.GetName(), "sluice-tenant-"):
		return o.Profile == ProfileMultiTenant
	}
	return true
}

// rank sorts the namespace and the definitions first, so that tools that apply a file in its order succeed.
func rank(u *unstructured.Unstructured) int {
	switch u.GetKind() {
	case namespaceKind:
		return 0
	case definitionKind:
		return 1
	}
	return 2
}

// label adds the labels of the application that an object belongs to. Tools of Flux select objects by them: they find
// this installation as they find Flux.
func (o Options) label(u *unstructured.Unstructured) {
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[NameLabel], labels[PartOfLabel] = ownName, fluxName
	if o.FluxCompatible {
		labels[instanceLabel], labels[versionLabel] = o.Namespace, o.Version
		if o.Version == "" {
			delete(labels, versionLabel)
		}
	}
	u.SetLabels(labels)
}

// pullSecret returns the Secret with the login of the registry.
func (o Options) pullSecret() *unstructured.Unstructured {
	host, _, _ := strings.Cut(o.ImageReference(), "/")
	login := map[string]any{"auths": map[string]any{host: map[string]any{
		"auth": base64.StdEncoding.EncodeToString([]byte(o.RegistryLogin))}}}
	b, _ := json.Marshal(login) // strings only
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": string(corev1.SecretTypeDockerConfigJson),
		"metadata": map[string]any{"namespace": o.Namespace, "name": o.PullSecret},
		"data":     map[string]any{corev1.DockerConfigJsonKey: base64.StdEncoding.EncodeToString(b)},
	}}
}
