package migrate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/migrate"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

var definitionKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
	Kind: "CustomResourceDefinition"}

// plan runs the report as JSON, and returns it.
func (f *flux) plan(code int, args ...string) *migrate.Plan {
	f.Helper()
	r := f.sluice(append([]string{"migrate", "flux", "-o", "json"}, args...)...).wants(f.T, code)
	p := &migrate.Plan{}
	if err := json.Unmarshal([]byte(r.out), p); err != nil {
		f.Fatalf("the report is not JSON: %v\n%s", err, r.out)
	}
	return p
}

// blockedBy checks that exactly these problems block a migration. Each is the beginning of a text.
func (f *flux) blockedBy(p *migrate.Plan, want ...string) {
	f.Helper()
	for _, text := range want {
		if !slices.ContainsFunc(p.Blockers, func(b string) bool { return strings.HasPrefix(b, text) }) {
			f.Errorf("no problem begins with %q", text)
		}
	}
	if len(p.Blockers) != len(want) || f.Failed() {
		f.Errorf("got %d problems, want %d:\n%s", len(p.Blockers), len(want), strings.Join(p.Blockers, "\n"))
	}
}

// TestBlockers checks each problem that keeps a migration from starting, and the report as JSON.
func TestBlockers(t *testing.T) {
	f := newFlux(t)
	f.withoutDefinitions()
	w := f.small()
	if p := f.plan(0); len(p.Blockers) > 0 || len(p.Objects) != w.count || len(p.Controllers) != len(fluxVersions) ||
		len(p.Comparisons) != 2 || len(p.Steps) == 0 {
		t.Errorf("the report of a cluster without problems is %+v", p)
	}
	f.withoutRights()
	f.blockedBy(f.plan(1, "--no-diff", "--controllers", "gating-controller"),
		"Flux does not run 'gating-controller' in namespace '"+f.namespace+"'. Choose from helm-controller, ")
	f.withState(migrate.State{Direction: migrate.Backward, Step: "restore"},
		"a rollback was interrupted in step 'restore'. Run sluice migrate flux --rollback to complete it")
	f.withState(migrate.State{Direction: migrate.Forward, Done: true,
		Scope: migrate.Scope{Controllers: []string{"source-controller"}}},
		"an earlier migration took over source-controller. Continue with the same flag")
	f.withDrift()
	f.withObjects(w)
	f.withShards(w)
}

// withoutDefinitions deletes the definitions of Flux for a while.
func (f *flux) withoutDefinitions() {
	f.Helper()
	for _, u := range fluxDefinitions(f.T) {
		if err := f.Delete(f.Context(), u); err != nil {
			f.Fatal(err)
		}
	}
	testenv.Eventually(f, "the cluster has no definitions", func() error {
		for _, u := range fluxDefinitions(f.T) {
			if err := f.Get(f.Context(), client.ObjectKeyFromObject(u), u); client.IgnoreNotFound(err) != nil ||
				err == nil {
				return fmt.Errorf("definition %s: %w", u.GetName(), err)
			}
		}
		return nil
	})
	f.blockedBy(f.plan(1), "the cluster has no CustomResourceDefinitions of Flux, although its controllers are "+
		"installed. Install Flux completely, or delete its Deployments in namespace '"+f.namespace+"'")
	f.installDefinitions()
}

// withoutRights runs the report as a user who may only read.
func (f *flux) withoutRights() {
	f.Helper()
	name := metav1.ObjectMeta{Name: "reader-" + f.namespace}
	role := &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"},
		Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: name,
		RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: name.Name},
		Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "reader"}}}
	f.create(role)
	f.create(binding)
	testenv.Eventually(f, "the user may read", func() error {
		if r := f.sluice("get", "all", "--as", "reader"); strings.Contains(r.err, "forbidden") {
			return fmt.Errorf("%s", r.err)
		}
		return nil
	})
	var want []string
	for _, right := range []string{"patch deployments.apps", "create configmaps",
		"update customresourcedefinitions.apiextensions.k8s.io",
		"create clusterrolebindings.rbac.authorization.k8s.io",
		"create validatingadmissionpolicies.admissionregistration.k8s.io",
		"patch kustomizations.kustomize.toolkit.fluxcd.io"} {
		want = append(want, "you may not "+right+". Use an account of a cluster administrator")
	}
	f.blockedBy(f.plan(1, "--no-diff", "--as", "reader"), want...)
	for _, o := range []client.Object{role, binding} {
		if err := f.Delete(f.Context(), o); err != nil {
			f.Fatal(err)
		}
	}
}

