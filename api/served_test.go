package api_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	gatingv1alpha1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// serve installs the definitions on a real API server.
func serve(t *testing.T) dynamic.Interface {
	t.Helper()
	cfg := testenv.Cluster(t)
	crds := apiextensions.NewForConfigOrDie(cfg).ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range definitions(t) {
		if _, err := crds.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		testenv.Eventually(t, crd.Name+" established", func() error {
			now, err := crds.Get(t.Context(), crd.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, c := range now.Status.Conditions {
				if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
					return nil
				}
			}
			return fmt.Errorf("conditions are %v", now.Status.Conditions)
		})
	}
	return dynamic.NewForConfigOrDie(cfg)
}

func resource(gvk schema.GroupVersionKind, version string) schema.GroupVersionResource {
	plural, _ := apimeta.UnsafeGuessKindToResource(gvk)
	plural.Version = version
	return plural
}

// TestServedAsDeclared creates every example on a real API server. It checks that fields of an older version
// are present in the current version, that they are kept when a controller writes the status in the current
// version, and that they can be read in the older version.
func TestServedAsDeclared(t *testing.T) {
	client := serve(t)
	stored := storageVersions(t)
	namespace := testenv.Namespace(t)
	for name, example := range examples(t) {
		t.Run(name, func(t *testing.T) {
			gvk := example.GroupVersionKind()
			own := client.Resource(resource(gvk, gvk.Version)).Namespace(namespace)
			current := client.Resource(resource(gvk, stored[gvk.Kind])).Namespace(namespace)
			// The server may not serve a definition yet that was established just now.
			testenv.Eventually(t, "created", func() error {
				_, err := own.Create(t.Context(), example, metav1.CreateOptions{FieldValidation: "Strict"})
				return err
			})
			if slices.Contains(records, gvk.Kind) {
				return
			}
			patch := []byte(`{"status":{"observedGeneration":1,` +
				`"conditions":[{"type":"Ready","status":"True","reason":"Succeeded",` +
				`"message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
			if _, err := current.Patch(t.Context(), example.GetName(), types.MergePatchType, patch,
				metav1.PatchOptions{}, "status"); err != nil {
				t.Fatalf("cannot patch the status in the current version: %v", err)
			}
			for version, resource := range map[string]dynamic.ResourceInterface{"current": current, "own": own} {
				got, err := resource.Get(t.Context(), example.GetName(), metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(example.Object["spec"], got.Object["spec"],
					cmp.FilterPath(addedDefault, cmp.Ignore())); diff != "" {
					t.Errorf("declared (-) and stored (+) differ in the %s version:\n%s", version, diff)
				}
				if g, _, _ := unstructured.NestedInt64(got.Object, "status", "observedGeneration"); g != 1 {
					t.Errorf("the %s version shows observedGeneration %d, want 1", version, g)
				}
			}
		})
	}
}

// storageVersions returns the version of each kind that is stored, which is the current one.
func storageVersions(t *testing.T) map[string]string {
	t.Helper()
	stored := map[string]string{}
	for kind, crd := range definitions(t) {
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				stored[kind] = v.Name
			}
		}
	}
	return stored
}

// addedDefault reports whether a path is a key that only the stored side has. Such keys are defaults of the API server.
func addedDefault(p cmp.Path) bool {
	i, ok := p.Last().(cmp.MapIndex)
	if !ok {
		return false
	}
	declared, _ := i.Values()
	return !declared.IsValid()
}

var gitRepository = sourcev1.GroupVersion.WithKind(sourcev1.GitRepositoryKind)

var kustomizationKind = kustomizev1.GroupVersion.WithKind(kustomizev1.KustomizationKind)

var receiverKind = notificationv1.GroupVersion.WithKind(notificationv1.ReceiverKind)

var namedA = map[string]any{"name": "a"}

var alertKind = notificationv1.GroupVersion.WithKind(notificationv1.AlertKind)

var providerKind = notificationv1.GroupVersion.WithKind(notificationv1.ProviderKind)

var gitSource = map[string]any{"kind": "GitRepository", "name": "app"}

var ociRepository = sourcev1.GroupVersion.WithKind(sourcev1.OCIRepositoryKind)

var helmRepository = sourcev1.GroupVersion.WithKind(sourcev1.HelmRepositoryKind)

var helmChart = sourcev1.GroupVersion.WithKind(sourcev1.HelmChartKind)

var bucketKind = sourcev1.GroupVersion.WithKind(sourcev1.BucketKind)

func bucketSpec(changes map[string]any) map[string]any {
	spec := map[string]any{"bucketName": "a", "endpoint": "s3.example.com", "interval": "1m"}
	maps.Copy(spec, changes)
	return spec
}

func stsSpec(provider string, changes map[string]any) map[string]any {
	spec := map[string]any{"provider": provider, "endpoint": "https://sts.example.com"}
	maps.Copy(spec, changes)
	return spec
}

var artifactGenerator = extensionsv1beta1.GroupVersion.WithKind(extensionsv1beta1.ArtifactGeneratorKind)

func generatorSpec(name, to string) map[string]any {
	copies := []any{map[string]any{"from": "@app/**", "to": to}}
	return map[string]any{
		"sources":   []any{map[string]any{"alias": "app", "kind": "GitRepository", "name": "app"}},
		"artifacts": []any{map[string]any{"name": name, "copy": copies}},
	}
}

var gateKind = gatingv1alpha1.GroupVersion.WithKind(gatingv1alpha1.GateKind)

func scheduledGate(entry map[string]any) map[string]any {
	entry["state"] = "closed"
	return map[string]any{"schedule": []any{entry}}
}

func checkedGate(check map[string]any) map[string]any {
	check["name"] = "a"
	return map[string]any{"checks": []any{check}}
}

var imagePolicy = imagev1.GroupVersion.WithKind(imagev1.ImagePolicyKind)

func policySpec(changes map[string]any) map[string]any {
	spec := map[string]any{"imageRepositoryRef": map[string]any{"name": "app"}, "policy": map[string]any{}}
	maps.Copy(spec, changes)
	return spec
}

var imageAutomation = imagev1.GroupVersion.WithKind(imagev1.ImageUpdateAutomationKind)

func automationSpec(binding map[string]any) map[string]any {
	binding["policyRef"] = map[string]any{"name": "app"}
	return map[string]any{"interval": "1m", "sourceRef": gitSource, "bindings": []any{binding}}
}

var imageUpdateJob = imagev1alpha1.GroupVersion.WithKind(imagev1alpha1.ImageUpdateJobKind)

var refusedSpecs = map[string]struct {
	gvk  schema.GroupVersionKind
	spec map[string]any
	says string
}{
	"a URL that is not an HTTP or SSH URL": {gvk: gitRepository,
		spec: map[string]any{"url": "git@example.com:a/b", "interval": "1m"}, says: "spec.url"},
	"no URL": {gvk: gitRepository, spec: map[string]any{"interval": "1m"}, says: "spec.url"},
	"an interval without a unit": {gvk: gitRepository,
		spec: map[string]any{"url": "https://example.com", "interval": "1"}, says: "spec.interval"},
	"a timeout in hours": {gvk: gitRepository,
		spec: map[string]any{"url": "https://example.com", "interval": "1m", "timeout": "1h"},
		says: "spec.timeout"},
	"an account without a provider for it": {gvk: gitRepository,
		spec: map[string]any{"url": "https://example.com", "interval": "1m", "serviceAccountName": "a"},
		says: "provider is 'azure' or 'aws'"},
	"a source of an unsupported kind": {gvk: kustomizationKind,
		spec: map[string]any{"interval": "1m", "prune": true,
			"sourceRef": map[string]any{"kind": "Secret", "name": "a"}},
		says: "spec.sourceRef.kind"},
	"a receiver without a secret": {gvk: receiverKind, spec: map[string]any{"type": "github", "resources": []any{}},
		says: "secretRef is required"},
	"a receiver of tokens without a provider": {gvk: receiverKind,
		spec: map[string]any{"type": "generic-oidc", "resources": []any{}},
		says: "oidcProviders is required"},
	"a receiver with an unknown action": {gvk: receiverKind,
		spec: map[string]any{"type": "github", "secretRef": namedA, "action": "drop", "resources": []any{}},
		says: "spec.action"},
	"an alert without a provider": {gvk: alertKind, spec: map[string]any{"eventSources": []any{}},
		says: "spec.providerRef"},
	"an alert of Secrets": {gvk: alertKind, spec: map[string]any{"providerRef": namedA,
		"eventSources": []any{map[string]any{"kind": "Secret", "name": "a"}}}, says: "spec.eventSources[0].kind"},
	"a severity that does not exist": {gvk: alertKind,
		spec: map[string]any{"providerRef": namedA, "eventSources": []any{}, "eventSeverity": "loud"},
		says: "spec.eventSeverity"},
	"a provider of an unknown type": {gvk: providerKind, spec: map[string]any{"type": "pigeon"}, says: "spec.type"},
	"a commit status name for a chat provider": {gvk: providerKind,
		spec: map[string]any{"type": "slack", "commitStatusExpr": "'a'"},
		says: "spec.commitStatusExpr is for the types"},
	"no value for prune": {gvk: kustomizationKind, spec: map[string]any{"interval": "1m", "sourceRef": gitSource},
		says: "spec.prune"},
	"two references to a remote cluster": {gvk: kustomizationKind,
		spec: map[string]any{"interval": "1m", "prune": true, "sourceRef": gitSource,
			"kubeConfig": map[string]any{"secretRef": map[string]any{"name": "a"},
				"configMapRef": map[string]any{"name": "a"}}}, says: "exactly one of"},
	"no reference to a remote cluster": {gvk: kustomizationKind,
		spec: map[string]any{"interval": "1m", "prune": true, "sourceRef": gitSource, "kubeConfig": map[string]any{}},
		says: "exactly one of"},
	"a target namespace that is too long": {gvk: kustomizationKind,
		spec: map[string]any{"interval": "1m", "prune": true, "sourceRef": gitSource,
			"targetNamespace": strings.Repeat("a", 64)}, says: "spec.targetNamespace"},
	"a registry by HTTP URL": {gvk: ociRepository,
		spec: map[string]any{"url": "https://example.com/a", "interval": "1m"},
		says: "spec.url"},
	"an unknown layer operation": {gvk: ociRepository,
		spec: map[string]any{"url": "oci://example.com/a", "interval": "1m",
			"layerSelector": map[string]any{"operation": "burn"}}, says: "spec.layerSelector.operation"},
	"signatures of an unknown provider": {gvk: ociRepository,
		spec: map[string]any{"url": "oci://example.com/a", "interval": "1m",
			"verify": map[string]any{"provider": "pgp"}}, says: "spec.verify.provider"},
	"a chart repository over SSH": {gvk: helmRepository, spec: map[string]any{"url": "ssh://example.com/a"},
		says: "spec.url"},
	"a chart repository of an unknown type": {gvk: helmRepository,
		spec: map[string]any{"url": "https://example.com/a", "type": "git"},
		says: "spec.type"},
	"a chart of an unsupported source": {gvk: helmChart, spec: map[string]any{"chart": "a", "interval": "1m",
		"sourceRef": map[string]any{"kind": "OCIRepository", "name": "a"}}, says: "spec.sourceRef.kind"},
	"a signed chart in git": {gvk: helmChart, spec: map[string]any{
		"chart": "a", "interval": "1m", "sourceRef": gitSource, "verify": map[string]any{"provider": "cosign"},
	}, says: "spec.sourceRef.kind is 'HelmRepository'"},
	"a strategy that does not exist": {gvk: helmChart,
		spec: map[string]any{"chart": "a", "interval": "1m", "sourceRef": gitSource, "reconcileStrategy": "Never"},
		says: "spec.reconcileStrategy"},
	"a bucket without a name": {gvk: bucketKind,
		spec: map[string]any{"endpoint": "s3.example.com", "interval": "1m"}, says: "spec.bucketName"},
	"a bucket of an unknown provider": {gvk: bucketKind, spec: bucketSpec(map[string]any{"provider": "tape"}),
		says: "spec.provider"},
	"temporary credentials of azure": {gvk: bucketKind,
		spec: bucketSpec(map[string]any{"provider": "azure", "sts": stsSpec("aws", nil)}),
		says: "'aws' and 'generic' providers"},
	"temporary credentials of ldap at aws": {gvk: bucketKind,
		spec: bucketSpec(map[string]any{"provider": "aws", "sts": stsSpec("ldap", nil)}),
		says: "'aws' is the only STS provider"},
	"temporary credentials of aws elsewhere": {gvk: bucketKind,
		spec: bucketSpec(map[string]any{"sts": stsSpec("aws", nil)}),
		says: "'ldap' is the only STS provider"},
	"a login to the service of aws": {gvk: bucketKind,
		spec: bucketSpec(map[string]any{"provider": "aws", "sts": stsSpec("aws", map[string]any{"secretRef": namedA})}),
		says: "spec.sts.secretRef"},
	"certificates for the service of aws": {gvk: bucketKind,
		spec: bucketSpec(map[string]any{"provider": "aws",
			"sts": stsSpec("aws", map[string]any{"certSecretRef": namedA})}),
		says: "spec.sts.certSecretRef"},
	"a service without a URL": {gvk: bucketKind,
		spec: bucketSpec(map[string]any{"sts": map[string]any{"provider": "ldap", "endpoint": "sts.example.com"}}),
		says: "spec.sts.endpoint"},
	"an account without a cloud": {gvk: bucketKind, spec: bucketSpec(map[string]any{"serviceAccountName": "a"}),
		says: "'generic' provider"},
	"an account and a login": {gvk: bucketKind,
		spec: bucketSpec(map[string]any{"provider": "aws", "serviceAccountName": "a", "secretRef": namedA}),
		says: "not both"},
	"an artifact with an invalid name": {gvk: artifactGenerator, spec: generatorSpec("{slug}", "@artifact/"),
		says: "must be that of an object"},
	"a copy to a source": {gvk: artifactGenerator, spec: generatorSpec("a", "@app/"),
		says: "spec.artifacts[0].copy[0].to"},
	"no artifact": {gvk: artifactGenerator,
		spec: map[string]any{"sources": generatorSpec("a", "")["sources"], "artifacts": []any{}},
		says: "spec.artifacts"},
	"a gate with an unknown state": {gvk: gateKind, spec: map[string]any{"default": "ajar"}, says: "spec.default"},
	"a negative window":            {gvk: gateKind, spec: map[string]any{"window": "-1h"}, says: "spec.window"},
	"an empty window":              {gvk: gateKind, spec: map[string]any{"window": "0s"}, says: "spec.window"},
	"a window that overflows": {gvk: gateKind, spec: map[string]any{"window": "99999999999h"},
		says: "spec.window"},
	"a window of a century": {gvk: gateKind, spec: map[string]any{"window": "876000h"}, says: "spec.window"},
	"a schedule entry without a time": {gvk: gateKind, spec: scheduledGate(map[string]any{"duration": "1h"}),
		says: "exactly one of cron and dates"},
	"a schedule entry without a duration": {gvk: gateKind, spec: scheduledGate(map[string]any{"cron": "0 0 * * 5"}),
		says: "cron needs a duration"},
	"a date in another format": {gvk: gateKind, spec: scheduledGate(map[string]any{"dates": []any{"24.12."}}),
		says: "spec.schedule[0].dates[0]"},
	"a check without a target": {gvk: gateKind, spec: checkedGate(map[string]any{}),
		says: "exactly one of object, http, prometheus, revision and clusters"},
	"a check of a file URL": {gvk: gateKind,
		spec: checkedGate(map[string]any{"http": map[string]any{"url": "file:///etc/passwd"}}),
		says: "spec.checks[0].http.url"},
	"a threshold that is not a number": {gvk: gateKind, spec: checkedGate(
		map[string]any{"prometheus": map[string]any{"address": "http://a", "query": "a", "below": "low"}}),
		says: "spec.checks[0].prometheus.below"},
	"zero required approvals": {gvk: gateKind,
		spec: map[string]any{"approvals": map[string]any{"required": int64(0)}}, says: "spec.approvals.required"},
	"a gate for an unsupported kind": {gvk: gateKind,
		spec: map[string]any{"selector": map[string]any{"kinds": []any{"Secret"}}}, says: "spec.selector.kinds[0]"},
	"a cluster selector with two references": {gvk: gateKind, spec: map[string]any{
		"selector": map[string]any{"clusters": []any{map[string]any{"local": true, "secretRef": namedA}}}},
		says: "exactly one of local"},
	"an updated digest without an interval": {gvk: imagePolicy,
		spec: policySpec(map[string]any{"digestReflectionPolicy": "Always"}), says: "spec.interval is required"},
	"an interval for a digest that is kept": {gvk: imagePolicy, spec: policySpec(map[string]any{"interval": "1m"}),
		says: "spec.interval is for"},
	"an order of tags that does not exist": {gvk: imagePolicy,
		spec: policySpec(map[string]any{"policy": map[string]any{"numerical": map[string]any{"order": "up"}}}),
		says: "spec.policy.numerical.order"},
	"a binding without a target": {gvk: imageAutomation, spec: automationSpec(map[string]any{}),
		says: "exactly one of workload and valuesFile"},
	"a binding to a file without a path": {gvk: imageAutomation,
		spec: automationSpec(map[string]any{"valuesFile": map[string]any{"file": "a.yaml"}}),
		says: "one of path, repository"},
	"a job without an image": {gvk: imageUpdateJob,
		spec: map[string]any{"automationRef": map[string]any{"name": "app"}},
		says: "exactly one of images and latest"},
	"a deletion policy that does not exist": {gvk: kustomizationKind,
		spec: map[string]any{"interval": "1m", "prune": true, "sourceRef": gitSource, "deletionPolicy": "Burn"},
		says: "spec.deletionPolicy"},
}

// TestRefused checks that the API server rejects invalid objects, and that the error names the field.
func TestRefused(t *testing.T) {
	client := serve(t)
	namespace := testenv.Namespace(t)
	for name, c := range refusedSpecs {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{"spec": runtime.DeepCopyJSON(c.spec)}}
			obj.SetGroupVersionKind(c.gvk)
			obj.SetName("bad")
			var err error
			testenv.Eventually(t, "served", func() error {
				_, err = client.Resource(resource(c.gvk, c.gvk.Version)).Namespace(namespace).
					Create(context.Background(), obj, metav1.CreateOptions{})
				if apierrors.IsNotFound(err) {
					return err // established, but not served yet
				}
				return nil
			})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an Invalid error that contains %q", err, c.says)
			}
		})
	}
}
