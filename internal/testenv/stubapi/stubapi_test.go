package stubapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/stubapi"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// script does the same to any API server, and records what comes of it.
type script struct {
	*testing.T
	dynamic   dynamic.ResourceInterface
	namespace string
	log       []string
	versions  []string // resource versions, in the order in which they appeared
}

func newScript(t *testing.T, cfg *rest.Config, namespace string) *script {
	t.Helper()
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &script{T: t, dynamic: d.Resource(configMaps).Namespace(namespace), namespace: namespace}
}

// record adds what a step returned, without what differs between servers.
func (s *script) record(step string, o *unstructured.Unstructured, err error) {
	s.Helper()
	if err != nil {
		s.log = append(s.log, fmt.Sprintf("%s: %s", step, apierrors.ReasonForError(err)))
		return
	}
	version := "none"
	if v := o.GetResourceVersion(); v != "" {
		if !slices.Contains(s.versions, v) {
			s.versions = append(s.versions, v)
		}
		version = fmt.Sprint(slices.Index(s.versions, v))
	}
	s.log = append(s.log, fmt.Sprintf("%s: version %s, uid %t, generation %d, deleting %t, labels %v, data %v, %s",
		step, version, o.GetUID() != "", o.GetGeneration(), o.GetDeletionTimestamp() != nil, o.GetLabels(),
		o.Object["data"], managersOf(s.T, o)))
}

