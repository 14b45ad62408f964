package apply

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/sluice-gitops/sluice/internal/cluster/kubewatch"
	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

// event returns the metadata of an object with fields of two managers.
func event(version, uid, ours, others string) *metav1.PartialObjectMetadata {
	entry := func(manager, set string, op metav1.ManagedFieldsOperationType) metav1.ManagedFieldsEntry {
		f := &metav1.FieldsV1{}
		f.SetRawBytes([]byte(`{"f:data":{"f:` + set + `":{}}}`))
		at := metav1.NewTime(time.Unix(int64(len(set)), 0))
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: f, Time: &at}
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "c", UID: types.UID(uid), ResourceVersion: version,
		Labels: map[string]string{group + "/name": "app", group + "/namespace": "ns"},
		ManagedFields: []metav1.ManagedFieldsEntry{
			entry(DefaultFieldManager, ours, metav1.ManagedFieldsOperationApply),
			entry("other", others, metav1.ManagedFieldsOperationUpdate),
		},
	}}
}

// listed makes the watch complete, with the object as it was applied.
func listed(w *watch) { _ = w.Replace([]any{event("10", "u", "a", "x")}, "10") }

var eventOrders = map[string]struct {
	events  func(*watch)
	drifted bool
	// With the events before the response, only the last state is compared.
	missedBeforeResponse bool
}{
	"no event": {events: func(*watch) {}},
	"list older than the apply": {
		events: func(w *watch) { _ = w.Replace(nil, "9") }},
	"newer list without the object": {
		events: func(w *watch) { _ = w.Replace(nil, "11") }, drifted: true},
	"list with the applied object": {
		events: func(w *watch) { _ = w.Replace([]any{event("10", "u", "a", "x")}, "12") }},
	"list with the changed object": {
		events: func(w *watch) { _ = w.Replace([]any{event("11", "u", "b", "x")}, "12") }, drifted: true},
	"list with another object of the same name": {
		events: func(w *watch) { _ = w.Replace([]any{event("11", "v", "a", "x")}, "12") }, drifted: true},
	"late older event": {
		events: func(w *watch) { listed(w); _ = w.Update(event("8", "u", "b", "y")) }},
	"late deletion of an older object": {
		events: func(w *watch) { listed(w); _ = w.Delete(event("9", "t", "b", "y")) }},
	"deletion": {
		events: func(w *watch) { listed(w); _ = w.Delete(event("11", "u", "a", "x")) }, drifted: true},
	"deletion and creation": {events: func(w *watch) {
		listed(w)
		_ = w.Delete(event("11", "u", "a", "x"))
		_ = w.Add(event("12", "v", "a", "x"))
	}, drifted: true},
	"change of other fields": {events: func(w *watch) {
		listed(w)
		_ = w.Update(event("11", "u", "a", "xyz"))
	}},
	"change that nothing explains": {events: func(w *watch) {
		listed(w)
		_ = w.Update(event("11", "u", "a", "x"))
	}, drifted: true},
	"change of other fields, then one that nothing explains": {events: func(w *watch) {
		listed(w)
		_ = w.Update(event("11", "u", "a", "xyz"))
		_ = w.Update(event("12", "u", "a", "xyz"))
	}, drifted: true, missedBeforeResponse: true},
	"version with more digits": {
		events:  func(w *watch) { listed(w); _ = w.Update(event("100000000000000000000000", "u", "b", "x")) },
		drifted: true},
	"version that is not a number": {
		events: func(w *watch) { listed(w); _ = w.Update(event("abc", "u", "b", "x")) }, drifted: true},
	"bookmark": {events: func(w *watch) { listed(w); _ = w.Bookmark("99") }},
}

