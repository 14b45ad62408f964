package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// firstTenantArg is the first argument of the profile multi-tenant. Those that the values of a release add go before.
const firstTenantArg = "--no-cross-namespace-refs"

// deployment turns the fields of the Deployment that depend on the values of a release into templates.
func (t *objectTemplate) deployment(u *unstructured.Unstructured) error {
	field, _, err := unstructured.NestedFieldNoCopy(u.Object, "spec", "template", "spec")
	if err != nil {
		return err
	}
	pod, _ := field.(map[string]any)
	c := firstContainer(u)
	for _, name := range []string{"args", "ports", "volumeMounts"} {
		items, _ := c[name].([]any)
		if len(items) == 0 {
			return errors.New("the container has no " + name)
		}
		tail := ""
		if name == "args" {
			items = slices.DeleteFunc(slices.Clone(items), isUIArg)
			tail = "        {{- with include \"sluice.uiArgs\" . }}\n" +
				"        {{- . | trim | nindent 8 }}\n        {{- end }}\n"
		}
		var inserted func(any) string
		if name == "args" {
			inserted = func(item any) string {
				if item != firstTenantArg {
					return ""
				}
				return "        {{- with include \"sluice.args\" . }}\n" +
					"        {{- . | trim | nindent 8 }}\n        {{- end }}\n"
			}
		}
		err := t.items(c, name, items, func(other *unstructured.Unstructured) []any {
			found, _ := firstContainer(other)[name].([]any)
			return found
		}, inserted, tail)
		if err != nil {
			return err
		}
	}
	volumes, _ := pod["volumes"].([]any)
	err = t.items(pod, "volumes", volumes, func(other *unstructured.Unstructured) []any {
		found, _, _ := unstructured.NestedSlice(other.Object, "spec", "template", "spec", "volumes")
		return found
	}, nil, "")
	if err != nil {
		return err
	}
	return t.pod(pod, c)
}

// isUIArg reports whether an argument is one of the web UI. They depend on values, so a template by hand has them.
func isUIArg(item any) bool {
	text, _ := item.(string)
	return strings.HasPrefix(text, "--ui-")
}

// pod turns the other fields of the pod and its container into templates.
func (t *objectTemplate) pod(pod, c map[string]any) error {
	priority, _ := pod["priorityClassName"].(string)
	if priority == "" {
		return errors.New("the profile multi-tenant has no priority class")
	}
	t.mark(pod, "priorityClassName", func(indent string) string {
		condition := t.condition(t.object, func(other *unstructured.Unstructured) bool {
			_, found, _ := unstructured.NestedString(other.Object, "spec", "template", "spec", "priorityClassName")
			return found
		})
		return when(condition, indent+"priorityClassName: "+priority+"\n", indent)
	})
	t.mark(pod, "tolerations", optional("tolerations", ".Values.tolerations"))
	t.mark(pod, "imagePullSecrets", optional("imagePullSecrets", ".Values.image.pullSecrets"))
	t.mark(c, "resources", optional("resources", ".Values.resources"))
	t.mark(c, "image", func(indent string) string {
		return indent + "image: {{ include \"sluice.image\" . | quote }}\n"
	})
	return nil
}

// optional returns the template of a field that is left out if its value is empty.
func optional(name, value string) func(indent string) string {
	return func(indent string) string {
		body := fmt.Sprintf("%s:\n%s  {{- toYaml . | nindent %d }}\n", name, indent, len(indent)+2)
		return indent + "{{- with " + value + " }}\n" + indent + body + indent + "{{- end }}\n"
	}
}
