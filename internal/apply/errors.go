package apply

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// maxNamed bounds how many problems one error tells in words.
const maxNamed = 10

func problem(format string, args ...any) *fault.Fault {
	return fault.New(meta.ReconciliationFailedReason, format, args...)
}

// join puts problems into one error.
func join(problems []error) error {
	var found []error
	for _, p := range problems {
		if p != nil {
			found = append(found, p)
		}
	}
	if len(found) <= 1 {
		return errors.Join(found...)
	}
	var texts []string
	for n, p := range found {
		if n == maxNamed {
			texts = append(texts, fmt.Sprintf("and %d more", len(found)-maxNamed))
			break
		}
		texts = append(texts, p.Error())
	}
	return problem("%s", strings.Join(texts, "; "))
}

func show(o *unstructured.Unstructured) string {
	return Ref{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// explain words what the API server said of an object.
func (r *applyRun) explain(i *item, err error) error {
	said := err.Error()
	if i.ref.Kind == "Secret" {
		said = quoted.ReplaceAllString(said, `"***"`) // values may stand in it
	}
	p := problem("%s", i.ref).Because(errors.New(said))
	switch {
	case isImmutable(err):
		return p.WithHint("The field cannot be changed in place: set spec.force, or the annotation %s%s: enabled on the object, to delete and create it anew",
			r.req.Owner.Group, forceAnnotation)
	case apierrors.IsForbidden(err):
		return p.WithHint("Grant the right to the account that applies, or set spec.serviceAccountName to one that has it")
	case namespaceMissing(err, i.ref.Namespace):
		return p.WithHint("Declare the namespace, or add a dependsOn to what brings it")
	default:
		return p
	}
}

// isImmutable tells whether the server refused the change of a field that is set once.
func isImmutable(err error) bool {
	return apierrors.IsInvalid(err) && (strings.Contains(err.Error(), "immutable") || strings.Contains(err.Error(), "may not change once set") ||
		strings.Contains(err.Error(), "updates to statefulset spec for fields other than"))
}

// namespaceMissing tells whether the server found the namespace, not the object, missing.
func namespaceMissing(err error, namespace string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return strings.Contains(err.Error(), fmt.Sprintf("namespaces %q not found", namespace))
	}
	d := status.Status().Details
	return apierrors.IsNotFound(err) && d != nil && d.Kind == "namespaces" && d.Name == namespace
}

// established waits until the definitions of a stage are served, woken by their changes.
func (r *applyRun) established(ctx context.Context, stage []*item) error {
	found := false
	for _, i := range stage {
		if i.ref.Kind != crdKind || i.action == Unchanged || i.action == Skipped {
			continue
		}
		found = true
		if err := r.waitEstablished(ctx, i); err != nil {
			return err
		}
	}
	if found {
		r.mapper.Reset()
	}
	return nil
}

func (r *applyRun) waitEstablished(ctx context.Context, i *item) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	w, err := r.client(i.resource, "").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + i.ref.Name})
	if err != nil {
		return r.explain(i, err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if o, ok := e.Object.(*unstructured.Unstructured); ok && e.Type != watch.Deleted && isEstablished(o) {
			return nil
		}
	}
	return problem("%s is not established", i.ref).WithHint("Its conditions say why, such as a name that another definition has taken")
}

func isEstablished(o *unstructured.Unstructured) bool {
	conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
	if err != nil {
		return false
	}
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
			return true
		}
	}
	return false
}
