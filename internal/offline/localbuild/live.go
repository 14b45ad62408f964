package localbuild

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// Live fills objects that were rendered with placeholders, so that a dry-run compares only what the change changes: a
// field that comes from a secret, and that the change renders as it was rendered before, has its live value.
type Live struct {
	Target *apply.Cluster
	Known  *redact.Known                // of the objects
	Before []*unstructured.Unstructured // rendered without the change
	// MayChange: what differs from Before keeps its placeholder. Otherwise all secrets are assumed to be unchanged.
	MayChange bool
}

// Fill returns copies of the objects, and the live values that they have in place of placeholders.
func (l Live) Fill(ctx context.Context, objects []*unstructured.Unstructured) (filled []*unstructured.Unstructured,
	secrets []string, err error) {
	before := map[string]*unstructured.Unstructured{}
	for _, o := range l.Before {
		before[key(o)] = o
	}
	for _, o := range objects {
		if !l.Known.Differing(o) {
			filled = append(filled, o)
			continue
		}
		out := o.DeepCopy()
		live, err := LiveObject(ctx, l.Target, o)
		if apierrors.IsForbidden(err) {
			err = nil // the comparison says that it is hidden
		}
		if err != nil {
			return nil, nil, err
		}
		if live != nil {
			if plain, ok := out.Object["stringData"].(map[string]any); ok && out.GetKind() == "Secret" {
				live = live.DeepCopy()
				addStringData(live.Object, plain)
			}
			same := func(path []string, v any) bool {
				was, ok := redact.At(before[key(o)], path)
				return !l.MayChange || ok && fmt.Sprint(was) == fmt.Sprint(v)
			}
			redact.Replace(out, live, func(path []string, v, live any) any {
				if !l.Known.Differs(o, path...) || !same(path, v) {
					return v
				}
				secrets = append(secrets, fmt.Sprint(live))
				return live
			})
		}
		satisfyType(out)
		filled = append(filled, out)
	}
	return filled, secrets, nil
}

// Restore returns an object that was filled, and maybe compared with the cluster, with its placeholders.
func (r *Result) Restore(filled *unstructured.Unstructured) *unstructured.Unstructured {
	if r == nil || r.twin == nil || filled == nil {
		return filled
	}
	for _, o := range r.Objects {
		if o.GetKind() != filled.GetKind() || o.GetName() != filled.GetName() ||
			o.GetNamespace() != "" && o.GetNamespace() != filled.GetNamespace() || !r.Known().Differing(o) {
			continue
		}
		out := filled.DeepCopy()
		redact.Replace(out, o, func(path []string, v, placeholder any) any {
			if r.Known().Differs(o, path...) {
				return placeholder
			}
			return v
		})
		return out
	}
	return filled
}

func key(o *unstructured.Unstructured) string {
	return o.GroupVersionKind().GroupKind().String() + "/" + o.GetNamespace() + "/" + o.GetName()
}

// jsonKeys are the entries that the API server requires to be JSON, by the type of a Secret.
var jsonKeys = map[string]string{
	string(corev1.SecretTypeDockerConfigJson): corev1.DockerConfigJsonKey,
	string(corev1.SecretTypeDockercfg):        corev1.DockerConfigKey,
}

// satisfyType makes a Secret with placeholders valid: its data is base64, and JSON where its type requires that.
func satisfyType(o *unstructured.Unstructured) {
	if o.GetAPIVersion() != "v1" || o.GetKind() != "Secret" {
		return
	}
	kind, _ := o.Object["type"].(string)
	data, _ := o.Object["data"].(map[string]any)
	for k, v := range data {
		text, _ := v.(string)
		plain, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			plain = []byte(text)
		}
		if k == jsonKeys[kind] && !json.Valid(plain) {
			plain = []byte(`{"auths":{}}`)
		}
		data[k] = base64.StdEncoding.EncodeToString(plain)
	}
	plain, _ := o.Object["stringData"].(map[string]any)
	for k, v := range plain {
		if text := fmt.Sprint(v); k == jsonKeys[kind] && !json.Valid([]byte(text)) {
			plain[k] = `{"auths":{}}`
		}
	}
}
