package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// waitWithout waits until a namespace does not exist.
func (f *fixture) waitWithout(namespace string) {
	f.t.Helper()
	testenv.Eventually(f.t, "deletion of "+namespace, func() error {
		if f.has(namespaces, "", namespace) {
			return fmt.Errorf("it exists")
		}
		return nil
	})
}

// policy denies Services and Jobs in namespaces that a selector selects, unless an expression holds.
func (f *fixture) policy(selector, expression string) {
	f.t.Helper()
	name := f.ns + "-policy"
	for resource, text := range map[string]string{"validatingadmissionpolicies": `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  failurePolicy: Fail
  matchConstraints:
    namespaceSelector: SELECTOR
    resourceRules:
    - {apiGroups: ["", batch], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [services, jobs]}
  validations: [{expression: EXPRESSION, message: "the policy denies it"}]`, "validatingadmissionpolicybindings": `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}`} {
		text = strings.NewReplacer("NAME", name, "SELECTOR", selector, "EXPRESSION", expression).Replace(text)
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			f.t.Fatal(err)
		}
		client := f.Dynamic().Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
			Resource: resource})
		if _, err := client.Create(f.t.Context(), o, metav1.CreateOptions{}); err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { _ = client.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
}

// newSet is a namespace with objects that policies of clusters are about.
const newSet = `apiVersion: v1
kind: Namespace
metadata: {name: %s-new, labels: {team: a}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: %s-new}
---
apiVersion: v1
kind: Service
metadata: {name: s, namespace: %s-new}
spec: {ports: [{port: 80}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: %s-new}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
`

// TestNewNamespaceIsWhereItsObjectsAreChecked has a policy that denies the namespace default, and one that reads the
// labels of the namespace. The first does not refuse the set, and the second does only if the label differs.
func TestNewNamespaceIsWhereItsObjectsAreChecked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	f.policy(`{matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [default, `+f.ns+`-new]}]}`,
		`"namespaceObject.metadata.name != 'default' && namespaceObject.metadata.labels['team'] == 'a'"`)
	denied := strings.Replace(newSet, "team: a", "team: b", 1)
	testenv.Eventually(t, "the policy", func() error {
		_, err := f.try(f.request(denied))
		text := fmt.Sprint(err)
		if strings.Contains(text, "the policy denies it") && strings.Contains(text, "2 objects refused") {
			return nil
		}
		if n := len(f.saved); n > 0 { // the policy was not there yet, or came between the checks and the writes
			f.inventory = f.saved[n-1]
		}
		if _, err := f.Prune(t.Context(), f.owner, f.inventory); err != nil {
			t.Fatal(err)
		}
		f.inventory = nil
		f.waitWithout(f.ns + "-new")
		return errors.New("not refused by the policy alone: " + text)
	})
	f.waitWithout(f.ns + "-new")
	if n := len(f.saved); n == 0 || len(f.saved[n-1]) > 0 {
		t.Errorf("the saved inventory contains objects that do not exist: %v", f.saved)
	}
	assertLines(t, "allowed", f.applySoon(newSet), []string{"Namespace/" + f.ns + "-new created", "ConfigMap/c created",
		"Service/s created", "Job/j created"})
	for _, line := range f.requests.take() {
		if strings.Contains(line, "/namespaces/default/") {
			t.Errorf("request in another namespace: %s", line)
		}
	}
}

