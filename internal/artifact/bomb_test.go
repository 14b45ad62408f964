package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// zeros is a reader of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// bomb returns an archive of files of zero bytes.
func bomb(t *testing.T, files int, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := range files {
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("f%d", i), Mode: 0o644, Size: size}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(w, zeros{}, size); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// deep returns an archive of n files, each of which is in 200 directories of its own.
func deep(t *testing.T, n int) []byte {
	headers := make([]tar.Header, n)
	for i := range headers {
		headers[i] = tar.Header{Name: fmt.Sprintf("%d%s/f", i, strings.Repeat("/d", 199)), Mode: 0o644}
	}
	return packed(t, headers...)
}

func TestAnArchiveIsRefusedBeforeItTakesTheMemoryOfOthers(t *testing.T) {
	for name, b := range map[string][]byte{
		"a large file":       bomb(t, 1, 20<<20),
		"files":              bomb(t, 20, 1<<20),
		"many small files":   bomb(t, 15_000, 0),
		"many directories":   deep(t, 100),
		"a header that lies": bomb(t, 1, 20<<20)[:1000],
	} {
		budget := guard.NewBudget(16 << 20)
		_, err := ReadArchive(guard.WithBudget(context.Background(), budget), bytes.NewReader(b))
		if fault.Reason(err, "") != guard.ReasonTooLarge {
			t.Errorf("%s: %v", name, err)
		}
		if used := budget.Used(); used != 0 {
			t.Errorf("%s: %d bytes are still used", name, used)
		}
	}
}

func TestATreeHoldsItsMemoryWhileItIsUsed(t *testing.T) {
	budget := guard.NewBudget(16 << 20)
	ctx := guard.WithBudget(context.Background(), budget)
	tree, err := ReadArchive(ctx, bytes.NewReader(bomb(t, 10, 1<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if used := budget.Used(); used < 10<<20 {
		t.Errorf("%d bytes are used", used)
	}
	if size := tree.memorySize(); size < 10<<20 {
		t.Errorf("the tree has %d bytes", size)
	}
	tree = nil //nolint:ineffassign,wastedassign // its memory is given back
	if _, err := ReadArchive(ctx, bytes.NewReader(bomb(t, 10, 1<<20))); err != nil {
		t.Errorf("the memory of a tree that is not used was not given back: %v", err)
	}
}
