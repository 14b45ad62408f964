package apply

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const many = certainThreshold + 5

// manyMaps returns many ConfigMaps with a value.
func manyMaps(value string) string {
	var out []string
	for n := range many {
		out = append(out, fmt.Sprintf(`{apiVersion: v1, kind: ConfigMap, metadata: {name: m%02d, namespace: "%%s"}, `+
			`data: {k: %s}}`, n, value))
	}
	return strings.Join(out, "\n---\n")
}

// values returns the values of the ConfigMaps of a fixture, each once.
func (f *fixture) values() []string {
	f.t.Helper()
	var out []string
	for _, o := range f.owned() {
		value, _, _ := unstructured.NestedString(o.Object, "data", "k")
		out = append(out, value)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// settled returns a fixture that has applied many ConfigMaps with the value v, and whose watches have seen them.
func settled(t *testing.T, f *fixture) *fixture {
	t.Helper()
	f.apply(manyMaps("v"))
	f.waitSynced()
	for n := range many {
		f.waitObserved(configMaps, fmt.Sprintf("m%02d", n))
	}
	f.requests.take()
	return f
}

func TestChangesThatCannotBeRefusedNeedNoDryRun(t *testing.T) {
	f := settled(t, newFixture(t))
	changed := f.apply(manyMaps("w"))
	if len(changed) != many || strings.Count(strings.Join(changed, "\n"), "configured") != many {
		t.Errorf("changes: %q", changed)
	}
	if got := f.requests.count(); got["DRY PATCH"] > 0 || got["PATCH"] != many {
		t.Errorf("requests: %v", got)
	}
	assertLines(t, "values", f.values(), []string{"w"})
	f.waitObserved(configMaps, "m00")
	f.requests.take()
	f.apply(manyMaps("w"))
	if got := f.requests.count(); got["PATCH"]+got["DRY PATCH"] > 0 {
		t.Errorf("requests without a change: %v", got)
	}
}

func TestChangesThatAPolicyMaySeeAreDryRun(t *testing.T) {
	for name, manifest := range map[string]string{
		"webhook": `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: "%s"}
webhooks:
- name: check.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {url: "https://localhost:1"}
  namespaceSelector: {matchLabels: {never: "true"}}
  rules: [{apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: [CREATE, UPDATE]}]`,
		"policy": `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: "%s"}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [secrets, configmaps], operations: ["*"]}]
  validations: [{expression: "true"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			f := settled(t, newFixture(t))
			admin := f.another("policies")
			admin.apply(manifest)
			t.Cleanup(admin.pruneAll)
			f.requests.take()
			f.apply(manyMaps("w"))
			// One is the first object that takes effect.
			if got := f.requests.count(); got["DRY PATCH"] != many-1 {
				t.Errorf("requests: %v", got)
			}
		})
	}
}

func TestChangesOfATenantThatMayNotListPoliciesAreDryRun(t *testing.T) {
	f := asTenant(t)
	f.grant("get, list, watch, create, patch, delete")
	f.applySoon(manyMaps("v"))
	f.waitSynced()
	f.apply(manyMaps("w"))
	if got := f.requests.count(); got["DRY PATCH"] == 0 {
		t.Errorf("requests: %v", got)
	}
}

// TestNothingChangesIfAnotherObjectIsRefused has an object that a dry-run refuses beside those that cannot be refused.
func TestNothingChangesIfAnotherObjectIsRefused(t *testing.T) {
	f := settled(t, newFixture(t))
	_, err := f.try(f.request(manyMaps("w") +
		"\n---\n{apiVersion: v1, kind: Service, metadata: {name: s, namespace: \"%s\"}, spec: {ports: [{port: 0}]}}"))
	if err == nil || !strings.Contains(err.Error(), "Service/"+f.ns+"/s") {
		t.Fatalf("%v", err)
	}
	assertLines(t, "values", f.values(), []string{"v"})
}

// refusing makes the cluster refuse writes of a ConfigMap while the switch is on, as an admission plugin of the API
// server would that no object of the cluster shows.
func refusing(name string, on *atomic.Bool) func(*rest.Config) {
	return func(c *rest.Config) {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/configmaps/"+name) || !on.Load() {
					return next.RoundTrip(r)
				}
				body, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
					Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
					Message: "hidden rule"})
				return &http.Response{StatusCode: http.StatusForbidden, Request: r,
					Header: http.Header{"Content-Type": {"application/json"}},
					Body:   io.NopCloser(strings.NewReader(string(body)))}, err
			})
		})
	}
}

func TestWhatIsRefusedAllTheSameIsSetBack(t *testing.T) {
	for name, first := range map[string]bool{"m00": true, "m07": false} {
		t.Run(name, func(t *testing.T) {
			var on atomic.Bool
			f := settled(t, newFixture(t, refusing(name, &on)))
			on.Store(true)
			for attempt := range 2 {
				result, err := f.try(f.request(manyMaps("w")))
				if err == nil || !strings.Contains(err.Error(), "ConfigMap/"+f.ns+"/"+name) ||
					!strings.Contains(err.Error(), "hidden rule") {
					t.Fatalf("%v", err)
				}
				for _, c := range result.Changes {
					if c.Action == Configured {
						t.Errorf("attempt %d reports a change: %+v", attempt, c)
					}
				}
				assertLines(t, "values", f.values(), []string{"v"})
				writes := f.requests.count()["PATCH"]
				if attempt > 0 && writes > 0 || first && writes > 1 {
					t.Errorf("attempt %d wrote %d objects", attempt, writes)
				}
			}
			on.Store(false)
			f.apply(manyMaps("w"))
			assertLines(t, "values", f.values(), []string{"w"})
		})
	}
}

// TestAChangeOfAnotherIsNotOverwrittenUnseen has a ConfigMap that became immutable between the list and the write.
func TestAChangeOfAnotherIsNotOverwrittenUnseen(t *testing.T) {
	var once atomic.Bool
	var f *fixture
	f = newFixture(t, func(c *rest.Config) {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/m00") &&
					once.CompareAndSwap(true, false) {
					_, err := f.admin.client(configMaps, f.ns).Patch(r.Context(), "m07", types.MergePatchType,
						[]byte(`{"immutable":true}`), metav1.PatchOptions{})
					if err != nil {
						t.Error(err)
					}
				}
				return next.RoundTrip(r)
			})
		})
	})
	f.admin = newFixture(t).Cluster
	settled(t, f)
	once.Store(true)
	_, err := f.try(f.request(manyMaps("w")))
	if err == nil || !strings.Contains(err.Error(), "ConfigMap/"+f.ns+"/m07") {
		t.Fatalf("%v", err)
	}
	assertLines(t, "values", f.values(), []string{"v"})
}

// TestWhatCannotBeRefusedIsAccepted compares the rules of this package with those of the API server, for manifests and
// live objects that are valid or slightly wrong.
func TestWhatCannotBeRefusedIsAccepted(t *testing.T) {
	f := newFixture(t)
	rnd, usually := rand.New(rand.NewPCG(1, 2)), 0 // one value in so many is odd
	pick := func(values ...any) any { return values[rnd.IntN(len(values))] }
	odd := func(usual any, others ...any) any {
		if rnd.IntN(usually) > 0 {
			return usual
		}
		return pick(others...)
	}
	large := strings.Repeat("x", 300<<10)
	random := func(kind, name string) *unstructured.Unstructured {
		o := map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name,
			"namespace": f.ns,
			"labels": map[string]any{pick("app", "example.com/a").(string): "a",
				odd("b", "", "-b", "a/b/c", "B_1").(string): odd("v", "", "-", "two words", int64(1), nil)},
			"annotations": map[string]any{
				odd("a", "", "A/B", "a b", "Example.com/a").(string): odd("x", large, true, nil)},
		}}
		data := map[string]any{"k": "dmFsdWU="}
		data[odd("l", "", ".", "..", "..a", "a b", strings.Repeat("k", 300)).(string)] =
			odd("eA==", "no base64", "x", large, int64(1), nil, map[string]any{"a": "b"})
		o["data"] = odd(data, nil, "text", []any{}, map[string]any{})
		if kind == "Secret" {
			o["type"] = odd("Opaque", "kubernetes.io/tls", "", nil, int64(1))
		}
		switch rnd.IntN(12) {
		case 0:
			o["immutable"] = pick(true, false, nil)
		case 1:
			o["binaryData"] = map[string]any{"l": "eA=="}
		case 2:
			o["unknown"] = "x"
		case 3:
			o["metadata"].(map[string]any)[pick("finalizers", "ownerReferences", "unknown").(string)] =
				pick("x", nil, []any{"x"})
		}
		return &unstructured.Unstructured{Object: o}
	}
	force := metav1.PatchOptions{FieldManager: DefaultFieldManager, Force: new(true)}
	counts := map[string]int{}
	for n := range 600 {
		kind, resource := "ConfigMap", configMaps
		if n%2 == 1 {
			kind, resource = "Secret", secrets
		}
		client := f.client(resource, f.ns)
		name := fmt.Sprintf("o%d", n)
		usually = 20
		if data, err := random(kind, name).MarshalJSON(); err != nil {
			t.Fatal(err)
		} else if _, err := client.Patch(t.Context(), name, types.ApplyPatchType, data, force); err != nil {
			counts["not created"]++
			continue
		}
		live, err := client.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		usually = 8
		manifest := random(kind, name)
		certain := isPlainData(manifest) && mayBecome(live, manifest)
		data, err := manifest.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Patch(t.Context(), name, types.ApplyPatchType, data, force)
		switch {
		case certain && err != nil:
			t.Errorf("refused: %.300s\nlive: %.300v\nmanifest: %.500s", err, live.Object["data"], data)
		case certain:
			counts["certain"]++
		case err != nil:
			counts["refused"]++
		default:
			counts["accepted"]++
		}
	}
	t.Log(counts)
	if counts["certain"] < 50 || counts["refused"] < 50 {
		t.Errorf("too few of a kind: %v", counts)
	}
}

func TestAdmissionRulesThatSelectUpdates(t *testing.T) {
	const rule = `{"rules":[{"apiGroups":["%s"],"resources":["%s"],"operations":["%s"]}]}`
	for _, c := range []struct {
		group, resource, operation string
		want                       bool
	}{
		{"", "configmaps", "UPDATE", true}, {"*", "*", "*", true}, {"", "*/*", "UPDATE", true},
		{"", "configmaps", "CREATE", false}, {"apps", "*", "*", false}, {"", "secrets", "*", false},
		{"", "configmaps/status", "*", false},
	} {
		var a admissionRules
		text := fmt.Sprintf(`{"webhooks":[`+rule+`]}`, c.group, c.resource, c.operation)
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatal(err)
		}
		if got := a.selects(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}); got != c.want {
			t.Errorf("%s selects updates of ConfigMaps: %t", text, got)
		}
	}
}
