package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/manager"
)

// clusterDomain is the internal domain that the manifests are written for.
const clusterDomain = "cluster.local"

// installOptions say what to install and how it runs.
type installOptions struct {
	export, crdsOnly  bool
	components, extra []string

	image, registry, version, pullSecret string

	clusterDomain, logLevel      string
	networkPolicy, allNamespaces bool
	tolerations                  []string
}

func (o installOptions) controllers() []string { return slices.Concat(o.components, o.extra) }

// defaultTag is the tag that goes with this binary.
func defaultTag() string {
	if Version == devVersion {
		return "latest"
	}
	return Version
}

// manifests returns the objects to install in a namespace: the namespace, definitions, roles, and the controllers.
func manifests(namespace string, o installOptions) ([]*unstructured.Unstructured, error) {
	dirs := []string{"crd", "policy", "rbac", "manager"}
	if o.crdsOnly {
		dirs = dirs[:1]
	}
	var objects []*unstructured.Unstructured
	for _, dir := range dirs {
		entries, err := fs.ReadDir(config.Files, dir)
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			name := dir + "/" + entry.Name()
			b, err := config.Files.ReadFile(name)
			if err != nil {
				return nil, err
			}
			if dir == "manager" {
				b = bytes.ReplaceAll(b, []byte(defaultNamespace), []byte(namespace))
				b = bytes.ReplaceAll(b, []byte(".svc."+clusterDomain),
					[]byte(".svc."+cmp.Or(o.clusterDomain, clusterDomain)))
			}
			found, err := decode(b)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			objects = append(objects, found...)
		}
	}
	objects = slices.DeleteFunc(objects, func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "NetworkPolicy" && !o.networkPolicy
	})
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	for _, u := range objects {
		if u.GetKind() == "Deployment" {
			if err := o.adapt(u); err != nil {
				return nil, err
			}
		}
	}
	return objects, nil
}

// rank puts the namespace first, so that tools that apply in the order of the file succeed.
func rank(u *unstructured.Unstructured) int {
	if u.GetKind() == "Namespace" {
		return 0
	}
	return 1
}

// adapt sets what the options say on the Deployment.
func (o installOptions) adapt(u *unstructured.Unstructured) error {
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
		return err
	}
	pod := &d.Spec.Template.Spec
	c := &pod.Containers[0]
	c.Image = cmp.Or(o.image, o.registry+"/sluice:"+o.version)
	if !slices.Equal(o.controllers(), manager.AllControllers) {
		c.Args = append(c.Args, "--controllers="+strings.Join(o.controllers(), ","))
	}
	if o.logLevel != "info" {
		c.Args = append(c.Args, "--log-level="+o.logLevel)
	}
	if !o.allNamespaces {
		c.Args = append(c.Args, "--watch-all-namespaces=false")
	}
	if o.pullSecret != "" {
		pod.ImagePullSecrets = []corev1.LocalObjectReference{{Name: o.pullSecret}}
	}
	for _, key := range o.tolerations {
		pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists})
	}
	adapted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	delete(adapted, "status")
	u.Object = adapted
	return err
}

// decode reads the objects of a YAML stream.
func decode(b []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(b), 4096); ; {
		var raw runtime.RawExtension
		err := d.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(raw.Raw)) == 0 || string(raw.Raw) == "null" {
			continue // a comment between two separators
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(raw.Raw); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}
