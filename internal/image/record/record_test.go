package record

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
)

func changes(n int) (all []edit.Change) {
	for i := range n {
		all = append(all, edit.Change{File: "a.yaml", Line: i + 1, Policy: fmt.Sprintf("apps:p%d", i%150),
			Object: edit.Object{Kind: "Deployment", Name: "web"}, Container: "main", Old: "x:1", New: "x:2"})
	}
	return all
}

func TestParseReturnsWrittenRecord(t *testing.T) {
	r := Of("ImageUpdateAutomation apps/update", changes(2), map[string]edit.Ref{"apps:p0": {Name: "x", Tag: "2"}},
		map[string]string{"apps:p0": "highest version"})
	want := Update{Image: "x:2", Policy: "apps/p0", Why: "highest version",
		Places: []Place{{File: "a.yaml:1", Object: "Deployment/web", Container: "main", From: "x:1", To: "x:2"}}}
	if diff := cmp.Diff(want, r.Updated[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, text := range map[string]string{"one record": r.String(),
		"second record of a note": "by: another\nupdated: []\n\n" +
			r.String()} {
		if got, err := Parse(text); err != nil || cmp.Diff(r, got) != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, cmp.Diff(r, got))
		}
	}
}

// TestParseTruncatedRecord: the status of a GitRepository has the first 4 KiB of a note.
func TestParseTruncatedRecord(t *testing.T) {
	text := Of("ImageUpdateJob apps/web", changes(100), nil, nil).String()
	for size := 60; size < 4<<10; size++ {
		if got, err := Parse(text[:size] + " …"); err != nil || got.By != "ImageUpdateJob apps/web" {
			t.Fatalf("%d bytes: %+v, %v", size, got, err)
		}
	}
}

func TestRecordIsBounded(t *testing.T) {
	r := Of("x", changes(20_000), nil, nil)
	got, err := Parse(r.String())
	if err != nil || len(r.String()) > maxText || len(r.Updated) != maxImages ||
		got.More+len(got.Updated) != r.More+len(r.Updated) || got.Updated[0].More == 0 {
		t.Errorf("%d bytes, %d images and %d more: %v", len(r.String()), len(got.Updated), got.More, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Of("x", changes(3), nil, nil).String())
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			return
		}
		if len(r.String()) > maxText && len(r.Updated) > 0 {
			t.Errorf("%q: %d bytes", text, len(r.String()))
		}
	})
}

// The library makes a line of an error of each pair of equal keys: of these, 3 GB.
func TestEqualKeysTakeLittleMemory(t *testing.T) {
	n := allocation.Bytes(func() {
		if _, err := Parse(strings.Repeat("a: 1\n", 10_000)); err == nil {
			t.Error("no error")
		}
	})
	if n > 32<<20 {
		t.Errorf("%d MiB were allocated", n>>20)
	}
}
