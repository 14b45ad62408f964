// Package artifact holds the content-addressed artifact store: trees, deterministic archives, HTTP serving and retention.
// It knows no kind and no controller.
package artifact

import "io/fs"

// Tree is a read-only view of a fetched revision. It is safe for concurrent use, and shared by every consumer.
//
// Names follow io/fs: slash-separated, relative, "." is the root. Files that the source ignores are absent, so that a
// Tree and its archive hold the same. Open, Stat and ReadFile follow symlinks that stay inside the tree and fail with
// fs.ErrInvalid on one that leads out; Lstat, ReadLink and ReadDir do not follow. Reads are lazy: making a Tree, listing
// it and asking for IDs must not read file contents.
type Tree interface {
	fs.FS
	fs.StatFS
	fs.ReadFileFS
	fs.ReadDirFS
	fs.ReadLinkFS

	// ID identifies the content and mode of what stands at name, without reading it: equal IDs mean equal content, for a
	// directory of everything below it. Symlinks are not followed. An absent name gives fs.ErrNotExist.
	ID(name string) (string, error)
}
