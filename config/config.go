// Package config contains the manifests that `sluice install` applies. The CustomResourceDefinitions and the
// ClusterRole are generated.
package config

import (
	"bytes"
	"embed"
	"errors"
	"io"
	"io/fs"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Files contains the directories crd, policy, rbac, manager, tenancy, ui and hub.
//
//go:embed crd policy rbac manager tenancy ui hub
var Files embed.FS

// Kustomization is the name of the file that makes a directory of Files a kustomize base. It declares no object.
const Kustomization = "kustomization.yaml"

// Definitions returns the CustomResourceDefinitions.
func Definitions() ([]*unstructured.Unstructured, error) { return read("crd", nil) }

// Policies returns the admission policies for gates and approvals.
func Policies() ([]*unstructured.Unstructured, error) { return read("policy", nil) }

// Controllers returns the objects that run the controllers in a namespace: admission policies, roles, the
// ServiceAccount, the Deployment and the Service.
func Controllers(namespace string) ([]*unstructured.Unstructured, error) {
	policies, err := Policies()
	if err != nil {
		return nil, err
	}
	roles, err := read("rbac", nil)
	if err != nil {
		return nil, err
	}
	workload, err := read("manager", func(b []byte) []byte {
		return bytes.ReplaceAll(b, []byte("flux-system"), []byte(namespace))
	})
	return slices.Concat(policies, roles, workload), err
}

// read returns the objects of all files in a directory. If change is set, it is applied to the content of each file.
func read(dir string, change func([]byte) []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	err := fs.WalkDir(Files, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == Kustomization {
			return err
		}
		b, err := Files.ReadFile(name)
		if err != nil {
			return err
		}
		if change != nil {
			b = change(b)
		}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(b), 4096); ; {
			o := &unstructured.Unstructured{}
			err := decoder.Decode(&o.Object)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if len(o.Object) > 0 {
				objects = append(objects, o)
			}
		}
	})
	return objects, err
}