// Events of the watch and the response to our apply come in any order. The object was applied at version 10.
func TestDriftIsFoundInAnyOrderOfEvents(t *testing.T) {
	for name, c := range eventOrders {
		t.Run(name, func(t *testing.T) {
			for _, eventsFirst := range []bool{true, false} {
				cluster := newCluster(ClusterOptions{FieldManager: DefaultFieldManager, OnDrift: func(Owner) {}},
					idleClient())
				owner := Owner{Group: group, Namespace: "ns", Name: "app"}
				object := &trackedObject{owner: owner, ref: Ref{Kind: "ConfigMap", Namespace: "ns", Name: "c"},
					applied: cluster.managers.fingerprintOf(event("10", "u", "a", "x"), group)}
				cluster.mu.Lock()
				w := cluster.watchFor(schema.GroupVersionResource{}, "", group)
				cluster.mu.Unlock()
				if eventsFirst {
					c.events(w)
				}
				cluster.mu.Lock()
				cluster.attach(object, w)
				cluster.compare(object)
				cluster.mu.Unlock()
				if !eventsFirst {
					c.events(w)
				}
				want := c.drifted && !(eventsFirst && c.missedBeforeResponse)
				if cluster.mu.Lock(); object.drifted != want {
					t.Errorf("events first %v: drifted is %v", eventsFirst, object.drifted)
				}
				cluster.mu.Unlock()
				cluster.Close()
			}
		})
	}
}

