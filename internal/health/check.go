package health

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/sluice-gitops/sluice/internal/expression"
)

// Check says by expressions when objects of a kind are healthy, in place of kstatus. An expression sees the
// fields of the object by their names, such as status; a nil one says nothing.
type Check struct {
	apiVersion, kind            string // of the objects; any kind of the version when kind is empty
	current, progressing, broke *expression.Expression
	id                          string
}

// referable is what an expression may refer to.
var referable = []string{
	"apiVersion", "kind", "metadata", "spec", "status", "data", "binaryData", "stringData", "immutable", "type",
	"rules",
	"roleRef", "subjects", "aggregationRule", "provisioner", "parameters", "webhooks", "value", "secrets",
	"imagePullSecrets",
}

// NewCheck compiles the expressions of a check. Current is required; the others may be empty. The error names
// the field.
func NewCheck(apiVersion, kind, current, inProgress, failed string) (*Check, error) {
	c := &Check{apiVersion: apiVersion, kind: kind}
	id := sha256.New()
	for _, e := range []struct {
		field, source string
		to            **expression.Expression
	}{{"current", current, &c.current}, {"inProgress", inProgress, &c.progressing}, {"failed", failed, &c.broke}} {
		fmt.Fprintf(id, "%d:%s", len(e.source), e.source)
		if e.source == "" && e.field != "current" {
			continue
		}
		compiled, err := expression.Compile(e.source, referable...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.field, err)
		}
		*e.to = compiled
	}
	c.id = hex.EncodeToString(id.Sum(nil))
	return c, nil
}

func (c *Check) covers(gvk schema.GroupVersionKind) bool {
	return c.apiVersion == gvk.GroupVersion().String() && (c.kind == "" || c.kind == gvk.Kind)
}

// compute tells the health of an object. What is being deleted, or what its controller has not looked at yet,
// is not what the expressions are about. A field that is not there yet means that the object is on its way.
func (c *Check) compute(u *unstructured.Unstructured) seen {
	out := seen{version: u.GetResourceVersion(), status: InProgress}
	if u.GetDeletionTimestamp() != nil {
		out.status, out.message = Terminating, "it is being deleted"
		return out
	}
	if observed, ok, err := unstructured.NestedInt64(u.Object, "status", "observedGeneration"); ok && err == nil &&
		observed != u.GetGeneration() {
		out.message = fmt.Sprintf("generation is %d, but the observed generation is %d", u.GetGeneration(), observed)
		return out
	}
	for _, e := range []struct {
		expression *expression.Expression
		status     status.Status
	}{{c.progressing, status.InProgressStatus}, {c.broke, status.FailedStatus}, {c.current, status.CurrentStatus}} {
		if e.expression == nil {
			continue
		}
		holds, err := e.expression.Holds(context.Background(), expression.Map(u.Object)) // bounded by itself
		if err != nil {
			out.message = fmt.Sprintf("%s cannot be told yet by '%s': %v", e.status, e.expression, err)
			return out
		}
		if holds {
			out.status, out.message = string(e.status), fmt.Sprintf("'%s' holds", e.expression)
			if c := readyCondition(u); c != "" {
				out.message = c
			}
			return out
		}
	}
	out.message = fmt.Sprintf("'%s' does not hold yet", c.current)
	return out
}

// readyCondition words the object's own condition Ready, if it has one.
func readyCondition(u *unstructured.Unstructured) string {
	for _, c := range conditions(u) {
		if c["type"] == "Ready" {
			return text(c)
		}
	}
	return ""
}