// TestNamespaceWithObjectsOfOthersIsNotTakenBack creates an object in the namespace between the stages.
func TestNamespaceWithObjectsOfOthersIsNotTakenBack(t *testing.T) {
	t.Parallel()
	var f *fixture
	f = newFixture(t, func(c *rest.Config) {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.URL.Query().Get("dryRun") != "" && strings.Contains(r.URL.Path, "-new/services/") {
					o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
						"metadata": map[string]any{"name": "theirs"}}}
					_, _ = f.client(secrets, f.ns+"-new").Create(r.Context(), o, metav1.CreateOptions{})
				}
				return next.RoundTrip(r)
			})
		})
	})
	t.Cleanup(f.pruneAll)
	_, err := f.try(f.request(strings.Replace(newSet, "port: 80", "port: 0", 1)))
	for _, s := range []string{"spec.ports[0].port", "Namespace/" + f.ns + "-new was created, and is kept",
		"Secret/" + f.ns + "-new/theirs"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not contain %q", err, s)
		}
	}
	if !f.has(secrets, f.ns+"-new", "theirs") {
		t.Error("the Secret was deleted")
	}
	if n := len(f.saved); n == 0 || len(f.saved[n-1]) != 1 {
		t.Errorf("saved %v, want the Namespace at last", f.saved)
	} else {
		f.inventory = f.saved[n-1]
	}
}

// TestNamespaceIsTakenBackWhileADefinitionIsDeleted deletes a definition once the cluster has discovered it.
func TestNamespaceIsTakenBackWhileADefinitionIsDeleted(t *testing.T) {
	t.Parallel()
	var f *fixture
	listed := 0
	f = newFixture(t, func(c *rest.Config) {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if !strings.HasSuffix(r.URL.Path, "-new/gadgets") {
					return next.RoundTrip(r)
				}
				if listed++; listed == 1 {
					_ = f.client(crds, "").Delete(r.Context(), "gadgets."+f.ns+".example.com", metav1.DeleteOptions{})
				}
				for { // until the API server does not serve it
					response, err := next.RoundTrip(r)
					if err != nil || response.StatusCode == http.StatusNotFound {
						return response, err
					}
					_ = response.Body.Close()
				}
			})
		})
	})
	t.Cleanup(f.pruneAll)
	f.apply(definition + "---\n" + gadget)
	f.inventory = nil
	_, err := f.try(f.request(strings.Replace(newSet, "port: 80", "port: 0", 1)))
	if err == nil || !strings.Contains(err.Error(), "spec.ports[0].port") ||
		strings.Contains(err.Error(), "was created") {
		t.Errorf("the namespace was kept: %v", err)
	}
	if listed == 0 {
		t.Error("the objects of the definition were not listed")
	}
	f.waitWithout(f.ns + "-new")
}

// TestAdmissionMaySeeACreatedNamespaceLate answers the first checks as an API server whose cache still has the deleted
// namespace of the same name.
func TestAdmissionMaySeeACreatedNamespaceLate(t *testing.T) {
	t.Parallel()
	const answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,` +
		`"message":"the namespace is being terminated","details":{"causes":[{"reason":"NamespaceTerminating"}]}}`
	var refusals atomic.Int32
	f := newFixture(t, func(c *rest.Config) {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.Contains(r.URL.Path, "-new/services/") && r.URL.Query().Get("dryRun") != "" &&
					refusals.Add(1) <= 3 {
					return &http.Response{StatusCode: http.StatusForbidden, Request: r,
						Header: http.Header{"Content-Type": {"application/json"}},
						Body:   io.NopCloser(strings.NewReader(answer))}, nil
				}
				return next.RoundTrip(r)
			})
		})
	})
	t.Cleanup(f.pruneAll)
	f.apply(newSet)
	if n := refusals.Load(); n != 4 {
		t.Errorf("the Service was checked %d times, want 4", n)
	}
}

// TestRefusalsOfAllKindsLeaveNothing applies objects with values that the API server cannot decode, convert or accept,
// after new objects that need no dry-run. It answers some of them with status 500.
func TestRefusalsOfAllKindsLeaveNothing(t *testing.T) {
	t.Parallel()
	const good = `{apiVersion: v1, kind: ConfigMap, metadata: {name: good, namespace: "%s"}, data: {a: b}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: good, namespace: "%s"}}
