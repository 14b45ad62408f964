package apply

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// saw is a sighting of one object, with the fields of two managers.
func saw(version, uid, ours, others string) *metav1.PartialObjectMetadata {
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

// The watch and the answer to our own apply come in any order. The object was applied at version 10.
func TestTheWatchIsJudgedByVersions(t *testing.T) {
	const unseen = false
	for name, c := range map[string]struct {
		watch func(*driftWatch)
		moved bool
	}{
		"nothing came yet":                 {func(*driftWatch) {}, unseen},
		"the list is older than the apply": {func(w *driftWatch) { _ = w.Replace(nil, "9") }, false},
		"the list is newer and has none":   {func(w *driftWatch) { _ = w.Replace(nil, "11") }, true},
		"the list has it as applied": {
			func(w *driftWatch) { _ = w.Replace([]any{saw("10", "u", "a", "x")}, "12") }, false},
		"the list has it changed": {
			func(w *driftWatch) { _ = w.Replace([]any{saw("11", "u", "b", "x")}, "12") }, true},
		"the list has another by that name": {
			func(w *driftWatch) { _ = w.Replace([]any{saw("11", "v", "a", "x")}, "12") }, true},
		"an older event comes late": {
			func(w *driftWatch) { synced(w); _ = w.Update(saw("8", "u", "b", "y")) }, false},
		"the end of a former object comes late": {
			func(w *driftWatch) { synced(w); _ = w.Delete(saw("9", "t", "b", "y")) }, false},
		"its end": {
			func(w *driftWatch) { synced(w); _ = w.Delete(saw("11", "u", "a", "x")) }, true},
		"its end, and a new one by that name": {func(w *driftWatch) {
			synced(w)
			_ = w.Delete(saw("11", "u", "a", "x"))
			_ = w.Add(saw("12", "v", "a", "x"))
		}, true},
		"others change what is theirs": {func(w *driftWatch) {
			synced(w)
			_ = w.Update(saw("11", "u", "a", "xyz"))
		}, false},
		"a change that nothing explains": {func(w *driftWatch) {
			synced(w)
			_ = w.Update(saw("11", "u", "a", "x"))
		}, true},
		"others change twice, then something unseen": {func(w *driftWatch) {
			synced(w)
			_ = w.Update(saw("11", "u", "a", "xyz"))
			_ = w.Update(saw("12", "u", "a", "xyz"))
		}, true},
		"a version far longer than the other": {
			func(w *driftWatch) { synced(w); _ = w.Update(saw("100000000000000000000000", "u", "b", "x")) }, true},
		"a version that is no number": {
			func(w *driftWatch) { synced(w); _ = w.Update(saw("abc", "u", "b", "x")) }, true},
		"a bookmark past it": {func(w *driftWatch) { synced(w); _ = w.Bookmark("99") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range []string{"watch", "answer"} {
				c1 := &Cluster{
					managers: managers{own: DefaultFieldManager}, edges: newNotifier(func(Owner) {}),
					states: map[Owner]map[Ref]*applied{}, watches: map[watchKey]*driftWatch{},
				}
				w := &driftWatch{cluster: c1, key: watchKey{group: group}, seen: map[types.NamespacedName]mark{},
					applied: map[types.NamespacedName][]*applied{}}
				owner := Owner{group, "ns", "app"}
				a := &applied{owner: owner, ref: Ref{Kind: "ConfigMap", Namespace: "ns", Name: "c"},
					at: managers{own: DefaultFieldManager}.markOf(saw("10", "u", "a", "x"), group)}
				if first == "watch" {
					c.watch(w)
				}
				w.attach(a)
				w.judge(a)
				if first == "answer" {
					c.watch(w)
				}
				// What happened in between cannot be told apart once only the last state is seen.
				lost := first == "watch" && name == "others change twice, then something unseen"
				if a.moved != c.moved && !lost {
					t.Errorf("%s first: moved is %v", first, a.moved)
				}
				c1.Close()
			}
		})
	}
}

func synced(w *driftWatch) { _ = w.Replace([]any{saw("10", "u", "a", "x")}, "10") }

func TestTakeOver(t *testing.T) {
	entry := func(manager, set string, op metav1.ManagedFieldsOperationType, sub string) metav1.ManagedFieldsEntry {
		f := &metav1.FieldsV1{}
		f.SetRawBytes([]byte(set))
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: f, Subresource: sub}
	}
	const apply, update = metav1.ManagedFieldsOperationApply, metav1.ManagedFieldsOperationUpdate
	ours := entry(DefaultFieldManager, `{"f:data":{"f:a":{}}}`, apply, "")
	for name, c := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   []string // manager, operation and set of each, or none if there is nothing to take
	}{
		"nobody else": {[]metav1.ManagedFieldsEntry{ours}, nil},
		"a controller": {[]metav1.ManagedFieldsEntry{ours,
			entry("other", `{"f:data":{"f:b":{}}}`, update, "")}, nil},
		"kubectl, by the scale": {[]metav1.ManagedFieldsEntry{ours,
			entry("kubectl", `{"f:spec":{"f:replicas":{}}}`, update, "scale")}, nil},
		"kubectl edit": {[]metav1.ManagedFieldsEntry{ours,
			entry("kubectl-edit", `{"f:data":{"f:b":{}}}`, update, "")},
			[]string{`kustomize-controller Apply {"f:data":{"f:a":{},"f:b":{}}}`}},
		"kubectl apply --server-side": {[]metav1.ManagedFieldsEntry{entry("kubectl", `{"f:data":{"f:b":{}}}`, apply,
			"")}, []string{`kustomize-controller Apply {"f:data":{"f:b":{}}}`}},
		"before there was an apply": {[]metav1.ManagedFieldsEntry{entry("before-first-apply",
			`{"f:data":{"f:b":{}}}`, update, ""), ours},
			[]string{`kustomize-controller Apply {"f:data":{"f:a":{},"f:b":{}}}`}},
		"an update in our own name": {[]metav1.ManagedFieldsEntry{ours,
			entry(DefaultFieldManager, `{"f:data":{"f:b":{}}}`, update, "")},
			[]string{`kustomize-controller Apply {"f:data":{"f:a":{},"f:b":{}}}`}},
		"an annotation that steers us": {[]metav1.ManagedFieldsEntry{ours,
			entry("kubectl-annotate", `{"f:metadata":{"f:annotations":{".":{},"f:`+group+`/prune":{}}}}`, update,
				"")}, nil},
		"a label that steers us": {[]metav1.ManagedFieldsEntry{ours,
			entry("kubectl-label", `{"f:metadata":{"f:labels":{".":{},"f:`+group+`/prune":{}}}}`, update, "")}, nil},
		"a restart": {[]metav1.ManagedFieldsEntry{ours,
			entry("kubectl-rollout", `{"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/restartedAt":{}}}}`,
				update, "")}, nil},
		"a restart of the pods": {[]metav1.ManagedFieldsEntry{ours,
			entry("kubectl-rollout", `{"f:spec":{"f:template":{"f:metadata":{"f:annotations":{"f:kubectl.kubernetes.io/restartedAt":{}}}}}}`, update, "")}, nil},
		"a steering annotation and data": {
			[]metav1.ManagedFieldsEntry{ours,
				entry("kubectl-edit", `{"f:data":{"f:b":{}},"f:metadata":{"f:annotations":{"f:`+group+`/prune":{}}}}`,
					update, "")},
			[]string{`kustomize-controller Apply {"f:data":{"f:a":{},"f:b":{}}}`,
				`kubectl-edit Update {"f:metadata":{"f:annotations":{"f:` + group + `/prune":{}}}}`},
		},
		"a set that cannot be read": {[]metav1.ManagedFieldsEntry{ours,
			entry("kubectl-edit", `{"f:data`, update, "")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			out, needed := managers{own: DefaultFieldManager}.takeOver(c.fields, "v1", group)
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
			same(t, "fields", got, c.want)
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
			t.Errorf("%q is read as %+v", id, ref)
		}
		again, err := ref.Entry().Ref()
		if err != nil || again != ref {
			t.Errorf("%q is read as %+v, written as %q, read as %+v, %v", id, ref, ref.Entry().ID, again, err)
		}
	})
}

func TestInventoryEntries(t *testing.T) {
	for id, want := range map[string]Ref{
		"ns_name_apps_Deployment": {"apps", "v1", "Deployment", "ns", "name"},
		"ns_name__ConfigMap":      {"", "v1", "ConfigMap", "ns", "name"},
		"_system__node_rbac.authorization.k8s.io_ClusterRole": {"rbac.authorization.k8s.io", "v1", "ClusterRole", "",
			"system:node"},
		"_under_score_rbac.authorization.k8s.io_ClusterRole": {"rbac.authorization.k8s.io", "v1", "ClusterRole", "",
			"under_score"},
	} {
		got, err := Entry{id, "v1"}.Ref()
		if err != nil || got != want || got.Entry().ID != id {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
	}
}
