package resourceset

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Kinds that data and checksums are read from.
const (
	configMapKind = "ConfigMap"
	secretKind    = "Secret"
)

// source is an object that others are completed from.
type source struct{ kind, namespace, name string }

func (s source) String() string { return s.kind + "/" + s.namespace + "/" + s.name }

func (s source) ref() reconcile.Ref {
	return reconcile.RefTo(schema.GroupKind{Kind: s.kind}, s.namespace, s.name)
}

// sourceReader reads the objects that others are completed from, with the rights of the account that applies.
type sourceReader struct {
	ctx context.Context //nolint:containedctx // it lives for one pass
	run *run

	read     map[source]*unstructured.Unstructured
	sources  []source // in the order of their first use
	external []string // those that checksums are of and that the ResourceSet does not contain
}

// get returns an object of the cluster, as it was when the pass read it first.
func (r *sourceReader) get(s source) (*unstructured.Unstructured, error) {
	if o, ok := r.read[s]; ok {
		return o, nil
	}
	if !slices.Contains(r.sources, s) {
		r.sources = append(r.sources, s)
	}
	c := r.run
	if c.destination(c.obj).ServiceAccount == "" {
		policy := rollout.ReferencePolicy{NoCrossNamespace: c.Options.NoCrossNamespaceRefs}
		if err := policy.Check("an annotation of a rendered object", c.obj.Namespace, s.namespace); err != nil {
			return nil, err
		}
	}
	resource := schema.GroupVersionResource{Version: "v1", Resource: strings.ToLower(s.kind) + "s"}
	o, err := c.target.Cluster.Dynamic().Resource(resource).Namespace(s.namespace).Get(r.ctx, s.name,
		metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fault.New(meta.ReconciliationFailedReason, "%s '%s/%s' not found", s.kind, s.namespace, s.name)
	}
	if err != nil {
		return nil, fault.New(meta.ReconciliationFailedReason, "cannot read %s '%s/%s'", s.kind, s.namespace, s.name).
			Because(err)
	}
	if r.read == nil {
		r.read = map[source]*unstructured.Unstructured{}
	}
	r.read[s] = o
	return o, nil
}

