package manifest

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/options"
)

// Values that the manifests in config are written with.
const (
	DefaultClusterDomain = "cluster.local"
	configNamespace      = "flux-system"
	defaultLogLevel      = "info"
)

// InstallOptions say what to install and how it runs.
type InstallOptions struct {
	Namespace   string
	CRDsOnly    bool
	Controllers []string // that the Deployment runs

	Image         string // complete reference
	PullSecret    string
	ClusterDomain string // default: DefaultClusterDomain
	LogLevel      string // default: info

	NetworkPolicy bool
	AllNamespaces bool // reconcile objects of all namespaces
	Tolerations   []string
}

// Install returns the objects to install: the namespace first, then CustomResourceDefinitions, policies, roles and the
// controllers.
func Install(o InstallOptions) ([]*unstructured.Unstructured, error) {
	dirs := []string{"crd", "policy", "rbac", "manager"}
	if o.CRDsOnly {
		dirs = dirs[:1]
	}
	var objects []*unstructured.Unstructured
	for _, dir := range dirs {
		found, err := o.read(dir)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	objects = slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "NetworkPolicy" && !o.NetworkPolicy
	})
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	for _, u := range objects {
		if u.GetKind() == "Deployment" {
			if err := o.configure(u); err != nil {
				return nil, err
			}
		}
	}
	return objects, nil
}

// read returns the objects of a directory of config, with the namespace and the cluster domain replaced.
func (o InstallOptions) read(dir string) ([]*unstructured.Unstructured, error) {
	entries, err := fs.ReadDir(config.Files, dir)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, entry := range entries {
		name := dir + "/" + entry.Name()
		b, err := config.Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if dir == "manager" {
			b = bytes.ReplaceAll(b, []byte(configNamespace), []byte(o.Namespace))
			b = bytes.ReplaceAll(b, []byte(".svc."+DefaultClusterDomain),
				[]byte(".svc."+cmp.Or(o.ClusterDomain, DefaultClusterDomain)))
		}
		found, err := Decode(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// rank sorts the namespace first, so that tools that apply a file in its order succeed.
func rank(u *unstructured.Unstructured) int {
	if u.GetKind() == "Namespace" {
		return 0
	}
	return 1
}

// configure applies the options to the Deployment.
func (o InstallOptions) configure(u *unstructured.Unstructured) error {
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
		return err
	}
	pod := &d.Spec.Template.Spec
	c := &pod.Containers[0]
	c.Image = o.Image
	if !slices.Equal(o.Controllers, options.AllControllers) {
		c.Args = append(c.Args, "--controllers="+strings.Join(o.Controllers, ","))
	}
	if level := cmp.Or(o.LogLevel, defaultLogLevel); level != defaultLogLevel {
		c.Args = append(c.Args, "--log-level="+level)
	}
	if !o.AllNamespaces {
		c.Args = append(c.Args, "--watch-all-namespaces=false")
	}
	if o.PullSecret != "" {
		pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: o.PullSecret}}
	}
	for _, key := range o.Tolerations {
		pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	configured, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	delete(configured, "status")
	u.Object = configured
	return err
}
