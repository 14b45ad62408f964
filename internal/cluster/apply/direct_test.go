package apply

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

var ingresses = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}

const threeMaps = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: "%s"}, data: {k: v}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: "%s"}, data: {k: v}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: "%s"}, data: {"KEY": v}}`

// owned returns the ConfigMaps of the namespace that have an owner.
func (f *fixture) owned() []unstructured.Unstructured {
	f.t.Helper()
	list, err := f.Dynamic().Resource(configMaps).Namespace(f.ns).
		List(context.Background(), metav1.ListOptions{LabelSelector: group + "/name"})
	if err != nil {
		f.t.Fatal(err)
	}
	return list.Items
}

func (f *fixture) maps() []string {
	f.t.Helper()
	var names []string
	for _, o := range f.owned() {
		names = append(names, o.GetName())
	}
	return names
}

func TestInertObjectsAreCreatedWithoutDryRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	result, err := f.try(f.request(threeMaps))
	if err != nil || len(result.Changes) != 3 {
		t.Fatal(result, err)
	}
	for _, c := range result.Changes {
		if c.Action != Created || c.ResourceVersion == "" {
			t.Errorf("%+v", c)
		}
	}
	for _, line := range f.requests.take() {
		if strings.HasPrefix(line, "DRY") || strings.HasPrefix(line, "GET") {
			t.Errorf("unnecessary request: %s", line)
		}
	}
	if len(f.saved) != 1 {
		t.Errorf("the inventory was saved %d times", len(f.saved))
	}
}

func TestRefusalRollsBackDirectCreation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	text := strings.ReplaceAll(threeMaps, "KEY", "no key") + `
---
{apiVersion: v1, kind: Service, metadata: {name: s, namespace: "%s"}, spec: {type: NodePort, ports: [{port: 80}]}}`
	result, err := f.try(f.request(text))
	if err == nil || !strings.Contains(err.Error(), "ConfigMap/"+f.ns+"/c") ||
		!strings.Contains(err.Error(), "no key") {
		t.Fatalf("%v", err)
	}
	if len(result.Changes) > 0 {
		t.Errorf("reported changes: %+v", result.Changes)
	}
	if n := len(f.saved); n != 2 || len(f.saved[1]) > 0 {
		t.Errorf("the saved inventory contains deleted objects: %v", f.saved)
	}
	if left := f.maps(); len(left) > 0 {
		t.Errorf("objects are left: %q", left)
	}
	for _, line := range f.requests.take() {
		if strings.Contains(line, "/services/") && !strings.HasPrefix(line, "DRY") {
			t.Errorf("written although another object was refused: %s", line)
		}
	}
}

const newApp = `{apiVersion: v1, kind: ServiceAccount, metadata: {name: app, namespace: "%s"}}
---
{apiVersion: v1, kind: Service, metadata: {name: app, namespace: "%s"}, spec: {ports: [{port: 80}]}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: app, namespace: "%s"}
spec:
  rules:
  - host: app.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: app, port: {number: 80}}}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: "%s"}
spec:
  replicas: 0
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec: {serviceAccountName: app, containers: [{name: main, image: IMAGE}]}`

// TestRefusedObjectIsInNoInventory tries an object again and again, as retries do. Only the first attempt writes.
func TestRefusedObjectIsInNoInventory(t *testing.T) {
	for name, text := range map[string]string{
		"inert":        `{apiVersion: v1, kind: ConfigMap, metadata: {name: Not_A_Name, namespace: "%s"}}`,
		"takes effect": `{apiVersion: v1, kind: Pod, metadata: {name: app, namespace: "%s"}, spec: {containers: []}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			for attempt := range 3 {
				f.saved = nil
				if _, err := f.try(f.request(text)); err == nil {
					t.Fatal("the object was not refused")
				}
				if n := len(f.saved); n > 0 && (attempt > 0 || len(f.saved[n-1]) > 0) {
					t.Errorf("attempt %d saved the inventories %v", attempt, f.saved)
				}
				writes := slices.ContainsFunc(f.requests.take(), func(line string) bool {
					return strings.HasPrefix(line, "PATCH")
				})
				if writes != (attempt == 0 && name == "inert") {
					t.Errorf("attempt %d writes: %t", attempt, writes)
				}
			}
		})
	}
}

func TestOnlyWhatTakesEffectIsDryRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.try(f.request(newApp)); err != nil {
		t.Fatal(err)
	}
	requests := slices.DeleteFunc(f.requests.take(), func(line string) bool {
		return strings.HasPrefix(line, "WATCH") || strings.Contains(line, "selfsubjectaccessreviews")
	})
	if len(requests) != 5 || !strings.HasPrefix(requests[0], "DRY PATCH") ||
		!strings.Contains(requests[0], "/deployments/app") || !strings.Contains(requests[4], "/deployments/app") {
		t.Errorf("requests: %q", requests)
	}
	for _, line := range requests[1:] {
		if !strings.HasPrefix(line, "PATCH") {
			t.Errorf("unnecessary request: %s", line)
		}
	}
}

func TestRefusedAppLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	bad := strings.ReplaceAll(newApp, "name: main", "name: NO")
	for attempt := range 3 {
		_, err := f.try(f.request(bad))
		if err == nil || !strings.Contains(err.Error(), "Deployment/"+f.ns+"/app") {
			t.Fatalf("%v", err)
		}
		for _, resource := range []schema.GroupVersionResource{serviceAccounts, services, ingresses, deployments} {
			if f.has(resource, f.ns, "app") {
				t.Errorf("attempt %d: %s is left", attempt, resource.Resource)
			}
		}
		creates := slices.ContainsFunc(f.requests.take(), func(line string) bool {
			return strings.HasPrefix(line, "PATCH") && !strings.Contains(line, "/deployments/")
		})
		if creates {
			t.Errorf("attempt %d created objects", attempt)
		}
	}
	if n := len(f.saved); n > 0 && len(f.saved[n-1]) > 0 {
		t.Errorf("the saved inventory contains deleted objects: %v", f.saved)
	}
	f.apply(newApp)
	for _, resource := range []schema.GroupVersionResource{serviceAccounts, services, ingresses, deployments} {
		if !f.has(resource, f.ns, "app") {
			t.Errorf("%s is missing", resource.Resource)
		}
	}
}

func TestInertObjects(t *testing.T) {
	const ingress = `{apiVersion: networking.k8s.io/v1, kind: Ingress, `
	for text, want := range map[string]bool{
		`{apiVersion: v1, kind: ServiceAccount}`:                                      true,
		`{apiVersion: example.com/v1, kind: ServiceAccount}`:                          false,
		`{apiVersion: v1, kind: Service}`:                                             true,
		`{apiVersion: v1, kind: Service, spec: {type: ClusterIP, clusterIP: None}}`:   true,
		`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}}`:                 false,
		`{apiVersion: v1, kind: Service, spec: {type: 1}}`:                            false,
		`{apiVersion: v1, kind: Service, spec: {externalIPs: [10.0.0.1]}}`:            false,
		`{apiVersion: v1, kind: Service, metadata: {annotations: {a: b}}}`:            false,
		`{apiVersion: serving.knative.dev/v1, kind: Service}`:                         false,
		ingress + `spec: {rules: [{host: a.example.com}]}}`:                           true,
		ingress + `spec: {rules: [{host: a.example.com}, {http: {}}]}}`:               false,
		ingress + `spec: {rules: [{host: "*.example.com"}]}}`:                         false,
		ingress + `spec: {rules: [1]}}`:                                               false,
		ingress + `spec: {rules: 1}}`:                                                 false,
		ingress + `spec: {defaultBackend: {service: {name: a, port: {number: 80}}}}}`: false,
		ingress + `metadata: {annotations: {a: b}}, spec: {rules: [{host: a.b}]}}`:    false,
		`{apiVersion: apps/v1, kind: Deployment}`:                                     false,
	} {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		if isInert(o) != want {
			t.Errorf("%s is inert: %t, want %t", text, !want, want)
		}
	}
}

func TestRefusalsOfDirectObjectsAreReportedWithOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	text := strings.ReplaceAll(threeMaps, "KEY", "no key") + `
---
{apiVersion: v1, kind: Service, metadata: {name: r, namespace: "%s"}, spec: {type: NodePort, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: s, namespace: "%s"}, spec: {type: NodePort, ports: [{port: 0}]}}`
	_, err := f.try(f.request(text))
	if err == nil || !strings.Contains(err.Error(), "ConfigMap/"+f.ns+"/c") ||
		!strings.Contains(err.Error(), "Service/"+f.ns+"/s") {
		t.Fatalf("%v", err)
	}
	for _, line := range f.requests.take() {
		if strings.HasPrefix(line, "PATCH") {
			t.Errorf("written although another object was refused: %s", line)
		}
	}
}

