package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/yaml"
)

// ofEachKind are what makes an object of each kind, by resource and API version.
var ofEachKind = map[string]string{
	"configmaps v1":             `{}`,
	"endpoints v1":              `{}`,
	"events v1":                 `involvedObject: {namespace: NAMESPACE}`,
	"limitranges v1":            `spec: {limits: []}`,
	"persistentvolumeclaims v1": `spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}`,
	"pods v1":                   `spec: {containers: [{name: x, image: x}]}`,
	"podtemplates v1":           `template: {spec: {containers: [{name: x, image: x}]}}`,
	"replicationcontrollers v1": `spec: {replicas: 0, selector: {a: b}, ` + template + `}`,
	"resourcequotas v1":         `spec: {hard: {}}`,
	"secrets v1":                `{}`,
	"serviceaccounts v1":        `{}`,
	"services v1":               `spec: {ports: [{port: 80}]}`,

	"controllerrevisions apps/v1": `{revision: 1, data: {a: b}}`,
	"daemonsets apps/v1":          `spec: {selector: {matchLabels: {a: b}}, ` + template + `}`,
	"deployments apps/v1":         `spec: {selector: {matchLabels: {a: b}}, ` + template + `}`,
	"replicasets apps/v1":         `spec: {replicas: 0, selector: {matchLabels: {a: b}}, ` + template + `}`,
	"statefulsets apps/v1":        `spec: {serviceName: x, selector: {matchLabels: {a: b}}, ` + template + `}`,
	"horizontalpodautoscalers autoscaling/v2": `spec: {maxReplicas: 1, ` +
		`scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: x}}`,
	"cronjobs batch/v1": `spec: {schedule: "0 0 1 1 *", jobTemplate: {spec: {template: {spec: ` +
		`{restartPolicy: Never, containers: [{name: x, image: x}]}}}}}`,
	"jobs batch/v1": `spec: {template: {spec: {restartPolicy: Never, ` +
		`containers: [{name: x, image: x}]}}}`,
	"leases coordination.k8s.io/v1":        `{}`,
	"endpointslices discovery.k8s.io/v1":   `{addressType: IPv4, endpoints: []}`,
	"ingresses networking.k8s.io/v1":       `spec: {defaultBackend: {service: {name: x, port: {number: 80}}}}`,
	"networkpolicies networking.k8s.io/v1": `spec: {podSelector: {}}`,
	"poddisruptionbudgets policy/v1":       `{}`,
	"rolebindings rbac.authorization.k8s.io/v1": `roleRef: {apiGroup: rbac.authorization.k8s.io, ` +
		`kind: Role, name: x}`,
	"roles rbac.authorization.k8s.io/v1":            `{}`,
	"resourceclaims resource.k8s.io/v1":             `spec: {}`,
	"resourceclaimtemplates resource.k8s.io/v1":     `spec: {spec: {}}`,
	"csistoragecapacities storage.k8s.io/v1":        `storageClassName: x`,
	"podcertificaterequests certificates.k8s.io/v1": "",
}

const template = `template: {metadata: {labels: {a: b}}, spec: {containers: [{name: x, image: x}]}}`

// everyKind fills a namespace with an object of each kind that the API server has. One of the same name that is made
// after its deletion has none of them.
func (a *alive) everyKind(t *testing.T) {
	ns := a.newNamespace(t)
	client := must[*dynamic.DynamicClient](t)(dynamic.NewForConfig(a.config))
	for what, body := range ofEachKind {
		if body == "" {
			continue // it is signed by a node
		}
		resource, version, _ := strings.Cut(what, " ")
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(body, "NAMESPACE", ns)), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetName("x")
		o.SetAPIVersion(version)
		o.SetKind(a.kindOf(t, resource, version))
		r := schema.FromAPIVersionAndKind(version, "").GroupVersion().WithResource(resource)
		if _, err := client.Resource(r).Namespace(ns).Create(t.Context(), o, create); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := a.client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		again := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
		_, err := a.client.CoreV1().Namespaces().Create(ctx, again, create)
		return err
	})
	objects := must[metadata.Interface](t)(metadata.NewForConfig(a.config))
	for _, r := range a.namespaced(t) {
		left, err := objects.Resource(r).Namespace(ns).List(t.Context(), list)
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		for _, o := range left.Items {
			if o.Name == "x" || strings.HasPrefix(o.Name, "x-") {
				t.Errorf("%s %s was not deleted", r, o.Name)
			}
		}
		name := fmt.Sprintf("%s %s", r.Resource, r.GroupVersion())
		if _, known := ofEachKind[name]; !known && r.Group != "events.k8s.io" && r.Group != "test.example" {
			t.Errorf("add %s", name)
		}
	}
}

// namespaced returns the preferred versions of the resources that can be made in a namespace.
func (a *alive) namespaced(t *testing.T) []schema.GroupVersionResource {
	t.Helper()
	lists := must[[]*metav1.APIResourceList](t)(a.client.Discovery().ServerPreferredNamespacedResources())
	verbs := discovery.SupportsAllVerbs{Verbs: []string{"create", "list", "delete"}}
	all := must[map[schema.GroupVersionResource]struct{}](t)(discovery.GroupVersionResources(
		discovery.FilteredBy(verbs, lists)))
	var result []schema.GroupVersionResource
	for r := range all {
		result = append(result, r)
	}
	return result
}

func (a *alive) kindOf(t *testing.T, resource, version string) string {
	t.Helper()
	of := must[*metav1.APIResourceList](t)(a.client.Discovery().ServerResourcesForGroupVersion(version))
	i := slices.IndexFunc(of.APIResources, func(r metav1.APIResource) bool { return r.Name == resource })
	if i < 0 {
		t.Fatalf("there is no %s in %s", resource, version)
	}
	return of.APIResources[i].Kind
}
