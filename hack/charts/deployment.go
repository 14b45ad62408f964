package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
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
			items = slices.DeleteFunc(slices.Clone(items), dependsOnValues)
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
	spec, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec")
	fields, _ := spec.(map[string]any)
	if err := t.replicas(fields, pod, c); err != nil {
		return err
	}
	t.mark(c, "resources", optional("resources", ".Values.resources"))
	return t.pod(pod, c)
}

// hubName is the name of the Deployment of the hub.
const hubName = "sluice-hub"

// hub turns the fields of the hub's Deployment that depend on the values of a release into templates.
func (t *objectTemplate) hub(u *unstructured.Unstructured) error {
	spec, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec")
	fields, _ := spec.(map[string]any)
	field, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "template", "spec")
	pod, _ := field.(map[string]any)
	c := firstContainer(u)
	t.mark(fields, "replicas", func(indent string) string {
		return indent + "replicas: {{ include \"sluice.replicas\" . }}\n"
	})
	t.mark(c, "args", func(indent string) string {
		return indent + "args:\n" + indent + "- hub\n" + indent + "- --peers=sluice-hub-peers\n" + indent + fmt.Sprintf(
			"{{- include \"sluice.hubArgs\" . | trim | nindent %d }}\n", len(indent))
	})
	for name, fields := range map[string]map[string]any{"volumes": pod, "volumeMounts": c} {
		items, _ := fields[name].([]any)
		err := t.items(fields, name, items, func(other *unstructured.Unstructured) []any {
			if found, ok := firstContainer(other)[name].([]any); ok {
				return found
			}
			found, _, _ := unstructured.NestedSlice(other.Object, "spec", "template", "spec", name)
			return found
		}, nil, "")
		if err != nil {
			return err
		}
		mark, _ := fields[name].(string)
		list := t.parts[mark]
		t.parts[mark] = func(indent string) string {
			return when("or "+hubTLSCondition+" "+clientSecretCondition, list(indent), indent)
		}
	}
	b, err := yaml.Marshal(map[string]any{"envFrom": c["envFrom"]})
	t.mark(c, "envFrom", func(indent string) string {
		return when("and "+backendCondition+" .Values.storageBackend.secret", indented(string(b), indent), indent)
	})
	return errors.Join(err, t.pod(pod, c))
}

// dependsOnValues reports whether an argument depends on values, so that a template by hand has it.
func dependsOnValues(item any) bool {
	text, _ := item.(string)
	return strings.HasPrefix(text, "--ui-") || strings.HasPrefix(text, "--mcp-") ||
		strings.HasPrefix(text, "--review-") || strings.HasPrefix(text, "--storage-backend-") || text == "--auto-shards"
}

// replicas turns what depends on the number of replicas into templates.
func (t *objectTemplate) replicas(spec, pod, c map[string]any) error {
	rolling, err := yaml.Marshal(map[string]any{"strategy": spec["strategy"]})
	if err != nil {
		return err
	}
	t.mark(spec, "replicas", func(indent string) string {
		return when("not "+autoscalerCondition, indent+"replicas: {{ include \"sluice.replicas\" . }}\n", indent)
	})
	t.mark(spec, "strategy", func(indent string) string {
		return indent + "{{- if " + backendCondition + " }}\n" + indented(string(rolling), indent) + indent +
			"{{- else }}\n" + indented("strategy:\n  type: Recreate\n", indent) + indent + "{{- end }}\n"
	})
	for name, fields := range map[string]map[string]any{"topologySpreadConstraints": pod, "envFrom": c} {
		b, err := yaml.Marshal(map[string]any{name: fields[name]})
		if err != nil {
			return err
		}
		condition := t.condition(t.object, func(other *unstructured.Unstructured) bool {
			if name == "envFrom" {
				return firstContainer(other)[name] != nil
			}
			_, found, _ := unstructured.NestedSlice(other.Object, "spec", "template", "spec", name)
			return found
		})
		t.mark(fields, name, func(indent string) string { return when(condition, indented(string(b), indent), indent) })
	}
	return nil
}

// autoscaler turns the bounds of the autoscaler into templates.
func (t *objectTemplate) autoscaler(u *unstructured.Unstructured) {
	spec, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec")
	fields, _ := spec.(map[string]any)
	t.mark(fields, "minReplicas", func(indent string) string {
		return indent + "minReplicas: {{ include \"sluice.replicas\" . }}\n"
	})
	t.mark(fields, "maxReplicas", func(indent string) string {
		return indent + "maxReplicas: {{ include \"sluice.maxReplicas\" . }}\n"
	})
}

// indented returns lines with an indent.
func indented(lines, indent string) string {
	return indent + strings.ReplaceAll(strings.TrimSuffix(lines, "\n"), "\n", "\n"+indent) + "\n"
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
