package apply

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// recorded returns a request that another process has recorded as applied.
func (f *fixture) recorded(text, record string) Request {
	req := f.request(text)
	req.SameDeclaration, req.Recorded = true, record
	return req
}

// mustRecord waits for the watches, and returns the record.
func (f *fixture) mustRecord() string {
	f.t.Helper()
	f.waitSynced()
	record := f.Record(f.owner)
	if record == "" {
		f.t.Fatal("nothing is recorded")
	}
	return record
}

// TestARestartReadsNothing also shows that what another process recorded is not believed when it is not the same.
func TestARestartReadsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	t.Cleanup(func() { removeFinalizer(t, f) })
	f.apply(usualKinds)
	record := f.mustRecord()
	next := f.restart()
	for _, change := range next.do(next.recorded(usualKinds, record)) {
		if !strings.HasSuffix(change, " unchanged") {
			t.Errorf("after a restart: %s", change)
		}
	}
	for _, line := range next.requests.take() { // but the lists of the watches
		if strings.HasPrefix(line, "GET ") && strings.Contains(line, f.ns) || strings.Contains(line, "PATCH") {
			t.Errorf("request after a restart: %s", line)
		}
	}
	if again := next.mustRecord(); again != record {
		t.Errorf("the next record is %s, want %s", again, record)
	}
	next = f.restart()
	next.do(next.recorded(usualKinds, "other"))
	if count := next.requests.count(); count["GET"] < 6 {
		t.Errorf("%v requests with another record, want reads of all objects", count)
	}
}

// TestARecordShowsEachChange changes live objects at random while no process runs. A process that starts with the
// record must leave them as one that reads them.
func TestARecordShowsEachChange(t *testing.T) {
	t.Parallel()
	rounds := 20
	if testenv.IsFull() {
		rounds = 60
	}
	f := newFixture(t)
	t.Cleanup(func() { removeFinalizer(t, f) })
	f.apply(usualKinds)
	random := rand.New(rand.NewPCG(44, 2)) //nolint:gosec // it must repeat
	corrected, read := 0, 0
	for round := range rounds {
		record := f.mustRecord()
		manifests := f.objects(usualKinds)
		manifest := manifests[random.IntN(len(manifests))]
		what := f.interfere(random, manifest)
		next := f.restart()
		changes := next.do(next.recorded(usualKinds, record))
		if count := next.requests.count(); count["GET"] > count["WATCH"] || count["DRY PATCH"] > 0 {
			read++
		}
		for _, change := range changes {
			if !strings.HasSuffix(change, " unchanged") {
				corrected++
			}
		}
		reader := f.restart()
		for _, change := range reader.apply(usualKinds) {
			if !strings.HasSuffix(change, " unchanged") {
				t.Errorf("round %d: after %s of %s the record hid: %s", round, what, manifest.GetKind(), change)
			}
		}
		next.inventory = reader.inventory
		f.Cluster, f.requests = reader.Cluster, reader.requests
	}
	if corrected < rounds/4 || read == rounds {
		t.Errorf("%d corrections, and reads in %d of %d rounds", corrected, read, rounds)
	}
}

// interfere changes a live object as others do, and says how.
func (f *fixture) interfere(random *rand.Rand, manifest *unstructured.Unstructured) string {
	f.t.Helper()
	ctx := context.Background()
	mapping, err := f.mapper.RESTMapping(manifest.GroupVersionKind().GroupKind(), "v1")
	if err != nil {
		f.t.Fatal(err)
	}
	client := f.client(mapping.Resource, f.ns)
	other := manifest.DeepCopy()
	what := "nothing"
	switch random.IntN(7) {
	case 0:
		mutate(random, other.Object)
		what = "an apply by others"
		_, err = client.Apply(ctx, other.GetName(), other, metav1.ApplyOptions{FieldManager: "other", Force: true})
	case 1:
		mutate(random, other.Object)
		what = "an apply under our name"
		_, err = client.Apply(ctx, other.GetName(), other,
			metav1.ApplyOptions{FieldManager: f.managers.own, Force: true})
	case 2:
		what = "a deletion"
		_, _ = client.Patch(ctx, other.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
			metav1.PatchOptions{})
		err = client.Delete(ctx, other.GetName(), metav1.DeleteOptions{})
	case 3:
		what = "a label"
		_, err = client.Patch(ctx, other.GetName(), types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{"app":"x%d"}}}`, random.Int()), metav1.PatchOptions{})
	case 4:
		what = "a replacement"
		mutate(random, other.Object)
		var live *unstructured.Unstructured
		if live, err = client.Get(ctx, other.GetName(), metav1.GetOptions{}); err == nil {
			other.SetResourceVersion(live.GetResourceVersion())
			other.SetLabels(live.GetLabels())
			_, err = client.Update(ctx, other, metav1.UpdateOptions{FieldManager: "editor"})
		}
	case 5:
		what = "an annotation of others"
		_, err = client.Patch(ctx, other.GetName(), types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"others":"x"}}}`), metav1.PatchOptions{})
	}
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) && !apierrors.IsBadRequest(err) {
		f.t.Logf("%s: %v", what, err) // others may not do everything
	}
	return what
}
