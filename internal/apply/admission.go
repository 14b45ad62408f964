package apply

import (
	"context"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var accessReviews = schema.GroupVersionResource{Group: "authorization.k8s.io", Version: "v1",
	Resource: "selfsubjectaccessreviews"}

// may reports whether the account may do something with all objects of a resource in a namespace, or in all namespaces
// if it is empty. It reports false if the cluster does not say.
func (c *Cluster) may(ctx context.Context, verb string, resource schema.GroupVersionResource, namespace string) bool {
	review := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]any{"verb": verb, "group": resource.Group,
			"resource": resource.Resource, "namespace": namespace}},
	}}
	response, err := c.dynamic.Resource(accessReviews).Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false
	}
	allowed, _, _ := unstructured.NestedBool(response.Object, "status", "allowed")
	return allowed
}

// mayDelete reports whether the account may delete objects of a resource in all namespaces. The cluster is asked once
// for each resource.
func (c *Cluster) mayDelete(ctx context.Context, resource schema.GroupVersionResource) bool {
	c.mu.Lock()
	allowed, known := c.deletable[resource]
	c.mu.Unlock()
	if known {
		return allowed
	}
	allowed = c.may(ctx, "delete", resource, metav1.NamespaceAll)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deletable[resource] = allowed
	return allowed
}

// admissionGroup is the group of the kinds that configure webhooks and policies.
const admissionGroup = "admissionregistration.k8s.io"

// admissionRules has the fields of all kinds of the group that select requests.
type admissionRules struct {
	Webhooks []struct {
		Rules []admissionregistrationv1.RuleWithOperations `json:"rules"`
	} `json:"webhooks"`
	Spec struct {
		MatchConstraints *admissionregistrationv1.MatchResources `json:"matchConstraints"`
	} `json:"spec"`
}

// selects reports whether the rules are for updates of a resource. Conditions, and selectors of namespaces and objects,
// are ignored.
func (a *admissionRules) selects(resource schema.GroupVersionResource) bool {
	var rules []admissionregistrationv1.RuleWithOperations
	for _, webhook := range a.Webhooks {
		rules = append(rules, webhook.Rules...)
	}
	if match := a.Spec.MatchConstraints; match != nil {
		for _, rule := range match.ResourceRules {
			rules = append(rules, rule.RuleWithOperations)
		}
	}
	return slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		isAny := func(values []string, those ...string) bool {
			return slices.ContainsFunc(values, func(v string) bool { return slices.Contains(those, v) })
		}
		updates := slices.Contains(rule.Operations, admissionregistrationv1.Update) ||
			slices.Contains(rule.Operations, admissionregistrationv1.OperationAll)
		return updates && isAny(rule.APIGroups, resource.Group, "*") &&
			isAny(rule.Resources, resource.Resource, "*", "*/*")
	})
}

// admits reports whether no webhook and no policy of the cluster sees updates of a resource, so that none can refuse or
// change one. It reports false if the account may not list them, and if a newer cluster has other kinds of them.
func (c *Cluster) admits(ctx context.Context, resource schema.GroupVersionResource) bool {
	served, err := c.admissionResources()
	if err != nil {
		return false
	}
	for _, r := range served {
		switch r.Resource {
		case "validatingadmissionpolicybindings", "mutatingadmissionpolicybindings": // only with a policy
			continue
		case "validatingwebhookconfigurations", "mutatingwebhookconfigurations", "validatingadmissionpolicies",
			"mutatingadmissionpolicies":
		default:
			return false
		}
		list, err := c.dynamic.Resource(r).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) { // not served any more
			continue
		}
		if err != nil || slices.ContainsFunc(list.Items, func(o unstructured.Unstructured) bool {
			var rules admissionRules
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &rules)
			return err != nil || rules.selects(resource)
		}) {
			return false
		}
	}
	return true
}

// admissionResources returns the resources that configure webhooks and policies, each in one version.
func (c *Cluster) admissionResources() ([]schema.GroupVersionResource, error) {
	groups, err := c.cached.ServerGroups()
	if err != nil {
		return nil, err
	}
	var out []schema.GroupVersionResource
	seen := map[string]bool{}
	for _, group := range groups.Groups {
		if group.Name != admissionGroup {
			continue
		}
		for _, version := range group.Versions {
			list, err := c.cached.ServerResourcesForGroupVersion(version.GroupVersion)
			if err != nil {
				return nil, err
			}
			for _, r := range list.APIResources {
				if slices.Contains(r.Verbs, "list") && !seen[r.Name] {
					seen[r.Name] = true
					out = append(out, schema.GroupVersionResource{Group: group.Name, Version: version.Version,
						Resource: r.Name})
				}
			}
		}
	}
	return out, nil
}
