// Package manifest reads and writes manifests, and makes those that install Sluice.
package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
)

// Decode returns the objects of a YAML stream. Empty documents are skipped.
func Decode(b []byte) ([]*unstructured.Unstructured, error) {
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
			continue // only comments
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(raw.Raw); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}

// Convert decodes an object into a typed one. All served versions of a kind have the same fields.
func Convert(o *unstructured.Unstructured, into any) error {
	b, err := o.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(b, into) // its error names the invalid field
	}
	if err != nil {
		return fmt.Errorf("%s '%s/%s' cannot be decoded: %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
	}
	return nil
}

// Find decodes the object of a kind that a file declares, in any version. An object without a namespace is in the
// namespace of the key.
func Find(file string, kind schema.GroupKind, key types.NamespacedName, into any) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	objects, err := Decode(content)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, o := range objects {
		if o.GroupVersionKind().GroupKind() == kind && o.GetName() == key.Name &&
			cmp.Or(o.GetNamespace(), key.Namespace) == key.Namespace {
			o.SetNamespace(key.Namespace)
			return Convert(o, into)
		}
	}
	return fmt.Errorf("%s does not declare %s '%s'", file, kind.Kind, key)
}

// Encode writes objects as a YAML stream.
func Encode(w io.Writer, objects ...*unstructured.Unstructured) error {
	for _, o := range objects {
		b, err := yaml.Marshal(o.Object)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "---\n%s", b); err != nil {
			return err
		}
	}
	return nil
}

// Declaration returns an object as a person would declare it: without status, and without what the cluster and its
// tools add.
func Declaration(o client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(o, kubeclient.Scheme())
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	content["metadata"] = map[string]any{}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	u.SetName(o.GetName())
	u.SetNamespace(o.GetNamespace())
	u.SetLabels(o.GetLabels())
	annotations := map[string]string{}
	for key, value := range o.GetAnnotations() {
		if key != meta.ReconcileRequestAnnotation && key != corev1.LastAppliedConfigAnnotation {
			annotations[key] = value
		}
	}
	if len(annotations) > 0 {
		u.SetAnnotations(annotations)
	}
	return u, nil
}