// withState runs the report after another migration.
func (f *flux) withState(s migrate.State, want string) {
	f.Helper()
	content, err := json.Marshal(s)
	if err != nil {
		f.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: migrate.StateName},
		Data: map[string]string{"state.json": string(content)}}
	f.create(cm)
	f.blockedBy(f.plan(1, "--no-diff", "--namespaces", f.teams[0]), append(f.unsharded(), want)...)
	if err := f.Delete(f.Context(), cm); err != nil {
		f.Fatal(err)
	}
}

// unsharded are the problems of all controllers of Flux that select the objects of every shard.
func (f *flux) unsharded() (want []string) {
	for name := range fluxVersions {
		want = append(want, "Deployment '"+f.namespace+"/"+name+"' would reconcile the objects of the namespaces")
	}
	return want
}

// withDrift changes an applied object, which Sluice would correct.
func (f *flux) withDrift() {
	f.Helper()
	f.merge(appliedKinds[0], f.teams[0], "app-0", `{"data":{"color":"red"}}`)
	f.blockedBy(f.plan(1), "Kustomization '"+f.teams[0]+"/app-0': Sluice would change what it applied: ConfigMap")
	if p := f.plan(0, "--allow-changes"); len(p.Warnings) == 0 ||
		!strings.Contains(strings.Join(p.Warnings, "\n"), "Sluice would change what it applied") {
		f.Errorf("--allow-changes warns %q", p.Warnings)
	}
	f.merge(appliedKinds[0], f.teams[0], "app-0", `{"data":{"color":"blue"}}`)
}

// withShards moves namespaces whose objects belong to others.
func (f *flux) withShards(w *world) {
	f.Helper()
	f.shardFlux()
	team, other := f.teams[0], f.teams[1]
	f.merge(kustomizationKind, team, "app-0", `{"metadata":{"labels":{"sharding.fluxcd.io/key":"blue"}}}`)
	f.merge(kustomizationKind, other, "app-0", `{"spec":{"sourceRef":{"namespace":"`+team+`"}}}`)
	w.put("helm-controller", "helm.toolkit.fluxcd.io/v2", "HelmRelease", team, "web",
		object{"interval": "1h", "chart": object{"spec": object{"chart": "./charts/app",
			"sourceRef": object{"kind": "GitRepository", "name": "fleet"}}}}, nil)
	f.blockedBy(f.plan(1, "--no-diff", "--namespaces", team),
		"Kustomization '"+team+"/app-0' belongs to the shard 'blue' by its label sharding.fluxcd.io/key",
		"Kustomization '"+other+"/app-0' refers to GitRepository '"+team+"/fleet', and only one of them is in",
		"HelmRelease '"+team+"/web' does not label its HelmChart for the shard")
}

// withObjects creates objects and definitions that Sluice cannot take over, and removes them.
func (f *flux) withObjects(w *world) {
	f.Helper()
	team := f.teams[0]
	source := schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "HelmRepository"}
	policy := schema.GroupVersionKind{Group: "image.toolkit.fluxcd.io", Version: "v1", Kind: "ImagePolicy"}
	undo := f.changeDefinitions()
	defer undo()
	testenv.Eventually(f, "the API server keeps the new field", func() error {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(source)
		f.merge(source, team, "oci", `{"spec":{"accessFrom":{"namespaceSelectors":[{}]},"novelty":"x"}}`)
		err := f.Get(f.Context(), client.ObjectKey{Namespace: team, Name: "oci"}, u)
		if _, found, _ := unstructured.NestedString(u.Object, "spec", "novelty"); !found {
			return fmt.Errorf("the field was dropped: %w", err)
		}
		return err
	})
	w.put("image-reflector-controller", "image.toolkit.fluxcd.io/v1", "ImagePolicy", team, "leaving",
		object{"imageRepositoryRef": object{"name": "app"}, "policy": object{"semver": object{"range": "1.x"}}},
		ready("Succeeded", "resolved", nil))
	leaving := &unstructured.Unstructured{}
	leaving.SetGroupVersionKind(policy)
	leaving.SetNamespace(team)
	leaving.SetName("leaving")
	if err := f.Delete(f.Context(), leaving); err != nil {
		f.Fatal(err)
	}
	w.put("helm-controller", "helm.toolkit.fluxcd.io/v2", "HelmRelease", team, "busy",
		object{"interval": "1h", "chartRef": object{"kind": "HelmChart", "name": "busy"}}, nil)
	f.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "sh.helm.release.v1.busy.v2",
		Labels: map[string]string{"owner": "helm", "name": "busy", "status": "pending-upgrade", "version": "2"}},
		Type: "helm.sh/release.v1"})
	ours := &appsv1.Deployment{}
	if err := f.Get(f.Context(), client.ObjectKey{Namespace: f.namespace, Name: "helm-controller"}, ours); err != nil {
		f.Fatal(err)
	}
	ours.ObjectMeta = metav1.ObjectMeta{Namespace: f.namespace, Name: migrate.OurDeployment}
	f.create(ours)
	f.blockedBy(f.plan(1, "--no-diff"),
		"HelmRepository '"+team+"/oci' sets fields that Sluice does not have: spec.novelty. Remove them first",
		"HelmRepository '"+team+"/oci' sets spec.accessFrom, which Flux ignores and Sluice refuses",
		"ImagePolicy '"+team+"/leaving' is being deleted. Wait until it is gone",
		"HelmRelease '"+team+"/busy': an action of Helm release '"+team+"/busy' has not ended",
		"Sluice runs already in namespace '"+f.namespace+"', next to Flux",
		"Sluice has no kind 'Widget' of group 'widgets.toolkit.fluxcd.io'. Upgrade Sluice, or delete",
		"CustomResourceDefinition 'receivers.notification.toolkit.fluxcd.io' stores version v9, which Sluice does",
		"FluxInstance '"+f.namespace+"/flux' deploys Flux and would start it again. Run: kubectl")
	f.merge(policy, team, "leaving", `{"metadata":{"finalizers":null}}`)
	f.merge(source, team, "oci", `{"spec":{"accessFrom":null,"novelty":null}}`)
	if err := f.Delete(f.Context(), ours); err != nil {
		f.Fatal(err)
	}
	for _, u := range []client.Object{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team,
		Name: "sh.helm.release.v1.busy.v2"}}} {
		if err := f.Delete(f.Context(), u); err != nil {
			f.Fatal(err)
		}
	}
}