// managersOf returns who owns what. Real servers list maps as ".", and values of sets, as well.
func managersOf(t *testing.T, o *unstructured.Unstructured) string {
	var all []string
	for _, e := range o.GetManagedFields() {
		var set any
		if err := json.Unmarshal(e.FieldsV1.GetRawBytes(), &set); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s/%s: %v", e.Manager, e.Operation, named(set)))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// named returns the fields of a set that have names.
func named(set any) any {
	m, _ := set.(map[string]any)
	out := map[string]any{}
	for k, v := range m {
		if strings.HasPrefix(k, "f:") {
			out[k] = named(v)
		}
	}
	return out
}

func (s *script) patch(step string, how types.PatchType, body, manager string, dryRun ...string) {
	s.Helper()
	o := metav1.PatchOptions{FieldManager: manager, DryRun: dryRun}
	if how == types.ApplyPatchType {
		force := true
		o.Force = &force
	}
	result, err := s.dynamic.Patch(s.Context(), "one", how, []byte(body), o)
	s.record(step, result, err)
}

// manifest is a ConfigMap as it is applied.
func manifest(metadata, data string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"` + metadata + `},"data":{` + data + `}}`
}

// run applies, changes and deletes an object as several managers.
func (s *script) run() []string {
	apply, merge := types.ApplyPatchType, types.MergePatchType
	s.patch("a dry-run of a new object", apply, manifest("", `"a":"1"`), "me", metav1.DryRunAll)
	s.patch("a merge patch of no object", merge, `{}`, "you")
	s.patch("an apply creates", apply, manifest(`,"resourceVersion":"1"`, `"a":"1","b":"2"`), "me")
	s.patch("a version that no object has", apply, manifest(`,"resourceVersion":"1"`, `"a":"1"`), "me")
	s.patch("an apply without a change", apply, manifest("", `"a":"1","b":"2"`), "me")
	s.patch("a dry-run of a change", apply, manifest("", `"a":"x","c":"3"`), "me", metav1.DryRunAll)
	s.patch("an apply changes and removes", apply, manifest(`,"labels":{"l":"1"}`, `"a":"x","c":"3"`), "me")
	s.patch("another manager adds", merge, `{"data":{"d":"4"},"metadata":{"finalizers":["test.io/x"]}}`, "you")
	s.patch("another manager changes ours", merge, `{"data":{"a":"y"}}`, "you")
	s.patch("a merge patch changes nothing", merge, `{"data":{"a":"y"}}`, "you")
	s.patch("a JSON patch", types.JSONPatchType, `[{"op":"replace","path":"/data/d","value":"5"}]`, "you")
	s.patch("a JSON patch that does not fit", types.JSONPatchType, `[{"op":"remove","path":"/data/none"}]`, "you")
	s.patch("an apply takes it back", apply, manifest(`,"labels":{"l":"1"}`, `"a":"x"`), "me")
	s.patch("a conflicting version", merge, `{"metadata":{"resourceVersion":"1"}}`, "you")
	wrong := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("other")}
	s.record("a deletion of another object", nil, s.dynamic.Delete(s.Context(), "one", wrong))
	if err := s.dynamic.Delete(s.Context(), "one", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	o, err := s.dynamic.Get(s.Context(), "one", metav1.GetOptions{})
	s.record("an object with a finalizer is deleted", o, err)
	s.patch("the finalizer is removed", merge, `{"metadata":{"finalizers":null}}`, "you")
	o, err = s.dynamic.Get(s.Context(), "one", metav1.GetOptions{})
	s.record("it is gone", o, err)
	return s.log
}

// TestAnswersAsTheRealServer does the same to the stub and to kube-apiserver.
func TestAnswersAsTheRealServer(t *testing.T) {
	namespace := testenv.Namespace(t)
	want := newScript(t, testenv.Cluster(t), namespace).run()
	got := newScript(t, stubapi.Start(t, 0).Config(), namespace).run()
	for n := range want {
		if got[n] != want[n] {
			t.Errorf("stub: %s\nreal: %s", got[n], want[n])
		}
	}
}

// TestWatchFollowsALabel has an object that matches the selector of a watch, does not, and does again.
func TestWatchFollowsALabel(t *testing.T) {
	cluster := stubapi.Start(t, 0)
	s := newScript(t, cluster.Config(), "ns")
	m, err := metadata.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	s.patch("create", types.ApplyPatchType, manifest(`,"labels":{"l":"1"}`, ""), "me")
	objects := m.Resource(configMaps)
	list, err := objects.List(t.Context(), metav1.ListOptions{LabelSelector: "l=1"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Labels["l"] != "1" {
		t.Fatalf("%+v, %v", list, err)
	}
	w, err := objects.Watch(t.Context(), metav1.ListOptions{LabelSelector: "l=1",
		ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, label := range []string{`"2"`, `"1"`} {
		s.patch("label", types.MergePatchType, `{"metadata":{"labels":{"l":`+label+`}}}`, "me")
	}
	s.patch("data", types.MergePatchType, `{"data":{"x":"y"}}`, "me")
	if err := s.dynamic.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"DELETED", "ADDED", "MODIFIED", "DELETED"} {
		e := <-w.ResultChan()
		o, ok := e.Object.(*metav1.PartialObjectMetadata)
		if string(e.Type) != want || !ok || o.Name != "one" {
			t.Errorf("%s %+v, want %s", e.Type, e.Object, want)
		}
	}
}

// TestListsHavePages lists objects three at a time.
func TestListsHavePages(t *testing.T) {
	s := newScript(t, stubapi.Start(t, 0).Config(), "ns")
	var names []string
	for n := range 8 {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		o.SetName(fmt.Sprintf("c%d", n))
		if _, err := s.dynamic.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	options, pages := metav1.ListOptions{Limit: 3}, 0
	for more := true; more; more = options.Continue != "" {
		list, err := s.dynamic.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			names = append(names, o.GetName())
		}
		options.Continue, pages = list.GetContinue(), pages+1
	}
	if pages != 3 || strings.Join(names, " ") != "c0 c1 c2 c3 c4 c5 c6 c7" {
		t.Errorf("%d pages: %v", pages, names)
	}
}

// TestBuiltinClients uses the clients of Kubernetes, which send protobuf if they are asked to.
func TestBuiltinClients(t *testing.T) {
	cluster := stubapi.Start(t, 20*time.Millisecond)
	cfg := cluster.Config()
	cfg.ContentType = "application/vnd.kubernetes.protobuf"
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	ctx, now := context.Background(), metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"},
		Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
	lease, err = c.CoordinationV1().Leases("ns").Create(ctx, lease, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	old := lease.DeepCopy()
	lease.Labels = map[string]string{"a": "b"}
	if lease, err = c.CoordinationV1().Leases("ns").Update(ctx, lease, metav1.UpdateOptions{}); err != nil ||
		lease.Labels["a"] != "b" || !lease.Spec.RenewTime.Equal(&now) {
		t.Errorf("%+v, %v", lease, err)
	}
	if _, err := c.CoordinationV1().Leases("ns").Update(ctx, old, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of an old version: %v", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}, Data: map[string][]byte{"k": {1, 2}}}
	if secret, err = c.CoreV1().Secrets("ns").Create(ctx, secret, metav1.CreateOptions{}); err != nil ||
		string(secret.Data["k"]) != "\x01\x02" || len(secret.Name) < 3 {
		t.Errorf("%+v, %v", secret, err)
	}
	if took := time.Since(start); took < 4*20*time.Millisecond {
		t.Errorf("4 requests with a latency of 20 ms took %s", took)
	}
	counts := cluster.Requests()
	if want := map[string]int{"create leases": 1, "update leases": 2, "create secrets": 1}; !maps.Equal(counts, want) {
		t.Errorf("%v, want %v", counts, want)
	}
}

// TestStreamedListEndsWithABookmark requests a list as a watch.
func TestStreamedListEndsWithABookmark(t *testing.T) {
	cluster := stubapi.Start(t, 0)
	newScript(t, cluster.Config(), "ns").patch("create", types.ApplyPatchType, manifest("", ""), "me")
	resp, err := http.Get(cluster.URL + "/api/v1/configmaps?watch=true&sendInitialEvents=true" +
		"&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(all)), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], `{"type":"ADDED"`) ||
		!strings.HasPrefix(lines[1], `{"type":"BOOKMARK"`) || !strings.Contains(lines[1], "initial-events-end") {
		t.Errorf("%q", lines)
	}
}
