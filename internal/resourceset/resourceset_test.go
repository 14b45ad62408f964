package resourceset_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

const tenants = `
inputs: [{tenant: a}, {tenant: b}]
commonMetadata: {labels: {team: platform}, annotations: {example.com/by: set}}
resources:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: "<< inputs.tenant >>-one", namespace: NS, labels: {team: x}}
  data: {provider: "<< inputs.provider.kind >>"}
resourcesTemplate: |
  apiVersion: v1
  kind: ConfigMap
  metadata:
    name: << inputs.tenant >>-two
    namespace: NS
    annotations: {fluxcd.controlplane.io/prune: disabled}
`

func TestApplyDriftPruneAndDelete(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.set("apps", tenants)
	set := s.ready("apps")
	s.has("a-one", `{"provider":"ResourceSet"}`)
	cm := &corev1.ConfigMap{}
	if err := s.Get(cm, "b-one"); err != nil {
		t.Fatal(err)
	}
	if cm.Labels["team"] != "platform" || cm.Annotations["example.com/by"] != "set" ||
		cm.Labels[controlplanev1.OwnerNameLabel] != "apps" ||
		cm.Labels[controlplanev1.OwnerNamespaceLabel] != s.Namespace {
		t.Errorf("metadata %v %v", cm.Labels, cm.Annotations)
	}
	if m := cm.ManagedFields[0].Manager; m != "flux-operator" {
		t.Errorf("the manager is %s", m)
	}
	h := set.Status.History
	if len(h) != 1 || h[0].Digest != set.Status.LastAppliedRevision || h[0].LastReconciledStatus !=
		"ReconciliationSucceeded" || fmt.Sprint(h[0].Metadata) != "map[inputs:2 resources:4]" {
		t.Errorf("history %+v, revision %s", h, set.Status.LastAppliedRevision)
	}
	if got := len(set.Status.Inventory.Entries); got != 4 {
		t.Errorf("%d entries", got)
	}
	s.HasEvent("apps", "ReconciliationSucceeded", "Reconciliation finished in ",
		"ConfigMap/"+s.Namespace+"/a-one created")

	t.Log("drift is corrected")
	s.Patch(&corev1.ConfigMap{}, "a-one", `{"data":{"provider":"x"}}`)
	s.has("a-one", `{"provider":"ResourceSet"}`)
	s.HasEvent("apps", "DriftCorrected", "ConfigMap/"+s.Namespace+"/a-one configured")

	t.Log("what is no longer rendered is pruned, unless an annotation keeps it")
	s.Update(set, "apps", func() { set.Spec.Inputs = set.Spec.Inputs[:1] })
	s.Gone(&corev1.ConfigMap{}, "b-one")
	s.ready("apps")
	if err := s.Get(cm, "b-two"); err != nil {
		t.Error(err)
	}

	t.Log("a suspended ResourceSet does nothing")
	s.Patch(set, "apps", `{"metadata":{"annotations":{"fluxcd.controlplane.io/reconcile":"Disabled"}},`+
		`"spec":{"inputs":[]}}`)
	s.Suspended("ResourceSet", "apps")
	s.HasEvent("apps", "ReconciliationDisabled", "disabled until the object is resumed")
	s.Patch(set, "apps", `{"metadata":{"annotations":{"fluxcd.controlplane.io/reconcile":null}}}`)
	s.NotReady(set, "apps", "BuildFailed", "map has no entry for key")
	if c := set.Status.Conditions; !strings.Contains(fmt.Sprint(c), "Stalled") {
		t.Errorf("conditions %+v", c)
	}
	if err := s.Get(cm, "a-one"); err != nil {
		t.Error(err) // nothing is pruned because of an error
	}

	t.Log("a deletion deletes the objects")
	if err := s.Client.Delete(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	s.Gone(&corev1.ConfigMap{}, "a-one")
	s.Gone(set, "apps")
	if err := s.Get(cm, "a-two"); err != nil {
		t.Error(err)
	}
}

const fromProviders = `
inputsFrom:
- {apiVersion: fluxcd.controlplane.io/v1, kind: ResourceSetInputProvider, name: one}
- selector: {matchLabels: {env: test}}
resources:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: "x-<< inputs.id >>", namespace: NS}}
`

func TestInputsOfProviders(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	set := s.set("apps", fromProviders)
	s.NotReady(set, "apps", "BuildFailed", "ResourceSetInputProvider '"+s.Namespace+"/one' not found. "+
		"Create it, or remove it from spec.inputsFrom")
	s.provider("one", `[{id: "1"}]`, map[string]string{"env": "test"})
	s.ready("apps")
	s.has("x-1", "null")

	t.Log("new inputs are rendered at once")
	s.provider("two", `[{id: "2"}, {id: "3"}]`, map[string]string{"env": "test"})
	started := time.Now()
	s.has("x-3", "null")
	t.Logf("after %s", time.Since(started))
	s.export("two", `[{id: "3"}]`)
	s.Gone(&corev1.ConfigMap{}, "x-2")

	t.Log("nothing is pruned while a provider has no inputs because of an error")
	p := &controlplanev1.ResourceSetInputProvider{}
	if err := s.Get(p, "two"); err != nil {
		t.Fatal(err)
	}
	p.Status = controlplanev1.ResourceSetInputProviderStatus{}
	if err := s.Client.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	s.NotReady(set, "apps", "DependencyNotReady", "'"+s.Namespace+"/two' has exported no inputs yet")
	s.has("x-3", "null")

	t.Log("a named provider that vanishes prunes nothing, and can come back")
	s.export("two", `[{id: "3"}]`)
	s.ready("apps")
	if err := s.Get(p, "one"); err != nil {
		t.Fatal(err)
	}
	if err := s.Client.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	s.NotReady(set, "apps", "BuildFailed", "/one' not found")
	s.has("x-1", "null")
	s.has("x-3", "null")
	s.provider("one", `[{id: "1"}]`, map[string]string{"env": "test"})
	s.ready("apps")

	t.Log("no inputs prune everything")
	s.export("two", "[]")
	s.Gone(&corev1.ConfigMap{}, "x-3")
	s.export("one", "[]")
	s.Gone(&corev1.ConfigMap{}, "x-1")
	s.ready("apps")
}

const permuted = `
inputsFrom: [{name: envs}, {name: regions}]
inputStrategy: {name: Permute}
resources:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: "<< inputs.envs.name >>-<< inputs.regions.name >>", namespace: NS}
`

func TestPermutedInputs(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.provider("envs", "[{name: dev}, {name: prod}]", nil)
	s.provider("regions", "[{name: eu}, {name: us}]", nil)
	s.set("apps", permuted)
	set := s.ready("apps")
	if got := len(set.Status.Inventory.Entries); got != 4 {
		t.Errorf("%d objects", got)
	}
	s.has("prod-us", "null")
}

const stepped = `
inputs: [{name: x}]
steps:
- name: migrate
  timeout: 1m
  resources:
  - apiVersion: batch/v1
    kind: Job
    metadata:
      name: << inputs.name >>-migrate
      namespace: NS
      annotations: {fluxcd.controlplane.io/recreateOnFailure: enabled}
    spec:
      backoffLimit: 0
      template:
        metadata: {annotations: {playground.sluice.dev/fail: not-ready}}
        spec: {restartPolicy: Never, containers: [{name: a, image: a}]}
- name: deploy
  resourcesTemplate: |
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: deployed, namespace: NS}
`

// migrateFailed is what a ResourceSet says when the time of its first step is over.
const migrateFailed = `step "migrate" health check failed`

// job returns the Job of the first step, without what a controller sets.
func (s *harness) job() *batchv1.Job {
	s.Helper()
	job := &batchv1.Job{}
	testenv.Eventually(s, "the Job exists", func() error { return s.Get(job, "x-migrate") })
	return job
}

// finish sets the result of the Job, which a controller of the cluster changes as well.
func (s *harness) finish(uid types.UID, condition batchv1.JobConditionType) {
	s.Helper()
	testenv.Eventually(s, "the Job has a result", func() error {
		job := s.job()
		if job.UID != uid {
			s.Fatalf("the Job was created again")
		}
		now := metav1.Now()
		if job.Status.StartTime == nil {
			job.Status.StartTime = &now
		}
		add := func(c batchv1.JobConditionType) {
			job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: c,
				Status: corev1.ConditionTrue, LastTransitionTime: now})
		}
		if condition == batchv1.JobFailed {
			add(batchv1.JobFailureTarget)
		} else {
			add(batchv1.JobSuccessCriteriaMet)
			job.Status.CompletionTime, job.Status.Succeeded = &now, 1
		}
		job.Status.Active, job.Status.Ready, job.Status.Terminating = 0, nil, nil
		add(condition)
		return s.Client.Status().Update(s.Context(), job)
	})
}

