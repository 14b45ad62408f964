package artifact

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
)

// WriteArchive writes the tree to w as a .tar.gz for others than the store. The same files give the same bytes. They
// are the bytes that `flux push artifact` writes for files of these modes, so that `flux diff artifact`, which compares
// digests, finds no difference: one gzip stream with an entry for every directory, also for the root, in the order of a
// walk. Unlike Flux, it has the symlinks that do not lead out of the tree.
func WriteArchive(ctx context.Context, w io.Writer, t *Tree) error {
	z := gzip.NewWriter(w)
	p := &publisher{ctx: ctx, tar: tar.NewWriter(z), tree: t}
	if err := p.write(".", &Entry{Mode: directoryMode, Dir: t.root}); err != nil {
		return err
	}
	return errors.Join(p.tar.Close(), z.Close())
}

// publisher writes one archive.
type publisher struct {
	ctx  context.Context
	tar  *tar.Writer
	tree *Tree
}

// write writes an entry and what is below it. The header has no format, so that tar chooses the simplest one, and no
// slash after the name of a directory.
func (p *publisher) write(name string, e *Entry) error {
	if err := p.ctx.Err(); err != nil || p.tree.leadsOut(name, e) {
		return err
	}
	if err := writeEntry(p.ctx, p.tar, p.tree.content, e, tar.Header{Name: name},
		func() error { return nil }); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if e.Dir == nil {
		return nil
	}
	prefix := name + "/"
	if name == "." {
		prefix = ""
	}
	for i := range e.Dir.Entries {
		child := &e.Dir.Entries[i]
		if err := p.write(prefix+child.Name, child); err != nil {
			return err
		}
	}
	return nil
}
