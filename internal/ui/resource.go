package ui

import (
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/model/lineage"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/redact"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// maxOwners of an object that are shown.
const maxOwners = 20

// resource is an object that is not one of ours, for the panel of a tree.
type resource struct {
	Conditions []metav1.Condition `json:"conditions"`
	Events     []event            `json:"events"`
	EventError string             `json:"eventError,omitempty"`
	Owners     []string           `json:"owners"`              // IDs
	AppliedBy  string             `json:"appliedBy,omitempty"` // ID
	YAML       string             `json:"yaml"`                // values of Secrets are masked
	Managed    string             `json:"managed,omitempty"`   // managed fields, as YAML
	Foreign    []foreignField     `json:"foreign"`             // fields that are not from git
	Declared   bool               `json:"declared"`            // whether it is known which fields are from git
}

// resource returns an object of any kind with the rights of the user. Parameters: group, kind, namespace and name.
func (s *Server) resource(ctx context.Context, u *User, r *http.Request) (any, error) {
	q := r.URL.Query()
	mapping, err := u.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: q.Get("group"), Kind: q.Get("kind")})
	if err != nil {
		return nil, badRequest("the cluster has no such kind: %s", excerpt.Bytes(err.Error(), maxConditionRow))
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	key := client.ObjectKey{Namespace: q.Get("namespace"), Name: q.Get("name")}
	if err := u.Client.Get(ctx, key, o); err != nil {
		return nil, err
	}
	answer := resource{Conditions: conditionsIn(o), Owners: []string{}}
	for _, owner := range o.GetOwnerReferences()[:min(len(o.GetOwnerReferences()), maxOwners)] {
		answer.Owners = append(answer.Owners, view.ID(owner.Kind, o.GetNamespace(), owner.Name))
	}
	if m := lineage.ManagerOf(o); m != nil {
		answer.AppliedBy = view.ID(m.Kind, m.Namespace, m.Name)
	}
	if answer.Events, err = eventsOf(ctx, u, o.GetKind(), client.ObjectKeyFromObject(o)); err != nil {
		answer.Events, answer.EventError = []event{}, explain(err)
	}
	managed := o.GetManagedFields()
	mask(o)
	answer.Foreign, answer.Declared = foreignFields(managed, o)
	if text, err := yaml.Marshal(managed); err == nil && len(managed) > 0 {
		answer.Managed = excerpt.Bytes(string(text), maxYAML)
	}
	text, err := yaml.Marshal(o.Object)
	answer.YAML = excerpt.Bytes(string(text), maxYAML)
	return answer, err
}

// conditionsIn returns the first conditions of an object, if it has any in the usual form.
func conditionsIn(o *unstructured.Unstructured) []metav1.Condition {
	conditions := []metav1.Condition{}
	raw, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, one := range raw[:min(len(raw), maxConditions)] {
		fields, ok := one.(map[string]any)
		var c metav1.Condition
		if !ok || runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &c) != nil {
			continue
		}
		c.Message = excerpt.Bytes(c.Message, maxConditionRow)
		conditions = append(conditions, c)
	}
	return conditions
}

// mask removes what a page must not show: values of Secrets, also as kubectl has recorded them, and managed fields.
func mask(o *unstructured.Unstructured) {
	o.SetManagedFields(nil)
	annotations := o.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	o.SetAnnotations(annotations)
	if o.GroupVersionKind().GroupKind() != (schema.GroupKind{Kind: "Secret"}) {
		return
	}
	for _, field := range []string{"data", "stringData"} {
		if values, ok := o.Object[field].(map[string]any); ok {
			for k := range values {
				values[k] = redact.Masked
			}
		}
	}
}