func TestSteps(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.set("apps", stepped)
	job := s.job()
	set := &controlplanev1.ResourceSet{}
	testenv.Eventually(s, "the first step runs, or its time is over", func() error {
		if err := s.Get(set, "apps"); err != nil {
			return err
		}
		text := fmt.Sprint(set.Status.Conditions)
		if !strings.Contains(text, `Applying step 1/2 "migrate"`) && !strings.Contains(text, migrateFailed) {
			return errors.New(text)
		}
		return nil
	})
	if err := s.Get(&corev1.ConfigMap{}, "deployed"); !apierrors.IsNotFound(err) {
		t.Errorf("the second step was applied: %v", err)
	}

	t.Log("a failed Job is created again")
	s.finish(job.UID, batchv1.JobFailed)
	testenv.Eventually(s, "another Job", func() error {
		failed := s.job()
		if failed.UID != job.UID {
			return nil
		}
		if failed.DeletionTimestamp == nil {
			return errors.New("it is not deleted")
		}
		// The cluster of the tests has no garbage collector, which ends a deletion in the foreground.
		failed.Finalizers = nil
		return errors.Join(errors.New("it is the same"), s.Client.Update(t.Context(), failed))
	})
	s.HasEvent("apps", "HealthCheckFailed", migrateFailed)
	s.finish(s.job().UID, batchv1.JobComplete)
	set = s.ready("apps")
	s.has("deployed", "null")
	if got := set.Status.History[0].Metadata["steps"]; got != "2" {
		t.Errorf("%s steps", got)
	}
	if got := len(set.Status.Inventory.Entries); got != 2 {
		t.Errorf("%d entries", got)
	}
	s.Patch(&corev1.ConfigMap{}, "deployed", `{"metadata":{"labels":{"resourceset.fluxcd.controlplane.io/name":"y"}}}`)
	testenv.Eventually(s, "the drift of all steps is corrected", func() error {
		cm := &corev1.ConfigMap{}
		if err := s.Get(cm, "deployed"); err != nil {
			return err
		}
		if got := cm.Labels[controlplanev1.OwnerNameLabel]; got != "apps" {
			return errors.New(got)
		}
		return nil
	})
}

