package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// latestPrefix precedes the digest in a revision that is derived from the content.
const latestPrefix = "latest@"

// Put stores the tree as the artifact of a revision, and keeps the tree for [Store.Tree]. Current is the current
// artifact of the object, or nil if it has none. If the store already has an undamaged artifact of this tree and
// revision, nothing is written. An empty revision means latest@<digest of the archive>, so that the same content has
// the same revision.
func (s *Store) Put(ctx context.Context, key Key, tree *Tree, revision string, current *meta.Artifact) (*meta.Artifact,
	error) {
	if s.noLinks {
		tree = tree.WithoutLinks()
	}
	if err := tree.Check(); err != nil {
		return nil, fault.New(meta.StorageOperationFailedReason, "%s cannot be an artifact", named(revision)).
			Because(err).
			WithHint("Rename the file. The last artifact stays available").Final()
	}
	relative := path.Join(key.dir(), fileName(revision, tree.root.ID, suffix))
	if revision == "" {
		relative = s.lastOf(key, tree)
	}
	a, err := s.put(ctx, key, revision, current, s.orWithLess(key, func() (string, stamp, error) {
		if st, err := s.check(relative); err == nil {
			return relative, st, nil
		}
		u, err := s.prepareTree(ctx, key, revision, tree)
		if err != nil {
			return "", stamp{}, err
		}
		if revision == "" {
			return s.placeNew(u, key, latestPrefix+u.sidecar.Digest, suffix)
		}
		st, err := s.place(u, relative)
		return relative, st, err
	}))
	if err != nil {
		return nil, err
	}
	s.register(key, *a, tree)
	return a.DeepCopy(), nil
}

// PutFile stores a file unchanged, such as a chart or an index, as the artifact of a revision. Ext is .tar.gz, .tgz or
// .yaml. Content of more than 1 GiB is an error. If the store already has an undamaged file with this content and
// revision, that file is kept.
func (s *Store) PutFile(ctx context.Context, key Key, ext string, content io.Reader, revision string,
	current *meta.Artifact) (*meta.Artifact, error) {
	a, err := s.put(ctx, key, revision, current, func() (string, stamp, error) {
		if extensions[ext] == "" {
			return "", stamp{}, fmt.Errorf("the extension '%s' is not supported", ext)
		}
		u, err := s.prepare(key, revision, func(w io.Writer) ([]segment, error) {
			return nil,
				copyAtMost(ctx, w, content, s.maxFile)
		})
		if err != nil {
			s.makeRoomAfter(key, err) // for the next attempt; the content cannot be read twice
			return "", stamp{}, err
		}
		return s.placeNew(u, key, revision, ext)
	})
	if err != nil {
		return nil, err
	}
	s.register(key, *a, nil)
	return a.DeepCopy(), nil
}

// put calls write, which stores a file and returns its path, uploads the file, and returns its artifact.
func (s *Store) put(ctx context.Context, key Key, revision string, current *meta.Artifact,
	write func() (string, stamp, error)) (*meta.Artifact, error) {
	err := errors.Join(key.check(), ctx.Err())
	var relative string
	var st stamp
	if err == nil {
		relative, st, err = write()
	}
	updated, moved := s.clock.Now(), true
	if err == nil && current != nil && current.Path == relative && current.Digest == st.digest {
		updated, moved = current.LastUpdateTime.Time, false
	} else if err == nil { // also if an earlier revision becomes current again
		err = s.root.Chtimes(relative, updated, updated)
	}
	if err != nil {
		return nil, fault.New(meta.StorageOperationFailedReason, "cannot store the artifact of %s", named(revision)).
			Because(err).
			WithHint("%s. It is retried automatically, and the last artifact stays available", s.advice(err))
	}
	if err := s.remote.upload(ctx, relative, st, moved); err != nil {
		return nil, err
	}
	if revision == "" {
		revision = latestPrefix + st.digest
	}
	size := st.info.Size()
	a := &meta.Artifact{
		Path: relative, URL: s.Address(relative), Revision: revision,
		Digest: st.digest, Checksum: strings.TrimPrefix(st.digest, "sha256:"), Size: &size,
		LastUpdateTime: meta.TimeOf(updated.Truncate(time.Second)),
	}
	if current != nil && current.Path == relative {
		a.Metadata = current.Metadata
	}
	return a, nil
}

// lastOf returns the path of the artifact that was last put under the key. It returns an empty string if that artifact
// has another tree.
func (s *Store) lastOf(key Key, tree *Tree) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.trees[key.dir()]; r.id == tree.root.ID {
		return r.artifact.Path
	}
	return ""
}

// placeNew moves a file to the path for its revision and digest, unless an undamaged file already exists there.
func (s *Store) placeNew(u *unfinished, key Key, revision, ext string) (string, stamp, error) {
	relative := path.Join(key.dir(), fileName(revision, u.sidecar.Digest, ext))
	if st, err := s.check(relative); err == nil {
		return relative, st, u.remove()
	}
	st, err := s.place(u, relative)
	return relative, st, err
}

// Address returns the URL for the path of an artifact.
func (s *Store) Address(relative string) string {
	return fmt.Sprintf("%s://%s/%s", s.scheme, s.host, relative)
}

// register records the current artifact of the key, and keeps its tree. A tree in memory is kept in a bounded cache.
func (s *Store) register(key Key, a meta.Artifact, tree *Tree) {
	r := registered{artifact: a}
	if tree != nil {
		r.id = tree.root.ID
		if tree.inMemory() {
			s.unpacked.keep(key, a.Digest, tree)
		} else {
			r.tree = tree
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trees[key.dir()] = r
}

// prepareTree writes the archive of the tree. It copies unchanged segments from the newest archive of the key.
func (s *Store) prepareTree(ctx context.Context, key Key, revision string, tree *Tree) (*unfinished, error) {
	from, closeFrom := s.previous(key)
	defer closeFrom()
	return s.prepare(key, revision, func(w io.Writer) ([]segment, error) { return writeArchive(ctx, w, tree, from) })
}

// copyAtMost copies r to w. It stops when ctx is done, and returns an error if r has more than most bytes.
func copyAtMost(ctx context.Context, w io.Writer, r io.Reader, most int64) error {
	limited := &io.LimitedReader{R: r, N: most + 1}
	stop := guard.AfterDone(ctx, "copying a file", func() {
		if c, ok := r.(io.Closer); ok {
			_ = c.Close() // unblocks a pending read
		}
	})
	defer stop()
	_, err := io.Copy(w, limited)
	if err == nil && limited.N <= 0 {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return errors.Join(err, ctx.Err())
}

func named(revision string) string {
	if revision == "" {
		return "this content"
	}
	return "revision " + revision
}

// fileName returns the name of a file for the revision and the ID or digest of its content.
func fileName(revision, content, ext string) string {
	sum := sha256.Sum256([]byte(revision + "\x00" + content))
	commit := revision[strings.LastIndexAny(revision, ":@/")+1:]
	return fmt.Sprintf("%s-%s%s", safe(commit), hex.EncodeToString(sum[:8]), ext)
}

// safe replaces the characters that are not allowed in a file name.
func safe(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, s[:min(len(s), 64)])
}
