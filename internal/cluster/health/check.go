package health

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/sluice-gitops/sluice/internal/build/expression"
)

// Check defines the health of objects of a kind by expressions instead of kstatus. An expression refers to the fields
// of the object by name, such as status.
type Check struct {
	apiVersion, kind            string // of the objects; an empty kind covers all kinds of the version
	current, inProgress, failed *expression.Expression
	id                          string // hash of the expressions
}

// variables are the fields that an expression may refer to.
var variables = []string{
	"apiVersion", "kind", "metadata", "spec", "status", "data", "binaryData", "stringData", "immutable", "type",
	"rules", "roleRef", "subjects", "aggregationRule", "provisioner", "parameters", "webhooks", "value", "secrets",
	"imagePullSecrets",
}

// NewCheck compiles the expressions of a check. Current is required; the others may be empty. The error names the
// field.
func NewCheck(apiVersion, kind, current, inProgress, failed string) (*Check, error) {
	c := &Check{apiVersion: apiVersion, kind: kind}
	id := sha256.New()
	for _, e := range []struct {
		field, source string
		compiled      **expression.Expression
	}{{field: "current", source: current, compiled: &c.current},
		{field: "inProgress", source: inProgress, compiled: &c.inProgress},
		{field: "failed", source: failed, compiled: &c.failed}} {
		fmt.Fprintf(id, "%d:%s", len(e.source), e.source)
		if e.source == "" && e.field != "current" {
			continue
		}
		compiled, err := expression.Compile(e.source, variables...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.field, err)
		}
		*e.compiled = compiled
	}
	c.id = hex.EncodeToString(id.Sum(nil))
	return c, nil
}

// isBrief reports whether all expressions are fast for any object.
func (c *Check) isBrief() bool {
	return !slices.ContainsFunc([]*expression.Expression{c.current, c.inProgress, c.failed},
		func(e *expression.Expression) bool { return e != nil && !e.IsBrief() })
}

func (c *Check) covers(gvk schema.GroupVersionKind) bool {
	return c.apiVersion == gvk.GroupVersion().String() && (c.kind == "" || c.kind == gvk.Kind)
}

// observe returns the health of an object by the expressions. The expressions do not apply to an object that is being
// deleted, or whose controller has not observed its generation yet. An object without the fields that an expression
// refers to is in progress.
func (c *Check) observe(u *unstructured.Unstructured) observation {
	out := observation{version: u.GetResourceVersion(), status: InProgress}
	if u.GetDeletionTimestamp() != nil {
		out.status, out.message = Terminating, "the object is being deleted"
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
	}{{expression: c.inProgress, status: status.InProgressStatus}, {expression: c.failed, status: status.FailedStatus},
		{expression: c.current, status: status.CurrentStatus}} {
		if e.expression == nil {
			continue
		}
		holds, err := e.expression.Holds(context.Background(), expression.Map(u.Object)) // has its own time limit
		if err != nil {
			out.message = fmt.Sprintf("the %s expression '%s' cannot be evaluated yet: %v", e.status, e.expression, err)
			return out
		}
		if holds {
			out.status, out.message = string(e.status), fmt.Sprintf("'%s' is true", e.expression)
			if c := readyCondition(u); c != "" {
				out.message = c
			}
			return out
		}
	}
	out.message = fmt.Sprintf("'%s' is not true yet", c.current)
	return out
}

// readyCondition returns reason and message of the object's condition Ready; empty if it has none.
func readyCondition(u *unstructured.Unstructured) string {
	for _, c := range conditions(u) {
		if c["type"] == "Ready" {
			return reasonAndMessage(c)
		}
	}
	return ""
}