// idleClient returns a client whose requests never complete.
func idleClient() kubewatch.Client[*metav1.PartialObjectMetadata] {
	return kubewatch.Client[*metav1.PartialObjectMetadata]{
		List: func(ctx context.Context, _ kubewatch.Key, _ metav1.ListOptions) (runtime.Object, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		Watch: func(ctx context.Context, _ kubewatch.Key, _ metav1.ListOptions) (apiwatch.Interface, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
}

func managedFields(manager, set string, op metav1.ManagedFieldsOperationType, sub string) metav1.ManagedFieldsEntry {
	f := &metav1.FieldsV1{}
	f.SetRawBytes([]byte(set))
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: f, Subresource: sub}
}

const applyOperation = metav1.ManagedFieldsOperationApply

var ourFields = managedFields(DefaultFieldManager, `{"f:data":{"f:a":{}}}`, applyOperation, "")

const updateOperation = metav1.ManagedFieldsOperationUpdate

var takeOverCases = map[string]struct {
	fields []metav1.ManagedFieldsEntry
	want   []string // manager, operation and fields of each entry; nil if nothing is taken over
}{
	"no other manager": {fields: []metav1.ManagedFieldsEntry{ourFields}},
	"controller": {fields: []metav1.ManagedFieldsEntry{ourFields,
		managedFields("other", `{"f:data":{"f:b":{}}}`, updateOperation, "")}},
	"kubectl scale": {fields: []metav1.ManagedFieldsEntry{ourFields,
		managedFields("kubectl", `{"f:spec":{"f:replicas":{}}}`, updateOperation, "scale")}},
	"kubectl edit": {fields: []metav1.ManagedFieldsEntry{ourFields,
		managedFields("kubectl-edit", `{"f:data":{"f:b":{}}}`, updateOperation, "")},
		want: []string{`kustomize-controller Apply {"f:data":{"f:a":{},"f:b":{}}}`}},
	"kubectl apply --server-side": {fields: []metav1.ManagedFieldsEntry{managedFields("kubectl",
		`{"f:data":{"f:b":{}}}`, applyOperation,
		"")}, want: []string{`kustomize-controller Apply {"f:data":{"f:b":{}}}`}},
	"before the first apply": {fields: []metav1.ManagedFieldsEntry{managedFields("before-first-apply",
		`{"f:data":{"f:b":{}}}`, updateOperation, ""), ourFields},
		want: []string{`kustomize-controller Apply {"f:data":{"f:a":{},"f:b":{}}}`}},
	"update under our name": {fields: []metav1.ManagedFieldsEntry{ourFields,
		managedFields(DefaultFieldManager, `{"f:data":{"f:b":{}}}`, updateOperation, "")},
		want: []string{`kustomize-controller Apply {"f:data":{"f:a":{},"f:b":{}}}`}},
	"policy annotation": {fields: []metav1.ManagedFieldsEntry{ourFields,
		managedFields("kubectl-annotate", `{"f:metadata":{"f:annotations":{".":{},"f:`+group+`/prune":{}}}}`,
			updateOperation,
			"")}},
	"policy label": {fields: []metav1.ManagedFieldsEntry{ourFields,
		managedFields("kubectl-label", `{"f:metadata":{"f:labels":{".":{},"f:`+group+`/prune":{}}}}`, updateOperation,
			"")}},
	"restart annotation": {fields: []metav1.ManagedFieldsEntry{ourFields,
		managedFields("kubectl-rollout", `{"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/restartedAt":{}}}}`,
			updateOperation, "")}},
	"restart annotation of pods": {fields: []metav1.ManagedFieldsEntry{ourFields,
		managedFields("kubectl-rollout", `{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{`+
			`"f:kubectl.kubernetes.io/restartedAt":{}}}}}}`, updateOperation, "")}},
	"policy annotation and data": {
		fields: []metav1.ManagedFieldsEntry{ourFields,
			managedFields("kubectl-edit",
				`{"f:data":{"f:b":{}},"f:metadata":{"f:annotations":{"f:`+group+`/prune":{}}}}`, updateOperation, "")},
		want: []string{`kustomize-controller Apply {"f:data":{"f:a":{},"f:b":{}}}`,
			`kubectl-edit Update {"f:metadata":{"f:annotations":{"f:` + group + `/prune":{}}}}`},
	},
	"invalid fields": {fields: []metav1.ManagedFieldsEntry{ourFields,
		managedFields("kubectl-edit", `{"f:data`, updateOperation, "")}},
}

func TestTakeOver(t *testing.T) {
	for name, c := range takeOverCases {
		t.Run(name, func(t *testing.T) {
			out, needed := managers{own: DefaultFieldManager}.takeOver(c.fields, "v1",
				func(p fieldpath.Path) bool { return isKept(p, group) }, nil)
			if needed != (c.want != nil) {
				t.Fatalf("needed is %v", needed)
			}
			if !needed {
				return
			}
			var got []string
			for _, e := range out {
				got = append(got, e.Manager+" "+string(e.Operation)+" "+e.FieldsV1.GetRawString())
			}
			assertLines(t, "fields", got, c.want)
		})
	}
}

func FuzzInventoryEntry(f *testing.F) {
	for _, id := range []string{"ns_name_apps_Deployment", "_a__b_rbac.authorization.k8s.io_ClusterRole",
		"ns_name__ConfigMap", "", "_", "____", "a_b_c", "x_a_b_c_d_e"} {
		f.Add(id, "v1")
	}
	f.Fuzz(func(t *testing.T, id, version string) {
		ref, err := Entry{id, version}.Ref()
		if err != nil {
			return
		}
		if ref.Name == "" || ref.Kind == "" {
			t.Errorf("%q is parsed as %+v", id, ref)
		}
		again, err := ref.Entry().Ref()
		if err != nil || again != ref {
			t.Errorf("%q is parsed as %+v, formatted as %q, parsed as %+v, %v", id, ref, ref.Entry().ID, again, err)
		}
	})
}

func TestInventoryEntries(t *testing.T) {
	for id, want := range map[string]Ref{
		"ns_name_apps_Deployment": {Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "ns", Name: "name"},
		"ns_name__ConfigMap":      {Version: "v1", Kind: "ConfigMap", Namespace: "ns", Name: "name"},
		"_system__node_rbac.authorization.k8s.io_ClusterRole": {Group: "rbac.authorization.k8s.io", Version: "v1",
			Kind: "ClusterRole",
			Name: "system:node"},
		"_under_score_rbac.authorization.k8s.io_ClusterRole": {Group: "rbac.authorization.k8s.io", Version: "v1",
			Kind: "ClusterRole",
			Name: "under_score"},
	} {
		got, err := Entry{id, "v1"}.Ref()
		if err != nil || got != want || got.Entry().ID != id {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
}

// TestAnUnchangedObjectAllocatesLittle compares an event of a watch, and a dry-run, with what was applied: each change
// of the status of an object causes the former.
func TestAnUnchangedObjectAllocatesLittle(t *testing.T) {
	const most, mostDryRun = 60, 120
	m, now := managers{own: DefaultFieldManager}, event("11", "u", "a", "xyz")
	applied := m.fingerprintOf(event("10", "u", "a", "x"), group)
	if n := allocation.PerRun(func() {
		if applied.driftedTo(m.fingerprintOf(now, group)) {
			t.Error("the object has drifted")
		}
	}); n > most {
		t.Errorf("%.0f allocations for an event, want at most %d", n, most)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": "ns", "name": "c"}, "data": map[string]any{"k": "v"}}}
	o.SetManagedFields(now.ManagedFields)
	digest := m.digest(o)
	if n := allocation.PerRun(func() {
		if m.digest(o) != digest {
			t.Error("the object has changed")
		}
	}); n > mostDryRun {
		t.Errorf("%.0f allocations for a dry-run, want at most %d", n, mostDryRun)
	}
}