func TestDirectCreationNeedsRightToDelete(t *testing.T) {
	f := asTenant(t)
	f.grant("get, list, watch, create, patch")
	first := `{apiVersion: v1, kind: ConfigMap, metadata: {name: first, namespace: "%s"}}`
	f.applySoon(first)
	_, err := f.try(f.request(first + "\n---\n" + strings.ReplaceAll(threeMaps, "KEY", "no key")))
	if err == nil || !strings.Contains(err.Error(), "no key") {
		t.Fatalf("%v", err)
	}
	assertLines(t, "left", f.maps(), []string{"first"})
}

func TestExistingObjectIsNotCreatedDirectly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	force := true
	_, err := f.Dynamic().Resource(configMaps).Namespace(f.ns).Patch(context.Background(), "b", types.ApplyPatchType,
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b","annotations":{"`+group+
			`/ssa":"IfNotPresent"}},"data":{"k":"theirs"}}`),
		metav1.PatchOptions{FieldManager: "them", Force: &force})
	if err != nil {
		t.Fatal(err)
	}
	result, err := f.try(f.request(threeMaps))
	if err != nil {
		t.Fatal(err)
	}
	skipped := slices.IndexFunc(result.Changes, func(c Change) bool { return c.Ref.Name == "b" && c.Action == Skipped })
	if skipped < 0 || len(f.maps()) != 2 {
		t.Errorf("an excluded object was changed: %+v", result.Changes)
	}
	text := strings.ReplaceAll(threeMaps, "KEY", "no key")
	if _, err := f.try(f.request(text)); err == nil {
		t.Fatal("accepted")
	}
	if !f.has(configMaps, f.ns, "b") {
		t.Error("an existing object was deleted")
	}
}

func TestObjectChangedByOthersAndByTheDeclaration(t *testing.T) {
	for name, patch := range map[string]string{
		"excluded":      `{"metadata":{"annotations":{"` + group + `/reconcile":"disabled"}},"data":{"k":"theirs"}}`,
		"takeover":      `{"data":{"k":"theirs","more":"theirs"}}`,
		"being deleted": `{"metadata":{"finalizers":["example.com/wait"]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.apply(threeMaps)
			f.waitSynced()
			maps := f.Dynamic().Resource(configMaps).Namespace(f.ns)
			if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(patch),
				metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
				t.Fatal(err)
			}
			want := "ConfigMap/a configured"
			switch name {
			case "excluded":
				want = "ConfigMap/a skipped"
			case "being deleted":
				if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				go func() { // while Apply waits for the deletion
					_, _ = maps.Patch(context.Background(), "a", types.MergePatchType,
						[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				}()
				want = "ConfigMap/a created"
			}
			got := f.apply(strings.Replace(threeMaps, "{k: v}", "{k: w}", 1))
			assertLines(t, "changes", got[:1], []string{want})
			data := f.get(configMaps, "a").Object["data"].(map[string]any)
			if value := map[bool]string{true: "theirs", false: "w"}[name == "excluded"]; data["k"] != value ||
				name != "excluded" && data["more"] != nil {
				t.Errorf("data is %v", data)
			}
		})
	}
}

// TestFailureThatIsNoRefusalRollsNothingBack loses the connection while a Service is created. The next pass continues
// with what was created.
func TestFailureThatIsNoRefusalRollsNothingBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(c *rest.Config) {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/services/") {
					return nil, errors.New("the connection broke")
				}
				return next.RoundTrip(r)
			})
		})
	})
	if _, err := f.try(f.request(newApp)); err == nil || !strings.Contains(err.Error(), "the connection broke") {
		t.Fatalf("%v", err)
	}
	for _, line := range f.requests.take() {
		if strings.HasPrefix(line, "DRY") && !strings.Contains(line, "/deployments/") ||
			strings.HasPrefix(line, "DELETE") {
			t.Errorf("unnecessary request: %s", line)
		}
	}
	if !f.has(serviceAccounts, f.ns, "app") || f.has(deployments, f.ns, "app") || len(f.saved) != 1 {
		t.Errorf("rolled back, or continued without the Service; the inventory was saved %d times", len(f.saved))
	}
}
