package risk

import (
	"fmt"
	"slices"
	"strings"
)

// rbacGroup is the API group of roles and bindings.
const rbacGroup = "rbac.authorization.k8s.io"

// addedGrants returns the rights that a role or binding gives after the change and not before, in words.
func addedGrants(group, kind string, before, after map[string]any) []string {
	if group != rbacGroup {
		return nil
	}
	switch kind {
	case "Role", "ClusterRole":
		return addedRules(before, after)
	case "RoleBinding", "ClusterRoleBinding":
		return addedSubjects(before, after)
	}
	return nil
}

// right is one verb on one resource of one API group, maybe of one name. "*" stands for all.
type right struct{ group, resource, verb, name, url string }

// covers reports whether the right includes another one.
func (r right) covers(o right) bool {
	match := func(mine, other string) bool { return mine == other || mine == "*" }
	if r.url != "" || o.url != "" {
		prefix, wildcard := strings.CutSuffix(r.url, "*")
		return match(r.verb, o.verb) && r.url != "" && o.url != "" &&
			(r.url == o.url || wildcard && strings.HasPrefix(o.url, prefix))
	}
	return match(r.group, o.group) && coversResource(r.resource, o.resource) && match(r.verb, o.verb) &&
		(r.name == "" || r.name == o.name)
}

// coversResource reports whether a resource of a rule includes another one. */scale covers that subresource of all.
func coversResource(mine, other string) bool {
	_, sub, hasSub := strings.Cut(other, "/")
	return mine == other || mine == "*" || hasSub && mine == "*/"+sub
}

func (r right) String() string {
	if r.url != "" {
		return fmt.Sprintf("%s %s", r.verb, r.url)
	}
	resource := r.resource
	if r.group != "" {
		resource += "." + r.group
	}
	if r.name != "" {
		return fmt.Sprintf("%s %s '%s'", r.verb, resource, r.name)
	}
	return fmt.Sprintf("%s %s", r.verb, resource)
}

// rights returns the rights of a role. It reports false if it has more than can be compared.
func rights(role map[string]any) ([]right, bool) {
	var out []right
	rules, _ := role["rules"].([]any)
	for _, item := range rules {
		rule, _ := item.(map[string]any)
		names := words(rule["resourceNames"])
		if len(names) == 0 {
			names = []string{""}
		}
		verbs, urls := words(rule["verbs"]), words(rule["nonResourceURLs"])
		groups, resources := words(rule["apiGroups"]), words(rule["resources"])
		if len(out)+len(verbs)*(len(urls)+len(groups)*len(resources)*len(names)) > maxFacts {
			return out, false
		}
		for _, verb := range verbs {
			for _, u := range urls {
				out = append(out, right{verb: verb, url: u})
			}
			for _, g := range groups {
				for _, resource := range resources {
					for _, n := range names {
						out = append(out, right{group: g, resource: resource, verb: verb, name: n})
					}
				}
			}
		}
	}
	return out, true
}

func addedRules(before, after map[string]any) []string {
	old, complete1 := rights(before)
	now, complete2 := rights(after)
	var out []string
	for _, r := range now {
		if !slices.ContainsFunc(old, func(o right) bool { return o.covers(r) }) {
			out = append(out, r.String())
		}
	}
	if !complete1 || !complete2 {
		out = append(out, fmt.Sprintf("more than %d rights, which were not compared", maxFacts))
	}
	if was, is := fmt.Sprint(before["aggregationRule"]), fmt.Sprint(after["aggregationRule"]); is != was &&
		after["aggregationRule"] != nil {
		out = append(out, "the rights of aggregated roles")
	}
	return without(out, nil)
}

// addedSubjects returns the subjects that a binding adds. If the role of the binding changes, all are new.
func addedSubjects(before, after map[string]any) []string {
	role := func(binding map[string]any) string {
		ref := child(binding, "roleRef")
		return fmt.Sprintf("%v '%v'", ref["kind"], ref["name"])
	}
	subjects := func(binding map[string]any) (out []string) {
		list, _ := binding["subjects"].([]any)
		for _, item := range list[:min(len(list), maxFacts)] {
			s, _ := item.(map[string]any)
			name := fmt.Sprintf("%v '%v'", s["kind"], s["name"])
			if s["namespace"] != nil {
				name = fmt.Sprintf("%v '%v/%v'", s["kind"], s["namespace"], s["name"])
			}
			out = append(out, fmt.Sprintf("%s to %s", role(binding), name))
		}
		return out
	}
	return without(subjects(after), subjects(before))
}

// words returns the texts of a list.
func words(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, item := range list {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