// digestOf returns a digest of the contents of objects.
func (r *sourceReader) digestOf(sources []source) (string, error) {
	h := sha256.New()
	for _, s := range sources {
		o, err := r.get(s)
		if err != nil {
			return "", err
		}
		data, err := dataOf(o)
		if err != nil {
			return "", err
		}
		writeData(h, s, data)
		kind, _, _ := unstructured.NestedString(o.Object, "type")
		fmt.Fprint(h, kind)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func writeData(h interface{ Write([]byte) (int, error) }, s source, data map[string]string) {
	_, _ = fmt.Fprintf(h, "%s\x00", s)
	for _, k := range slices.Sorted(maps.Keys(data)) {
		_, _ = fmt.Fprintf(h, "%s\x00%s\x00", k, data[k])
	}
}

// dataOf returns the decoded data of a ConfigMap or Secret.
func dataOf(o *unstructured.Unstructured) (map[string]string, error) {
	data := map[string]string{}
	for _, field := range []string{"binaryData", "data", "stringData"} {
		values, _, err := unstructured.NestedStringMap(o.Object, field)
		if err != nil {
			return nil, fmt.Errorf("the field %s of %s '%s/%s' is not a map of texts", field, o.GetKind(),
				o.GetNamespace(), o.GetName())
		}
		isEncoded := field == "binaryData" || field == "data" && o.GetKind() == secretKind
		for k, v := range values {
			if isEncoded {
				plain, err := base64.StdEncoding.DecodeString(v)
				if err != nil {
					return nil, fmt.Errorf("the key %s of %s '%s/%s' is not base64", k, o.GetKind(), o.GetNamespace(),
						o.GetName())
				}
				v = string(plain)
			}
			data[k] = v
		}
	}
	return data, nil
}

// copyInto fills an object with the data that its annotations name.
func (r *sourceReader) copyInto(o *unstructured.Unstructured) error {
	if o.GetAPIVersion() != "v1" || o.GetKind() != configMapKind && o.GetKind() != secretKind {
		return nil
	}
	annotations := o.GetAnnotations()
	if from, ok := annotations[controlplanev1.CopyFromAnnotation]; ok {
		if err := r.copyData(o, from); err != nil {
			return err
		}
	}
	from, ok := annotations[controlplanev1.ConvertKubeConfigFromAnnotation]
	if !ok || o.GetKind() != configMapKind {
		return nil
	}
	return r.convertKubeConfig(o, from)
}

// copyData copies the data of an object of the same kind.
func (r *sourceReader) copyData(o *unstructured.Unstructured, from string) error {
	namespace, name, ok := strings.Cut(from, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return invalid(controlplanev1.CopyFromAnnotation, from, "namespace/name")
	}
	live, err := r.get(source{o.GetKind(), namespace, name})
	if err != nil {
		return err
	}
	for _, field := range []string{"data", "binaryData"} {
		values, _, err := unstructured.NestedStringMap(live.Object, field)
		if err != nil {
			return err
		}
		if o.GetKind() == secretKind {
			own, _, _ := unstructured.NestedStringMap(o.Object, field)
			values = merged(own, values)
		}
		if len(values) == 0 {
			unstructured.RemoveNestedField(o.Object, field)
			continue
		}
		if err := unstructured.SetNestedStringMap(o.Object, values, field); err != nil {
			return err
		}
	}
	if kind, ok := live.Object["type"]; ok && o.Object["type"] == nil && o.GetKind() == secretKind {
		o.Object["type"] = kind
	}
	return nil
}

func invalid(annotation, value, form string) error {
	return fault.New(meta.BuildFailedReason, "the annotation %s is '%s', not %s", annotation, value, form).Final()
}

// kubeConfigKeys are the keys of a Secret that may hold a kubeconfig.
var kubeConfigKeys = []string{"kubeconfig", "value"}

// convertKubeConfig fills a ConfigMap with the address and the certificate authority of a kubeconfig.
func (r *sourceReader) convertKubeConfig(o *unstructured.Unstructured, from string) error {
	path, key, hasKey := strings.Cut(from, ":")
	namespace, name, ok := strings.Cut(path, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") || hasKey && key == "" {
		return invalid(controlplanev1.ConvertKubeConfigFromAnnotation, from, "namespace/name or namespace/name:key")
	}
	live, err := r.get(source{secretKind, namespace, name})
	if err != nil {
		return err
	}
	data, err := dataOf(live)
	if err != nil {
		return err
	}
	keys := kubeConfigKeys
	if hasKey {
		keys = []string{key}
	}
	for _, k := range keys {
		if text, ok := data[k]; ok {
			return setCluster(o, text, fmt.Sprintf("the kubeconfig of Secret '%s/%s'", namespace, name))
		}
	}
	return fault.New(meta.ReconciliationFailedReason, "Secret '%s/%s' has no key %s", namespace, name,
		strings.Join(keys, " or "))
}

// setCluster sets the address and the certificate authority of the current cluster of a kubeconfig.
func setCluster(o *unstructured.Unstructured, kubeconfig, name string) error {
	cfg, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return fault.New(meta.ReconciliationFailedReason, "%s cannot be read", name) // err may quote it
	}
	current := cfg.Contexts[cfg.CurrentContext]
	if current == nil || cfg.Clusters[current.Cluster] == nil {
		return fault.New(meta.ReconciliationFailedReason, "%s has no current context with a cluster", name)
	}
	cluster := cfg.Clusters[current.Cluster]
	data, _, err := unstructured.NestedStringMap(o.Object, "data")
	if err != nil {
		return err
	}
	add := map[string]string{"address": cluster.Server}
	if len(cluster.CertificateAuthorityData) > 0 {
		add["ca.crt"] = string(cluster.CertificateAuthorityData)
	}
	return unstructured.SetNestedStringMap(o.Object, merged(data, add), "data")
}

// addChecksums sets the annotation checksum where checksumFrom is, anywhere in the objects.
func (r *sourceReader) addChecksums(objects []*unstructured.Unstructured) error {
	own := map[source]*unstructured.Unstructured{}
	for _, o := range objects {
		if o.GetAPIVersion() == "v1" && (o.GetKind() == configMapKind || o.GetKind() == secretKind) {
			own[source{o.GetKind(), o.GetNamespace(), o.GetName()}] = o
		}
	}
	for _, o := range objects {
		if err := r.addChecksum(o.Object, own); err != nil {
			return fmt.Errorf("%s '%s/%s': %w", o.GetKind(), o.GetNamespace(), o.GetName(), err)
		}
	}
	slices.Sort(r.external)
	r.external = slices.Compact(r.external)
	return nil
}

func (r *sourceReader) addChecksum(v any, own map[source]*unstructured.Unstructured) error {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			if err := r.addChecksum(x, own); err != nil {
				return err
			}
		}
	case map[string]any:
		if metadata, ok := v["metadata"].(map[string]any); ok {
			annotations, _ := metadata["annotations"].(map[string]any)
			if from, ok := annotations[controlplanev1.ChecksumFromAnnotation].(string); ok {
				sum, err := r.checksum(from, own)
				if err != nil {
					return err
				}
				annotations[controlplanev1.ChecksumAnnotation] = sum
			}
		}
		for _, x := range v {
			if err := r.addChecksum(x, own); err != nil {
				return err
			}
		}
	}
	return nil
}

// checksum returns the checksum of the objects that an annotation lists.
func (r *sourceReader) checksum(from string, own map[source]*unstructured.Unstructured) (string, error) {
	h := sha256.New()
	for item := range strings.SplitSeq(from, ",") {
		parts := strings.Split(strings.TrimSpace(item), "/")
		if len(parts) != 3 || parts[0] != configMapKind && parts[0] != secretKind || parts[1] == "" || parts[2] == "" {
			return "", invalid(controlplanev1.ChecksumFromAnnotation, from,
				"a list of ConfigMap/namespace/name and Secret/namespace/name")
		}
		s := source{parts[0], parts[1], parts[2]}
		o := own[s]
		if o == nil {
			var err error
			if o, err = r.get(s); err != nil {
				return "", err
			}
			r.external = append(r.external, s.String())
		}
		data, err := dataOf(o)
		if err != nil {
			return "", err
		}
		writeData(h, s, data)
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}
