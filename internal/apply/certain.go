package apply

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// certainThreshold is the number of changed objects of a resource in a namespace from which on it costs less to find
// out that they cannot be refused than to dry-run them.
const certainThreshold = 20

// maxCertainBytes bounds the data of an object before and after a change that cannot be refused. It is half of what the
// API server allows (core.MaxSecretSize), so that managed fields and data of others fit as well.
const maxCertainBytes = 512 << 10

// selectCertain selects the changed objects that the API server cannot refuse: those of kinds whose rules are known
// here, if the account may change all of them and no webhook or policy sees it. They need no dry-run. The live objects
// are kept, as each is applied to the version that was checked.
func (r *run) selectCertain(ctx context.Context, changed []*step) (certain []*step) {
	candidates := map[place][]*step{}
	for _, s := range changed {
		if isPlainData(s.manifest) {
			candidates[s.place()] = append(candidates[s.place()], s)
		}
	}
	admitted := map[schema.GroupVersionResource]bool{}
	for at, plain := range candidates {
		if len(plain) < certainThreshold || !r.may(ctx, "patch", at.resource, at.namespace) {
			continue
		}
		if _, known := admitted[at.resource]; !known {
			admitted[at.resource] = r.admits(ctx, at.resource)
		}
		if !admitted[at.resource] || r.list(ctx, at) != nil {
			continue
		}
		for _, s := range plain {
			if live := r.listed[s.ref]; live != nil && r.needsOnlyApply(s.object, live) &&
				!fieldsOf(live.GetManagedFields(), r.managers.isOurs).Empty() && mayBecome(live, s.manifest) {
				certain = append(certain, s)
			}
		}
	}
	slices.SortFunc(certain, byRank[*step](r.options))
	return certain
}

// isPlainData reports whether a manifest is a ConfigMap, or a Secret of no particular type, that the API server accepts
// as such. The rules are those of ValidateConfigMap, ValidateSecret and ValidateObjectMeta.
func isPlainData(o *unstructured.Unstructured) bool {
	isSecret := isSecret(o.GroupVersionKind().GroupKind())
	if o.GetAPIVersion() != "v1" || !isSecret && o.GetKind() != "ConfigMap" {
		return false
	}
	for key := range o.Object {
		switch key {
		case "apiVersion", "kind", "metadata", "data":
		case "type":
			if !isSecret || o.Object["type"] != "Opaque" {
				return false
			}
		default:
			return false
		}
	}
	metadata, _ := o.Object["metadata"].(map[string]any)
	for key := range metadata {
		if !slices.Contains([]string{"name", "namespace", "labels", "annotations"}, key) {
			return false
		}
	}
	data, ok := textsOf(o, "data")
	for key, value := range data {
		ok = ok && len(validation.IsConfigMapKey(key)) == 0
		if isSecret && ok {
			_, err := base64.StdEncoding.DecodeString(value)
			ok = err == nil
		}
	}
	labels, labelsOK := textsOf(o, "metadata", "labels")
	annotations, annotationsOK := textsOf(o, "metadata", "annotations")
	return ok && labelsOK && annotationsOK &&
		len(metavalidation.ValidateLabels(labels, field.NewPath("labels"))) == 0 &&
		len(apivalidation.ValidateAnnotations(annotations, field.NewPath("annotations"))) == 0
}

// textsOf returns a map of texts in an object. It reports false if a value is not a text.
func textsOf(o *unstructured.Unstructured, path ...string) (map[string]string, bool) {
	texts, _, err := unstructured.NestedStringMap(o.Object, path...)
	return texts, err == nil
}

// mayBecome reports whether the API server accepts a change of a live object to plain data. What is declared comes to
// what others have set.
func mayBecome(live, plain *unstructured.Unstructured) bool {
	for _, key := range []string{"immutable", "binaryData"} {
		if live.Object[key] != nil {
			return false
		}
	}
	if kind, _, _ := unstructured.NestedString(live.Object, "type"); isSecret(live.GroupVersionKind().GroupKind()) &&
		kind != "Opaque" {
		return false
	}
	annotations, data := 0, 0
	for _, o := range []*unstructured.Unstructured{live, plain} {
		for key, value := range o.GetAnnotations() {
			annotations += len(key) + len(value)
		}
		texts, ok := textsOf(o, "data")
		if !ok {
			return false
		}
		for key, value := range texts {
			data += len(key) + len(value)
		}
	}
	return annotations <= apivalidation.TotalAnnotationSizeLimitB && data <= maxCertainBytes
}

// changeListed applies an object to the version in the list.
func (r *run) changeListed(ctx context.Context, s *step) error {
	return r.applyTo(ctx, s, r.listed[s.ref])
}

// setBack gives an object that was changed without a dry-run the values that it had before, unless it has changed again
// since. The next pass compares it.
func (r *run) setBack(ctx context.Context, s *step) error {
	if s.outcome == nil || s.outcome.action != Configured {
		return nil
	}
	before := r.listed[s.ref]
	r.beginWrite(r.req.Owner, s.object)
	live, err := r.client(s.resource, s.ref.Namespace).Get(ctx, s.ref.Name, metav1.GetOptions{})
	if err == nil && live.GetResourceVersion() == s.outcome.version {
		err = r.update(ctx, s.object, live, before, before.GetManagedFields(), metav1.PatchOptions{})
	}
	r.failWrite(r.req.Owner, s.object)
	if err != nil && !isGone(err) && !apierrors.IsConflict(err) {
		return problem("%s was changed, and could not be set back", r.name(s.object)).
			Because(errors.New(serverMessage(s.object, err)))
	}
	s.outcome = nil
	return nil
}