---
{apiVersion: v1, kind: Secret, metadata: {name: good, namespace: "%s"}, data: {a: aGk=}}
---
`
	configMap := func(rest string) string {
		return `{apiVersion: v1, kind: ConfigMap, metadata: {name: bad, namespace: "%s"` + rest + `}`
	}
	pod := func(container string) string {
		return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: bad, namespace: "%s"}, spec: {selector: ` +
			`{matchLabels: {a: q}}, template: {metadata: {labels: {a: q}}, spec: {containers: [` + container + `]}}}}`
	}
	for name, bad := range map[string]string{
		"quantity":         pod(`{name: c, image: i, resources: {limits: {memory: 512MB}}}`),
		"type of a number": pod(`{name: c, image: i, ports: [{containerPort: http}]}`),
		"type of a list":   pod(`{name: c, image: i, args: all}`),
		"invalid name":     pod(`{name: NO, image: i}`),
		"base64": `{apiVersion: v1, kind: Secret, metadata: {name: bad, namespace: "%s"}, ` +
			`data: {x: "not base64!"}}`,
		"type of a value": configMap(`}, data: {x: [1]}`),
		"unknown field":   configMap(`}, dat: {x: a}`),
		"invalid key":     configMap(`}, data: {"no key": a}`),
		"label":           configMap(`, labels: {a: "no label"}}`),
		"duplicate": `{apiVersion: v1, kind: Service, metadata: {name: bad, namespace: "%s"}, ` +
			`spec: {ports: [{port: 1}, {port: 1}]}}`,
		"time": configMap(`, deletionTimestamp: never}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for range 2 {
				_, err := f.try(f.request(good + bad))
				if err == nil || !strings.Contains(err.Error(), "/"+f.ns+"/bad") {
					t.Fatalf("%v", err)
				}
			}
			for _, resource := range []schema.GroupVersionResource{configMaps, serviceAccounts, secrets, services,
				deployments} {
				if f.has(resource, f.ns, "good") || f.has(resource, f.ns, "bad") {
					t.Errorf("%s are left", resource.Resource)
				}
			}
			if n := len(f.saved); n > 0 && len(f.saved[n-1]) > 0 {
				t.Errorf("the saved inventory contains objects that do not exist: %v", f.saved)
			}
		})
	}
}

func TestMissingObjectsAreRecognized(t *testing.T) {
	role := func(name string) *object {
		return &object{
			ref:      Ref{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role", Namespace: "ns", Name: name},
			resource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
		}
	}
	class := &object{ref: Ref{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass", Name: "high"},
		resource: schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}}
	account := &object{ref: Ref{Version: "v1", Kind: "ServiceAccount", Namespace: "ns", Name: "sa"},
		resource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}}
	notFound := func(name string) *errorStatus {
		return &errorStatus{metav1.Status{Reason: metav1.StatusReasonNotFound, Code: 404,
			Message: `roles.rbac.authorization.k8s.io "` + name + `" not found`,
			Details: &metav1.StatusDetails{Group: "rbac.authorization.k8s.io", Kind: "roles", Name: name}}}
	}
	forbidden := func(cause string) *errorStatus {
		return &errorStatus{metav1.Status{Reason: metav1.StatusReasonForbidden, Code: 403,
			Message: `pods "high" is forbidden: ` + cause}}
	}
	for n, c := range []struct {
		o    *object
		err  error
		want bool
	}{
		{role("reader"), notFound("reader"), true},
		{role("r"), notFound("reader"), false},
		{role("roles"), notFound("reader"), false},
		{class, notFound("high"), false},
		{class, forbidden("no PriorityClass with name high was found"), true},
		{class, forbidden("no PriorityClass with name higher was found"), false},
		{account, forbidden(`error looking up service account ns/sa: serviceaccount "sa" not found`), true},
		{account, forbidden(`error looking up service account ns/sad: serviceaccount "sad" not found`), false},
		{class, forbidden("the policy denies PriorityClass high"), false},
	} {
		if got := isMissing(c.o, c.err); got != c.want {
			t.Errorf("%d: %v: %t", n, c.err, got)
		}
	}
}

type errorStatus struct{ status metav1.Status }

func (e *errorStatus) Error() string { return e.status.Message }

func (e *errorStatus) Status() metav1.Status { return e.status }
