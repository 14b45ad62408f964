package receiver

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const gateKind = "Gate"

// plan is a validated Receiver.
type plan struct {
	path    string
	trust   hook.Trust // what callers must prove
	targets []target
	action  string // spec.action, for gates
}

// target selects objects of one kind in one namespace.
type target struct {
	schema.GroupKind
	namespace, name string
	labels          map[string]string // only with the name *; ignored with others
	filters         []*expression.Expression
}

// Bounds of a Receiver, as its expressions are compiled for each request.
const (
	maxExpressions  = 100       // different ones, in filters and for OIDC each
	expressionBytes = 200 << 10 // of memory for each
)

// plan validates a Receiver. The error is a fault.
func (m *Plans) plan(ctx context.Context, r *notificationv1.Receiver) (*plan, error) {
	trust, err := m.trust(ctx, r)
	if err != nil {
		return nil, err
	}
	return m.complete(r, trust)
}

// complete adds to what callers must prove what they may then do. Filters are compiled here, so a request must have
// been verified before. The error is a fault.
func (m *Plans) complete(r *notificationv1.Receiver, trust hook.Trust) (*plan, error) {
	p := &plan{path: pathOf(r, trust), trust: trust, action: r.Spec.Action}
	variables := []string{"res", "req"}
	if r.Spec.Type == notificationv1.GenericOIDCReceiver {
		variables = append(variables, "claims")
	}
	if len(filtersOf(r)) > maxExpressions {
		return nil, invalid("spec.resources[].filter", fmt.Errorf("there are more than %d different ones",
			maxExpressions))
	}
	compiled := map[string]*expression.Expression{}
	for i, resource := range r.Spec.Resources {
		t, err := m.target(r, resource)
		if err != nil {
			return nil, err
		}
		for _, f := range []struct{ field, source string }{
			{field: "spec.resourceFilter", source: r.Spec.ResourceFilter},
			{field: fmt.Sprintf("spec.resources[%d].filter", i), source: resource.Filter},
		} {
			if f.source == "" {
				continue
			}
			e := compiled[f.source]
			if e == nil {
				if e, err = expression.Compile(f.source, variables...); err != nil {
					return nil, invalid(f.field, err)
				}
				compiled[f.source] = e
			}
			t.filters = append(t.filters, e)
		}
		p.targets = append(p.targets, t)
	}
	return p, nil
}

// filtersOf returns the different filters of a Receiver.
func filtersOf(r *notificationv1.Receiver) map[string]bool {
	filters := map[string]bool{r.Spec.ResourceFilter: true}
	for _, resource := range r.Spec.Resources {
		filters[resource.Filter] = true
	}
	delete(filters, "")
	return filters
}

// pathOf returns the path of the webhook of a Receiver.
func pathOf(r *notificationv1.Receiver, trust hook.Trust) string {
	return hook.Path(trust.Token, r.Name, r.Namespace)
}

func (m *Plans) target(r *notificationv1.Receiver, resource notificationv1.ReceiverResource) (target, error) {
	group := notificationv1.GroupOf(resource.Kind)
	t := target{
		GroupKind: schema.GroupKind{Group: group, Kind: resource.Kind},
		namespace: cmp.Or(resource.Namespace, r.Namespace), name: resource.Name, labels: resource.MatchLabels,
	}
	subject := resource.Kind + " '" + t.namespace + "/" + t.name + "' of spec.resources"
	gv, err := schema.ParseGroupVersion(resource.APIVersion)
	switch {
	case group == "":
		return t, fault.New(meta.FailedReason, "%s has an unknown kind", subject).WithHint("Correct its kind").Final()
	case err != nil || gv.Group != "" && gv.Group != group:
		return t, fault.New(meta.FailedReason, "%s has an apiVersion of the wrong group", subject).
			WithHint("The group is %s; apiVersion may be omitted", group).Final()
	case resource.Kind == gateKind && t.namespace != r.Namespace:
		return t, fault.New(meta.AccessDeniedReason, "%s is a Gate of another namespace, which a Receiver cannot open "+
			"or close", subject).WithHint("Create the Receiver in the namespace of the Gate").Final()
	case m.NoCrossNamespaceRefs && t.namespace != r.Namespace:
		return t, fault.New(meta.AccessDeniedReason, "%s is in another namespace, which is not allowed", subject).
			WithHint("Create the Receiver in that namespace, or run the controllers without " +
				"--no-cross-namespace-refs").Final()
	case t.name == notificationv1.AnyName && len(t.labels) == 0:
		return t, fault.New(meta.FailedReason, "%s selects all objects, but has no matchLabels", subject).
			WithHint("Set matchLabels, or the name of an object").Final()
	case resource.Kind == gateKind && r.Spec.Action == "":
		return t, fault.New(meta.FailedReason, "%s is a Gate, but spec.action is not set", subject).
			WithHint("Set spec.action to open or close").Final()
	}
	return t, nil
}

// providers compiles spec.oidcProviders. The error is a fault.
func providers(specs []notificationv1.OIDCProvider) ([]hook.Provider, error) {
	var all []hook.Provider
	expressions := 0
	for i, spec := range specs {
		if expressions += len(spec.Variables) + len(spec.Validations); expressions > maxExpressions {
			return nil, invalid(fmt.Sprintf("spec.oidcProviders[%d]", i), fmt.Errorf("the providers up to this one "+
				"have more than %d variables and validations", maxExpressions))
		}
		p := hook.Provider{Issuer: spec.IssuerURL, Audience: cmp.Or(spec.Audience, notificationv1.DefaultAudience)}
		for j, v := range spec.Variables {
			e, err := expression.CompileValue(v.Expression, "claims", "vars")
			if err != nil {
				return nil, invalid(fmt.Sprintf("spec.oidcProviders[%d].variables[%d].expression", i, j), err)
			}
			p.Variables = append(p.Variables, hook.Variable{Name: v.Name, Value: e})
		}
		for j, v := range spec.Validations {
			e, err := expression.Compile(v.Expression, "claims", "vars")
			if err != nil {
				return nil, invalid(fmt.Sprintf("spec.oidcProviders[%d].validations[%d].expression", i, j), err)
			}
			p.Validations = append(p.Validations, hook.Validation{Holds: e, Message: v.Message})
		}
		if len(p.Validations) == 0 { // any token of the issuer would be accepted
			return nil, fault.New(meta.FailedReason, "spec.oidcProviders[%d] has no validations", i).
				WithHint("Add a validation that restricts which tokens are accepted").Final()
		}
		all = append(all, p)
	}
	return all, nil
}

func invalid(field string, err error) error {
	return fault.New(notificationv1.InvalidCELExpressionReason, "%s is not a valid CEL expression", field).Because(err).
		WithHint("Correct the expression; for the syntax see https://cel.dev").Final()
}
