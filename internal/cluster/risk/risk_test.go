package risk_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/risk"
)

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	if text == "" {
		return nil
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

const (
	deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  template:
    spec:
      containers: [{name: web, image: "registry:5000/web:v1.2.0"}]
`
	role = `apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: r, namespace: shop}
rules: [{apiGroups: [""], resources: [pods, configmaps], verbs: [get]}]
`
	binding = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: b}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: web, namespace: shop}]
`
)

func named(kind, apiVersion string) string {
	return "apiVersion: " + apiVersion + "\nkind: " + kind + "\nmetadata: {name: x, namespace: shop}\n"
}

func replace(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

const cronJob = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: x, namespace: shop}\nspec: {jobTemplate: " +
	"{spec: {template: {spec: {containers: [{name: c, image: a}]}}}}}\n"

var (
	privileged = replace(cronJob, "image: a", "image: a, securityContext: {privileged: true}")
	wide       = replace(binding, "[{kind", "[{kind: Group, name: devs}, {kind")
)

// builtinCase is a change of one object, and the rules that find it.
type builtinCase struct {
	action        risk.Action
	before, after string
	want          string // rules
	says          string // a part of a message
}

// builtinCases has a change for each rule, and similar ones that it does not find.
var builtinCases = map[string]builtinCase{
	"claim": {action: risk.Deleted, before: named("PersistentVolumeClaim", "v1"),
		want: "stateful-deletion"},
	"namespace":  {action: risk.Deleted, before: named("Namespace", "v1"), want: "stateful-deletion"},
	"other kind": {action: risk.Deleted, before: named("Namespace", "other.io/v1"), want: "ordinary"},
	"definition": {action: risk.Deleted, before: named("CustomResourceDefinition", "apiextensions.k8s.io/v1"),
		want: "stateful-deletion"},
	"set": {action: risk.Recreated, before: named("StatefulSet", "apps/v1"),
		after: named("StatefulSet", "apps/v1"),
		want:  "stateful-deletion recreation"},
	"job": {action: risk.Recreated, before: named("Job", "batch/v1"),
		after: named("Job", "batch/v1"),
		want:  "recreation"},
	"policy": {action: risk.Deleted, before: named("NetworkPolicy", "networking.k8s.io/v1"),
		want: "network-policy-removal"},
	"budget": {action: risk.Deleted, before: named("PodDisruptionBudget", "policy/v1"),
		want: "disruption-budget-removal"},
	"hidden":  {action: risk.Hidden, want: "hidden"},
	"created": {action: risk.Created, after: deployment, want: "ordinary"},
	"newer image": {action: risk.Configured, before: deployment,
		after: replace(deployment, "v1.2.0", "v1.10.0"),
		want:  "ordinary"},
	"older image": {action: risk.Configured, before: replace(deployment, "v1.2.0", "v1.10.0"),
		after: deployment,
		want:  "image-downgrade", says: "web:v1.10.0 → registry:5000/web:v1.2.0"},
	"other image": {action: risk.Configured, before: replace(deployment, "web:v1.2.0", "old:v3"),
		after: deployment,
		want:  "ordinary"},
	"no version": {action: risk.Configured, before: replace(deployment, "v1.2.0", "latest"),
		after: deployment,
		want:  "ordinary"},
	"no replicas": {action: risk.Configured, before: deployment,
		after: replace(deployment, "replicas: 2", "replicas: 0"),
		want:  "replicas-zero"},
	"still none": {action: risk.Configured, before: replace(deployment, "replicas: 2", "replicas: 0"),
		after: replace(deployment, "replicas: 2", "replicas: 0", "v1", "v2"),
		want:  "ordinary"},
	"role": {action: risk.Configured, before: role,
		after: replace(role, "[get]", "[get, list]"),
		want:  "rbac-wider", says: "list pods, list configmaps"},
	"new role": {action: risk.Created, after: role, want: "rbac-wider", says: "get pods"},
	"narrower role": {action: risk.Configured, before: replace(role, "[get]", "['*']"),
		after: role,
		want:  "ordinary"},
	"wildcard": {action: risk.Configured, before: role,
		after: replace(role, "[get]", "['*']"),
		want:  "rbac-wider", says: "* pods"},
	"cluster role": {action: risk.Configured, before: replace(role, "Role", "ClusterRole"),
		after: replace(role, "Role", "ClusterRole", "pods", "secrets"),
		want:  "rbac-cluster-wide", says: "get secrets"},
	"binding": {action: risk.Configured, before: binding,
		after: replace(binding, "[{kind", "[{kind: Group, name: devs}, {kind"),
		want:  "rbac-cluster-wide", says: "ClusterRole 'view' to Group 'devs'"},
	"other role": {action: risk.Recreated, before: binding,
		after: replace(binding, "view", "admin"),
		want:  "rbac-cluster-wide recreation", says: "'admin' to ServiceAccount 'shop/web'"},
	"narrow binding": {action: risk.Configured, before: wide,
		after: binding,
		want:  "ordinary"},
	"privileged": {action: risk.Created,
		after: privileged,
		want:  "privileged", says: "container 'c' is privileged"},
	"host network": {action: risk.Configured, before: cronJob,
		after: replace(cronJob, "{containers", "{hostNetwork: true, containers"),
		want:  "privileged", says: "hostNetwork"},
	"host path": {action: risk.Configured, before: cronJob,
		after: replace(cronJob, "{containers", "{volumes: [{name: v, hostPath: {path: /etc}}], containers"),
		want:  "privileged", says: "/etc"},
	"capability": {action: risk.Configured, before: cronJob,
		after: replace(cronJob, "image: a", "image: a, securityContext: {capabilities: {add: [SYS_ADMIN]}}"),
		want:  "privileged", says: "SYS_ADMIN"},
	"was privileged": {action: risk.Configured, before: privileged,
		after: replace(cronJob, "image: a", "image: b, securityContext: {privileged: true}"),
		want:  "ordinary"},
}

func TestBuiltinRules(t *testing.T) {
	for name, c := range builtinCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := &risk.Change{Objects: []risk.Object{
				risk.NewObject(c.action, object(t, c.before), object(t, c.after), nil),
			}}
			a := risk.Default().Classify(t.Context(), change)
			var rules, messages []string
			for _, f := range a.Of(0) {
				rules, messages = append(rules, f.Rule), append(messages, f.Message)
			}
			if got := strings.Join(rules, " "); got != c.want {
				t.Errorf("rules %q, want %q: %v", got, c.want, messages)
			}
			if text := strings.Join(messages, "; "); !strings.Contains(text, c.says) {
				t.Errorf("message %q, want %q", text, c.says)
			}
			if c.want == "ordinary" && (a.Level != risk.Low || a.LevelOf(0) != risk.Low) {
				t.Errorf("level %v, want low", a.Level)
			}
		})
	}
}