const depends = `
dependsOn:
- {apiVersion: v1, kind: ConfigMap, name: gate, readyExpr: data.open == 'yes'}
- {apiVersion: v1, kind: Namespace, name: NS, ready: true}
- {apiVersion: fluxcd.controlplane.io/v1, kind: ResourceSet, name: base, ready: true}
resources:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: top, namespace: NS}}
`

func TestDependencies(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	set := s.set("top", depends)
	s.NotReady(set, "top", "DependencyNotReady", "dependency 'ConfigMap/"+s.Namespace+"/gate' not found")
	s.configMap("gate", map[string]string{"open": "no"})
	s.NotReady(set, "top", "DependencyNotReady", "'data.open == 'yes'' is not true yet")
	s.Patch(&corev1.ConfigMap{}, "gate", `{"data":{"open":"yes"}}`)
	s.NotReady(set, "top", "DependencyNotReady", "dependency 'ResourceSet/"+s.Namespace+"/base' not found")
	s.set("base", "resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: base, namespace: NS}}]")
	s.ready("top")
	s.has("top", "null")
	invalid := s.set("invalid", strings.Replace(depends, "data.open == 'yes'", "data.open ==", 1))
	s.NotReady(invalid, "invalid", "InvalidCELExpression", "spec.dependsOn[0].readyExpr is invalid")
	s.NotReady(invalid, "invalid", "InvalidCELExpression",
		"Correct it. It can use the fields of the object by name, such as status")
}

