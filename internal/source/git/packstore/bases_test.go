package packstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// writerFunc is a writer that passes on what a function accepts.
type writerFunc struct {
	io.Writer
	accept func(n int) error
}

func (w writerFunc) Write(p []byte) (int, error) {
	if err := w.accept(len(p)); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// TestBasesAreBounded adds a pack of a few kilobytes whose deltas name bases of 20 MiB.
func TestBasesAreBounded(t *testing.T) {
	const size = 1 << 20
	base := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(base) // never fails
	first, second := []Object{{Kind: plumbing.BlobObject, Data: base}}, []Object{}
	for i := range 20 {
		turned := append(bytes.Clone(base[(i+1)<<10:]), base[:(i+1)<<10]...)
		first = append(first, Object{Data: Delta(base, turned), Base: plumbing.ComputeHash(plumbing.BlobObject, base)})
		second = append(second, Object{Data: Delta(turned, append(bytes.Clone(turned), 'x')),
			Base: plumbing.ComputeHash(plumbing.BlobObject, turned)})
	}
	var thin bytes.Buffer
	if err := Encode(&thin, second); err != nil {
		t.Fatal(err)
	}
	errFull := errors.New("full")
	for name, c := range map[string]struct {
		bases, storage int64
		canceled       bool
		want           error
		most           int64 // that is written
	}{
		"storage":         {storage: 5 * size, want: errFull, most: 5 * size},
		"size of a pack":  {bases: 5 * size, want: ErrMalformed, most: 7 * size},
		"canceled":        {canceled: true, want: context.Canceled, most: 2 * size},
		"all bases allow": {bases: 22 * size, storage: 22 * size, most: 22 * size},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			if err := s.Put(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			written := int64(0)
			err := s.Add(ctx, bytes.NewReader(thin.Bytes()), Room{Bases: c.bases, Writer: func(w io.Writer) io.Writer {
				return writerFunc{w, func(n int) error {
					if c.canceled {
						cancel()
					}
					if c.storage > 0 && written+int64(n) > c.storage {
						return errFull
					}
					written += int64(n)
					return nil
				}}
			}})
			if !errors.Is(err, c.want) || c.want == nil && err != nil || written > c.most {
				t.Errorf("got %v after %d bytes, want %v after at most %d", err, written, c.want, c.most)
			}
			want := 2 // files
			if c.want == nil {
				want = 4
			}
			if files, err := os.ReadDir(s.dir); err != nil || len(files) != want {
				t.Errorf("the store has %d files, want %d: %v", len(files), want, err)
			}
		})
	}
}