func TestWholeChange(t *testing.T) {
	deleted := risk.NewObject(risk.Deleted, object(t, named("ConfigMap", "v1")), nil, nil)
	for name, c := range map[string]struct {
		inventory, deleted int
		want               bool
	}{
		"half":      {inventory: 4, deleted: 2},
		"more":      {inventory: 4, deleted: 3, want: true},
		"unknown":   {deleted: 3},
		"no change": {inventory: 4},
	} {
		change := &risk.Change{Inventory: c.inventory, Objects: slices.Repeat([]risk.Object{deleted}, c.deleted)}
		a := risk.Default().Classify(t.Context(), change)
		found := a.Of(risk.WholeChange)
		if (len(found) == 1 && found[0].Rule == "large-prune" && a.Level == risk.High) != c.want {
			t.Errorf("%s: %v", name, a)
		}
		if c.deleted == 0 && a.Level != risk.None {
			t.Errorf("%s: level %v", name, a.Level)
		}
	}
}

func TestFromPlan(t *testing.T) {
	before, after := object(t, deployment), object(t, strings.Replace(deployment, "replicas: 2", "replicas: 3", 1))
	ref := apply.Ref{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	got := risk.FromPlan([]apply.Change{
		{Ref: ref, Action: apply.Unchanged}, {Ref: ref, Action: apply.Skipped},
		{Ref: ref, Action: apply.Configured, Before: before, After: after,
			PreviousOwner: apply.Owner{Namespace: "flux-system", Name: "old"}},
		{Ref: ref, Action: apply.Created, Recreated: true, Before: before, After: after},
		{Ref: ref, Action: apply.Deleted, Before: before}, {Ref: ref, Action: apply.Hidden},
	}, nil)
	var actions []string
	for _, o := range got {
		actions = append(actions, string(o.Action)+" "+o.String())
	}
	want := "configured Deployment/shop/web, recreated Deployment/shop/web, deleted Deployment/shop/web, " +
		"hidden Deployment/shop/web"
	if strings.Join(actions, ", ") != want {
		t.Errorf("got %v", actions)
	}
	if strings.Join(got[0].Fields, " ") != "spec.replicas" {
		t.Errorf("fields %v", got[0].Fields)
	}
	a := risk.Default().Classify(t.Context(), &risk.Change{Objects: got[:1]})
	if f := a.Of(0); len(f) != 1 || f[0].Rule != "owner-move" || !strings.Contains(f[0].Message, "flux-system/old") {
		t.Errorf("findings %v", f)
	}
}

// TestUnknownFieldsAreARisk checks the rule by which gates and previews refuse them.
func TestUnknownFieldsAreARisk(t *testing.T) {
	planned := []apply.Change{{Ref: apply.Ref{Kind: "ConfigMap", Name: "a"}, Action: apply.Created,
		After: &unstructured.Unstructured{Object: map[string]any{"kind": "ConfigMap"}}}}
	for _, action := range []apply.Action{apply.Created, apply.Configured, apply.Unchanged} {
		for _, unknown := range []bool{false, true} {
			planned[0].Action, planned[0].Unknown = action, nil
			if unknown {
				planned[0].Unknown = []apply.UnknownField{{Path: "unknown", Where: "a.yaml, line 1"}}
			}
			objects := risk.FromPlan(planned, nil)
			if len(objects) == 0 && action == apply.Unchanged && !unknown {
				continue
			}
			f := risk.Default().Classify(t.Context(), &risk.Change{Objects: objects}).Of(0)
			found := len(f) == 1 && f[0].Rule == "unknown-fields" && strings.HasSuffix(f[0].Message, ": unknown")
			if found != unknown || len(objects) != 1 {
				t.Errorf("%s, unknown fields %v: findings %v", action, unknown, f)
			}
		}
	}
}

// TestSecretsAreMasked checks that no rule can print a value of a Secret, or of a variable from one.
func TestSecretsAreMasked(t *testing.T) {
	rules, err := risk.Parse([]byte("rules:\n- {name: leak, level: low, message: m, " +
		"expression: 'object.kind != \"\"', " +
		"messageExpression: 'object.new.?data.?a.orValue(\"\") + object.new.?spec.?x.orValue(\"\") + " +
		"object.old.?metadata.?annotations.?copy.orValue(\"\")'}\n"))
	if err != nil {
		t.Fatal(err)
	}
	secret := object(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {copy: hunter2}}\n"+
		"data: {a: aHVudGVyMg==}\n")
	other := object(t, "apiVersion: x/v1\nkind: X\nmetadata: {name: s}\nspec: {x: is hunter2}\n")
	a := rules.Classify(t.Context(), &risk.Change{Secrets: []string{"hunter2"}, Objects: []risk.Object{
		risk.NewObject(risk.Configured, secret, secret.DeepCopy(), nil), risk.NewObject(risk.Created, nil, other, nil),
	}})
	if got := a.Of(0)[0].Message + a.Of(1)[0].Message; got != "***is ***" {
		t.Errorf("messages %q", got)
	}
}
