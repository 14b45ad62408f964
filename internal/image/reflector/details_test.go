package reflector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/image/store"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestDetailsAreBounded checks that labels of many tags take no more memory than is allowed, and no more than was taken
// from the budget.
func TestDetailsAreBounded(t *testing.T) {
	ctx := guard.WithBudget(t.Context(), guard.NewBudget(1<<30))
	repository := &store.Repository{Pages: []store.Page{{}}}
	const count = 3000
	for i := range count {
		repository.Pages[0].Tags = append(repository.Pages[0].Tags, policy.Tag{Name: fmt.Sprint(i)})
	}
	lease, err := guard.BudgetOf(ctx).Acquire(ctx, "tags", repository.Memory())
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", int(store.MaxMemory()/count*2))
	read := func(name string) policy.Tag {
		return policy.Tag{Name: name, Digest: "sha256:1", Labels: map[string]string{"a": text}}
	}
	d := &details{repository: "example.com/app", lease: lease, memory: repository.Memory()}
	var last error
	for i := range repository.Pages[0].Tags {
		tag := &repository.Pages[0].Tags[i]
		err := d.set(ctx, tag, read(tag.Name))
		if tag.Known() == (err != nil) {
			t.Fatalf("tag %d has details: %t, with error %v", i, tag.Known(), err)
		}
		if err != nil {
			last = err
		}
		if now := repository.Memory(); err == nil && now > lease.Bytes() {
			t.Fatalf("%d bytes of memory, but only %d are taken", now, lease.Bytes())
		}
	}
	if now := repository.Memory(); now > store.MaxMemory() || now != d.memory || d.done < count/3 {
		t.Errorf("%d tags take %d bytes, counted as %d", d.done, now, d.memory)
	}
	want := "the tags of 'example.com/app' and their labels and platforms take more than"
	if f := fault.As(last); f == nil || !f.Terminal || !strings.Contains(last.Error(), want) {
		t.Errorf("got %v, want %q", last, want)
	}

	t.Log("a tag that moved to an image with more labels loses those from before")
	tag := &repository.Pages[0].Tags[0]
	moved := read(tag.Name)
	moved.Labels["b"] = text + text
	if err := d.set(ctx, tag, moved); err == nil || tag.Known() || repository.Memory() != d.memory {
		t.Errorf("%v, known %t, %d bytes, counted as %d", err, tag.Known(), repository.Memory(), d.memory)
	}
}
