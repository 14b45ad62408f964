package state

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestInventoriesOfATreeAreBounded(t *testing.T) {
	r := &inventoryReader{}
	for range 3 {
		o := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{
			"inventory": map[string]any{"entries": make([]any, MaxEntries/2+10)}}}}
		r.shorten(o)
	}
	r.shorten(&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"inventory": []any{1, 2}}}})
	r.shorten(&unstructured.Unstructured{Object: map[string]any{"status": "x"}})
	if r.entries != MaxEntries || r.omitted != MaxEntries/2+32 {
		t.Errorf("%d entries, %d omitted", r.entries, r.omitted)
	}
}