// changeDefinitions adds a field, a stored version and kinds that Sluice does not have. undo removes them.
func (f *flux) changeDefinitions() (undo func()) {
	f.Helper()
	f.changeDefinition("helmrepositories.source.toolkit.fluxcd.io", func(versions []any) []any {
		for _, v := range versions {
			_ = unstructured.SetNestedField(v.(map[string]any), "string", "schema", "openAPIV3Schema", "properties",
				"spec", "properties", "novelty", "type") // the path exists
		}
		return versions
	})
	receivers := "receivers.notification.toolkit.fluxcd.io"
	f.changeDefinition(receivers, func(versions []any) []any {
		newest := (&unstructured.Unstructured{Object: versions[0].(map[string]any)}).DeepCopy().Object
		for _, v := range versions {
			v.(map[string]any)["storage"] = false
		}
		newest["name"], newest["storage"] = "v9", true
		return append(versions, newest)
	})
	widgets := f.define("widgets.toolkit.fluxcd.io", "Widget")
	instances := f.define("fluxcd.controlplane.io", "FluxInstance")
	instance := &unstructured.Unstructured{}
	instance.SetGroupVersionKind(schema.GroupVersionKind{Group: "fluxcd.controlplane.io", Version: "v1",
		Kind: "FluxInstance"})
	instance.SetNamespace(f.namespace)
	instance.SetName("flux")
	testenv.Eventually(f, "the kind is served", func() error { return f.Create(f.Context(), instance) })
	return func() {
		f.changeDefinition(receivers, func(versions []any) []any {
			versions[0].(map[string]any)["storage"] = true
			for _, v := range versions[1:] {
				v.(map[string]any)["storage"] = false
			}
			return versions
		})
		for _, u := range []client.Object{widgets, instances} {
			if err := f.Delete(f.Context(), u); err != nil {
				f.Error(err)
			}
		}
	}
}

func (f *flux) changeDefinition(name string, change func(versions []any) []any) {
	f.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(definitionKind)
	if err := f.Get(f.Context(), client.ObjectKey{Name: name}, u); err != nil {
		f.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	if err := unstructured.SetNestedSlice(u.Object, change(versions), "spec", "versions"); err != nil {
		f.Fatal(err)
	}
	if err := f.Update(f.Context(), u); err != nil {
		f.Fatal(err)
	}
}

// define creates the definition of a kind without a schema.
func (f *flux) define(group, kind string) *unstructured.Unstructured {
	f.Helper()
	plural := strings.ToLower(kind) + "s"
	u := &unstructured.Unstructured{Object: object{"spec": object{"group": group, "scope": "Namespaced",
		"names": object{"kind": kind, "plural": plural, "singular": strings.ToLower(kind)},
		"versions": []any{object{"name": "v1", "served": true, "storage": true, "schema": object{
			"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}}
	u.SetGroupVersionKind(definitionKind)
	u.SetName(plural + "." + group)
	f.create(u)
	return u
}