// TestDependenciesAcrossKinds checks that objects of one kind wait for those of another, that cycles across kinds are
// named, and that an account decides what may be named outside of the namespace.
func TestDependenciesAcrossKinds(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	kustomization := func(name, on string) {
		s.Kustomization(name, "app", "", func(k *kustomizev1.Kustomization) {
			k.Spec.NamePrefix = name + "-"
			s.parse(on, &k.Spec.DependsOn)
		})
	}
	k := &kustomizev1.Kustomization{}
	kustomization("top", "[{kind: ResourceSet, name: base, ready: true}]")
	s.NotReady(k, "top", "DependencyNotReady", "dependency 'ResourceSet/"+s.Namespace+"/base' not found")
	base := s.set("base", "resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: base, namespace: NS}}]\n"+
		"dependsOn: [{kind: Kustomization, name: top, ready: true}]")
	for kind, name := range map[reconcile.Object]string{base: "base", k: "top"} {
		s.NotReady(kind, name, "DependencyNotReady", "/"+s.Namespace+"/top → ")
	}
	s.Patch(base, "base", `{"spec":{"dependsOn":null}}`)
	s.ready("base")
	s.Ready("top", "")
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "tenant"}})
	tenant := s.set("tenant", "serviceAccountName: tenant\ndependsOn:\n"+
		"- {apiVersion: v1, kind: ConfigMap, namespace: kube-public, name: cluster-info}\n"+
		"resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: t, namespace: NS}}]")
	s.NotReady(tenant, "tenant", "AccessDenied",
		"ServiceAccount 'tenant' may not get dependency 'ConfigMap/kube-public/cluster-info'. "+
			"Allow the ServiceAccount to get configmaps, or remove the entry of spec.dependsOn")
	definition := s.set("definition", "serviceAccountName: tenant\ndependsOn:\n- {kind: CustomResourceDefinition, "+
		"ready: true, name: gates.gating.toolkit.fluxcd.io}\n"+
		"resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: t, namespace: NS}}]")
	testenv.Eventually(s, "the account gets past the definition, and may not apply", func() error {
		if err := s.Get(definition, "definition"); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(definition.Status.Conditions, "Ready")
		if c == nil || !strings.Contains(c.Message, "ConfigMap/"+s.Namespace+"/t") {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

const completed = `
resources:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: copy, namespace: NS, annotations: {fluxcd.controlplane.io/copyFrom: NS/original}}
- apiVersion: v1
  kind: Secret
  metadata: {name: pull, namespace: NS, annotations: {fluxcd.controlplane.io/copyFrom: NS/registry}}
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: cluster, namespace: NS, annotations: {fluxcd.controlplane.io/convertKubeConfigFrom: NS/kubeconfig}}
  data: {provider: generic}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: NS}
  spec:
    replicas: 0
    selector: {matchLabels: {a: b}}
    template:
      metadata:
        labels: {a: b}
        annotations: {fluxcd.controlplane.io/checksumFrom: "ConfigMap/NS/copy, Secret/NS/registry"}
      spec: {containers: [{name: a, image: a}]}
`

const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: x, user: u}}],
clusters: [{name: x, cluster: {server: "https://example.com", certificate-authority-data: Y2E=}}]}`

func TestDataOfOtherObjects(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	set := s.set("apps", completed)
	s.NotReady(set, "apps", "ReconciliationFailed", "ConfigMap '"+s.Namespace+"/original' not found")
	const watched = "reconcile.fluxcd.io/watch=Enabled"
	registry := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "registry"},
		Type: corev1.SecretTypeDockerConfigJson, StringData: map[string]string{".dockerconfigjson": "{}"}}
	s.Create(registry)
	s.Secret("kubeconfig", map[string]string{"value": kubeconfig})
	s.configMap("original", map[string]string{"a": "1"}, watched)
	s.has("copy", `{"a":"1"}`)
	s.has("cluster", `{"address":"https://example.com","ca.crt":"ca","provider":"generic"}`)
	set = s.ready("apps")
	pull := &corev1.Secret{}
	if err := s.Get(pull, "pull"); err != nil || pull.Type != registry.Type ||
		string(pull.Data[".dockerconfigjson"]) != "{}" {
		t.Errorf("%v %+v", err, pull)
	}
	if got := fmt.Sprint(set.Status.ExternalChecksumRefs); got != "[Secret/"+s.Namespace+"/registry]" {
		t.Errorf("references %s", got)
	}
	before := s.checksum("")
	// sha256 of "ConfigMap/NS/copy" NUL "a" NUL "1" NUL "Secret/NS/registry" NUL ".dockerconfigjson" NUL "{}" NUL
	if want := sum("ConfigMap/"+s.Namespace+"/copy", "a", "1", "Secret/"+s.Namespace+"/registry", ".dockerconfigjson",
		"{}"); before != want {
		t.Errorf("checksum %s, want %s", before, want)
	}

	t.Log("a change of what was copied is copied at once, and changes checksums")
	s.Patch(&corev1.ConfigMap{}, "original", `{"data":{"b":"2"}}`)
	s.has("copy", `{"a":"1","b":"2"}`)
	s.checksum(before)
}

// checksum waits until the pods of the Deployment have another checksum, and returns it.
func (s *harness) checksum(before string) (now string) {
	s.Helper()
	testenv.Eventually(s, "a new checksum", func() error {
		d := &appsv1.Deployment{}
		if err := s.Get(d, "web"); err != nil {
			return err
		}
		if now = d.Spec.Template.Annotations[controlplanev1.ChecksumAnnotation]; now == before {
			return errors.New("it is the same")
		}
		return nil
	})
	return now
}

func sum(parts ...string) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(strings.Join(parts, "\x00")+"\x00")))
}

func TestRightsOfTheAccount(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "deployer"}})
	const spec = "resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: mine, namespace: NS}}]\n"
	set := s.set("apps", spec+"serviceAccountName: deployer")
	s.NotReady(set, "apps", "ReconciliationFailed", "system:serviceaccount:"+s.Namespace+":deployer")
	s.GrantAll("deployer")
	s.RequestReconcile(set, "apps")
	s.ready("apps")
	set = s.set("absent", strings.Replace(spec, "mine", "other", 1)+"serviceAccountName: absent")
	s.NotReady(set, "absent", "ReconciliationFailed", "ServiceAccount '"+s.Namespace+"/absent' not found")
}

func TestTemplatesThatLoop(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	set := s.set("loop", `resourcesTemplate: '<< define "a" >><< template "a" >><< end >><< template "a" >>'`)
	s.NotReady(set, "loop", "BuildFailed", "exceeded maximum template depth")
	set = s.set("large", `resourcesTemplate: '<< range 1000000000 >>xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx<< end >>'`)
	s.NotReady(set, "large", "BuildFailed", "render more than 16 MiB")
	s.set("fine", "resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: fine, namespace: NS}}]")
	s.ready("fine")
}

// TestTakeOverFromAKustomization checks that the labels of a Kustomization are removed: it would prune the object.
func TestTakeOverFromAKustomization(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("moved", "1")})
	s.GitRepository("app")
	s.Kustomization("app", "app", "")
	s.ConfigMapHas("moved", "1")
	s.set("apps", "resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: moved, namespace: NS}, "+
		"data: {k: '2'}}]")
	s.ready("apps")
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("other", "1")})
	s.RequestFetch("app")
	s.Ready("app", commit)
	s.ConfigMapHas("moved", "2")
}

// TestTwoSetsClaimOneObject checks that both sets name each other, and that one that gives the object up, or is
// deleted, leaves it to the other.
func TestTwoSetsClaimOneObject(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	declared := func(data string) string {
		return "resources: [{apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: NS}, data: {by: " +
			data + "}}]"
	}
	first := s.set("first", declared("first"))
	s.ready("first")
	second := s.set("second", declared("second"))
	s.ready("second")
	claimed := "ConfigMap/" + s.Namespace + "/one is declared by both"
	for _, name := range []string{"first", "second"} {
		s.HasEvent(name, "SeveralOwners", claimed, "/first", "/second")
	}
	if err := s.Client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	s.Gone(&controlplanev1.ResourceSet{}, "first")
	s.has("one", `{"by":"second"}`)
	s.set("third", declared("third"))
	s.HasEvent("third", "SeveralOwners", claimed)
	s.Patch(second, "second", `{"spec":{"resources":[{"apiVersion":"v1","kind":"ConfigMap",`+
		`"metadata":{"name":"other","namespace":"`+s.Namespace+`"}}]}}`)
	s.has("other", "null")
	s.ready("second")
	s.has("one", `{"by":"third"}`)
	s.HasEvent("third", "SeveralOwners", "each object has one owner again")
}
