package apply

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestListsAreFlattened(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	list := func(items string) string { return "{apiVersion: v1, kind: List, items: [" + items + "]}" }
	typed := "{apiVersion: v1, kind: ConfigMapList, items: [{metadata: {name: b, namespace: %s}, data: {k: v}}]}"
	assertLines(t, "nested", f.apply(list(list(
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: %s}}, "+
			typed)+", "+list(""))), []string{
		"ConfigMap/a created", "ConfigMap/b created",
	})
	deep := "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: %s}}"
	for range maxNesting + 2 {
		deep = list(deep)
	}
	for text, want := range map[string]string{
		list("5"): "item 0 of a List is not an object. Remove it from the list",
		deep:      "a List is nested in 10 other lists. Declare its items one by one",
		list("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: %s}}, " +
			list("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: %s}}")): "is declared twice. " +
			"Remove one of the two",
	} {
		if _, err := f.try(f.request(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not contain %q", err, want)
		}
	}
}

// onRequest calls do before the first request that matches is sent.
func onRequest(matches func(*http.Request) bool, do func()) func(*rest.Config) {
	var once sync.Once
	return func(cfg *rest.Config) {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if matches(r) {
					once.Do(do)
				}
				return next.RoundTrip(r)
			})
		})
	}
}

// writes reports whether a request writes objects of a resource.
func writes(r *http.Request, resource string) bool {
	return r.Method == http.MethodPatch && r.URL.Query().Get("dryRun") == "" &&
		strings.Contains(r.URL.Path, "/"+resource+"/")
}

func TestDefinitionDeletedDuringApply(t *testing.T) {
	t.Parallel()
	var f *fixture
	f = newFixture(t, onRequest(func(r *http.Request) bool { return writes(r, "gadgets") && f.inventory != nil },
		func() {
			name := "gadgets." + f.ns + ".example.com"
			if err := deleted(context.Background(), f.client(crds, ""), name); err != nil {
				t.Error(err)
			}
			testenv.Eventually(t, "deletion of the kind", func() error {
				if _, err := f.dynamic.Resource(f.gadgets()).
					List(context.Background(), metav1.ListOptions{}); err == nil {
					return fmt.Errorf("the kind is still served")
				}
				return nil
			})
		}))
	t.Cleanup(f.pruneAll)
	f.apply(definition + "---\n" + gadget)
	f.waitSynced()
	changed := definition + "---\n" + strings.ReplaceAll(gadget, "size: 3", "size: 4")
	_, err := f.try(f.request(changed))
	for _, s := range []string{"Gadget/" + f.ns + "/g", "no longer serves the kind"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not contain %q", err, s)
		}
	}
	testenv.Eventually(t, "recovery", func() error {
		_, err := f.try(f.request(changed))
		return err
	})
	if size := f.get(f.gadgets(), "g").Object["spec"].(map[string]any)["size"]; size != int64(4) {
		t.Errorf("size is %v", size)
	}
}

func TestNamespaceBeingDeletedIsCreatedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(f.pruneAll)
	ctx := t.Context()
	inside := func(name string) string { return strings.ReplaceAll(f.cm(name), f.ns, f.ns+"-new") }
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s-new}\n"
	held := strings.Replace(inside("held"), "name: held,", "name: held, finalizers: [example.com/hold],", 1)
	f.apply(namespace + "---\n" + inside("a"))
	admin := f.another("holder")
	admin.apply(held)
	f.waitSynced()
	if err := deleted(ctx, f.client(namespaces, ""), f.ns+"-new"); err != nil {
		t.Fatal(err)
	}

	_, err := f.try(f.request(inside("b")))
	for _, s := range []string{"ConfigMap/" + f.ns + "-new/b", "because it is being terminated",
		"Wait until the namespace is deleted"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not contain %q", err, s)
		}
	}
	text := namespace + "---\n" + inside("a") + "---\n" + inside("b")
	f.options.WaitTimeout = shortTimeout
	testenv.Eventually(t, "error for the namespace", func() error {
		if _, err := f.try(f.request(text)); err == nil ||
			!strings.Contains(err.Error(), "Namespace/"+f.ns+"-new is being deleted") {
			return fmt.Errorf("error is %w", err)
		}
		return nil
	})

	// After the deletion, the namespace is created again with all objects.
	f.options.WaitTimeout = longTimeout
	done := make(chan error)
	go func() {
		_, err := f.try(f.request(text))
		done <- err
	}()
	if err := patched(types.MergePatchType, "holder", `{"metadata":{"finalizers":null}}`)(ctx,
		f.client(configMaps, f.ns+"-new"), "held"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil && !strings.Contains(err.Error(), "because it is being terminated") {
		t.Fatal(err)
	}
	testenv.Eventually(t, "all objects", func() error {
		if _, err := f.try(f.request(text)); err != nil {
			return err
		}
		if !f.has(configMaps, f.ns+"-new", "a") || !f.has(configMaps, f.ns+"-new", "b") {
			return fmt.Errorf("not all objects exist")
		}
		return nil
	})
}

func TestForbiddenObjectLeavesClusterUnchanged(t *testing.T) {
	t.Parallel()
	f := asTenant(t)
	f.grant("get, list, watch, create, patch, delete")
	f.applySoon(f.cm("a"))
	var docs []string
	for n := range 20 {
		docs = append(docs, f.cm(fmt.Sprint("many-", n)))
	}
	docs = append(docs, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: %s}\n"+
		"spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: "+
		"c, image: i}]}}}")
	result, err := f.try(f.request(strings.Join(docs, "---\n")))
	for _, s := range []string{"Deployment/" + f.ns + "/d", `cannot patch resource "deployments"`,
		"system:serviceaccount:" + f.ns + ":default", "Grant the right"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not contain %q", err, s)
		}
	}
	if len(result.Changes) != 0 || f.has(configMaps, f.ns, "many-0") {
		t.Errorf("objects were applied: %v", result.Changes)
	}
}

// failing responds to the first matching requests for each URL with an error.
func failing(times int, matches func(*http.Request) bool, status string) func(*rest.Config) {
	var mu sync.Mutex
	seen := map[string]int{}
	return func(cfg *rest.Config) {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if !matches(r) {
					return next.RoundTrip(r)
				}
				mu.Lock()
				seen[r.URL.String()]++
				n := seen[r.URL.String()]
				mu.Unlock()
				if n > times {
					return next.RoundTrip(r)
				}
				var s metav1.Status
				code, message, _ := strings.Cut(status, " ")
				if _, err := fmt.Sscan(code, &s.Code); err != nil {
					return nil, err
				}
				header := http.Header{"Content-Type": {"application/json"}}
				if s.Code == http.StatusTooManyRequests {
					header.Set("Retry-After", "0")
				}
				body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%s,"reason":%q,`+
					`"message":"etcdserver: leader changed"}`, code, message)
				return &http.Response{StatusCode: int(s.Code), Header: header,
					Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
			})
		})
	}
}

func TestTransientErrorsAreRetried(t *testing.T) {
	t.Parallel()
	patches := func(r *http.Request) bool { return r.Method == http.MethodPatch }
	for _, status := range []string{"500 InternalError", "503 ServiceUnavailable", "504 Timeout",
		"429 TooManyRequests"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, failing(2, patches, status))
			assertLines(t, "applied", f.apply(f.cm("a")), []string{"ConfigMap/a created"})
		})
	}
	t.Run("permanent error", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, failing(1000, patches, "500 InternalError"))
		_, err := f.try(f.request(f.cm("a")))
		for _, s := range []string{"ConfigMap/" + f.ns + "/a", "etcdserver: leader changed"} {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("error %v does not contain %q", err, s)
			}
		}
	})
}
