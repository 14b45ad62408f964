package packstore

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
)

// repository is a repository of the git program.
type repository struct {
	tb  testing.TB
	dir string
}

func newRepository(tb testing.TB) *repository {
	tb.Helper()
	r := &repository{tb, tb.TempDir()}
	r.git("", "init", "-q", "-b", "main", ".")
	return r
}

func (r *repository) git(stdin string, args ...string) []byte {
	r.tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = r.dir, strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=t",
		"GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.tb.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return out
}

// commit writes n similar files with the text, and returns the commit.
func (r *repository) commit(n int, text string) string {
	r.tb.Helper()
	for i := range n {
		content := strings.Repeat(fmt.Sprintf("line of file %d\n", i), 200) + text
		if err := os.WriteFile(filepath.Join(r.dir, fmt.Sprintf("f%d", i)), []byte(content), 0o600); err != nil {
			r.tb.Fatal(err)
		}
	}
	r.git("", "add", "-A")
	r.git("", "commit", "-q", "-m", text)
	return strings.TrimSpace(string(r.git("", "rev-parse", "HEAD")))
}

// pack returns a pack of revs, as a server sends it for a fetch.
func (r *repository) pack(revs string, options ...string) []byte {
	r.tb.Helper()
	return r.git(revs, append([]string{"pack-objects", "--revs", "--stdout", "-q"}, options...)...)
}

func openStore(tb testing.TB) *Store {
	tb.Helper()
	return openStoreWith(tb, &Shared{})
}

func openStoreWith(tb testing.TB, shared *Shared) *Store {
	tb.Helper()
	s, err := Open(filepath.Join(tb.TempDir(), "pack"), shared)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func add(tb testing.TB, s *Store, pack []byte) {
	tb.Helper()
	if err := s.Add(context.Background(), bytes.NewReader(pack), Room{}); err != nil {
		tb.Fatal(err)
	}
}

// checkObjects checks that the store contains every object of the revision.
func checkObjects(t *testing.T, s *Store, r *repository, revision string) {
	t.Helper()
	for line := range strings.Lines(string(r.git("", "rev-list", "--objects", "--no-object-names", revision))) {
		id := strings.TrimSpace(line)
		kind, data, err := s.Read(plumbing.NewHash(id))
		if err != nil {
			t.Fatal(err)
		}
		size, err := s.Size(plumbing.NewHash(id))
		if err != nil || size != int64(len(data)) {
			t.Errorf("the size of %s is %d, %v, want %d", id, size, err, len(data))
		}
		if want := r.git("", "cat-file", kind.String(), id); !bytes.Equal(data, want) {
			t.Errorf("%s differs", id)
		}
	}
}

func TestReadsPacksOfGit(t *testing.T) {
	r := newRepository(t)
	first := r.commit(20, "one")
	second := r.commit(20, "two")
	for name, options := range map[string][]string{
		"deltas by offset":  {"--delta-base-offset", "--window=50"},
		"deltas by hash":    {"--window=50"},
		"no deltas":         {"--window=0"},
		"other compression": {"--compression=0", "--delta-base-offset"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			add(t, s, r.pack(second+"\n", options...))
			checkObjects(t, s, r, second)
			r.git("", "verify-pack", packFile(t, s.dir))
		})
	}
	for name, options := range map[string][]string{
		"thin, deltas by offset": {"--thin", "--delta-base-offset"},
		"thin, deltas by hash":   {"--thin"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			add(t, s, r.pack(first+"\n", "--delta-base-offset"))
			thin := r.pack(second+"\n^"+first+"\n", options...)
			if err := openStore(t).Add(t.Context(), bytes.NewReader(thin), Room{}); !errors.Is(err, ErrMalformed) {
				t.Errorf("a thin pack without its bases: got %v", err)
			}
			add(t, s, thin)
			checkObjects(t, s, r, second)
			again, err := Open(s.dir, &Shared{})
			if err != nil {
				t.Fatal(err)
			}
			checkObjects(t, again, r, second)
			packs, err := filepath.Glob(filepath.Join(s.dir, "*.pack"))
			if err != nil || len(packs) != 2 {
				t.Fatal(packs, err)
			}
			for _, p := range packs {
				r.git("", "verify-pack", p) // readable on its own
			}
		})
	}
}

func TestDamageIsDetected(t *testing.T) {
	r := newRepository(t)
	commit := r.commit(50, "one")
	pack := r.pack(commit + "\n")
	change := func(file string, change func([]byte) []byte) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			t.Helper()
			name := strings.TrimSuffix(packFile(t, s.dir), packSuffix) + file
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, change(b), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	garbage := func(b []byte) []byte { return bytes.Repeat([]byte("x"), len(b)) }
	half := func(b []byte) []byte { return b[:len(b)/2] }
	middle := func(b []byte) []byte {
		for i := len(b) / 4; i < len(b)*3/4; i++ {
			b[i] ^= 0x55
		}
		return b
	}
	for name, damage := range map[string]func(*testing.T, *Store){
		"garbage pack":  change(packSuffix, garbage),
		"half a pack":   change(packSuffix, half),
		"empty pack":    change(packSuffix, func([]byte) []byte { return nil }),
		"changed pack":  change(packSuffix, middle),
		"garbage index": change(indexSuffix, garbage),
		"half an index": change(indexSuffix, half),
		"changed index": change(indexSuffix, middle),
		"missing index": func(t *testing.T, s *Store) {
			remove(t, strings.TrimSuffix(packFile(t, s.dir), packSuffix)+indexSuffix)
		},
		"index of another pack": change(indexSuffix, func(b []byte) []byte { b[len(b)-30] ^= 1; return b }),
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			add(t, s, pack)
			damage(t, s)
			again, err := Open(s.dir, &Shared{})
			for line := range strings.Lines(string(r.git("", "rev-list", "--objects", "--no-object-names", commit))) {
				if err == nil {
					_, _, err = again.Read(plumbing.NewHash(strings.TrimSpace(line)))
				}
			}
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotFound) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestOpenRemovesIncompleteFiles(t *testing.T) {
	r := newRepository(t)
	s := openStore(t)
	add(t, s, r.pack(r.commit(1, "one")+"\n"))
	for _, name := range []string{"tmp-1.pack", "tmp-2.idx", "index-without-pack.idx"} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	again, err := Open(s.dir, &Shared{})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil || len(entries) != 2 || again.Len() != 1 {
		t.Errorf("got files %v, %v", entries, err)
	}
}

func TestAddRejectsMalformedPacks(t *testing.T) {
	r := newRepository(t)
	good := r.pack(r.commit(3, "one") + "\n")
	changed := func(at int, b byte) []byte {
		c := bytes.Clone(good)
		c[at] ^= b
		return c
	}
	for name, pack := range map[string][]byte{
		"empty":              nil,
		"text":               []byte("<html>not a pack at all, but a page of some proxy on the way</html>"),
		"half a pack":        good[:len(good)/2],
		"more after the end": append(bytes.Clone(good), good...),
		"wrong checksum":     changed(len(good)-1, 1),
		"wrong byte":         changed(len(good)/2, 1),
		"too many objects":   changed(8, 0xff),
		"one object less":    changed(11, 1),
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			if err := s.Add(t.Context(), bytes.NewReader(pack), Room{}); !errors.Is(err, ErrMalformed) {
				t.Errorf("got %v", err)
			}
			if entries, err := os.ReadDir(s.dir); err != nil || len(entries) > 0 {
				t.Errorf("files remain: %v, %v", entries, err)
			}
		})
	}
	t.Run("canceled context", func(t *testing.T) {
		s := openStore(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Add(ctx, bytes.NewReader(good), Room{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestRemovedFilesStayReadable(t *testing.T) {
	r := newRepository(t)
	commit := r.commit(500, "one")
	s := openStore(t)
	add(t, s, r.pack(commit+"\n"))
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	checkObjects(t, s, r, commit)
}

func FuzzAdd(f *testing.F) {
	r := newRepository(f)
	first := r.commit(3, "one")
	second := r.commit(3, "two")
	f.Add(r.pack(first + "\n"))
	f.Add(r.pack(second+"\n^"+first+"\n", "--thin"))
	f.Add(r.pack(second+"\n", "--delta-base-offset"))
	base := r.pack(first + "\n")
	f.Fuzz(func(t *testing.T, pack []byte) {
		s := openStore(t)
		add(t, s, base)
		if err := s.Add(t.Context(), bytes.NewReader(withChecksum(pack)), Room{}); err != nil {
			return
		}
		if _, err := Open(s.dir, &Shared{}); err != nil {
			t.Errorf("cannot open a pack that was added: %v", err)
		}
		for _, p := range s.snapshot() {
			for i := range p.count {
				var h plumbing.Hash
				if _, err := p.index.ReadAt(h[:], fanoutEnd+int64(i)*hashSize); err != nil {
					t.Fatal(err)
				}
				if _, _, err := s.Read(h); err != nil {
					t.Errorf("cannot read an object of a pack that was added: %v", err)
				}
			}
		}
	})
}

// withChecksum returns a pack with the right checksum, so that Add checks its content.
func withChecksum(pack []byte) []byte {
	if len(pack) < hashSize {
		return pack
	}
	body := bytes.Clone(pack[:len(pack)-hashSize])
	sum := sha1.Sum(body)
	return append(body, sum[:]...)
}

func FuzzOpen(f *testing.F) {
	r := newRepository(f)
	s := openStore(f)
	commit := plumbing.NewHash(r.commit(3, "one"))
	add(f, s, r.pack(commit.String()+"\n"))
	name := strings.TrimSuffix(packFile(f, s.dir), packSuffix)
	pack, err := os.ReadFile(name + packSuffix)
	if err != nil {
		f.Fatal(err)
	}
	index, err := os.ReadFile(name + indexSuffix)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pack, index)
	f.Fuzz(func(t *testing.T, pack, index []byte) {
		dir := t.TempDir()
		for suffix, b := range map[string][]byte{packSuffix: pack, indexSuffix: index} {
			if err := os.WriteFile(filepath.Join(dir, "pack-x"+suffix), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Open(dir, &Shared{})
		if err != nil {
			return
		}
		if _, data, err := s.Read(commit); err == nil && plumbing.ComputeHash(plumbing.CommitObject, data) != commit {
			t.Error("Read returned another object")
		}
		_, _ = s.Size(commit) // must not panic
	})
}

func packFile(tb testing.TB, dir string) string {
	tb.Helper()
	packs, err := filepath.Glob(filepath.Join(dir, "*"+packSuffix))
	if err != nil || len(packs) == 0 {
		tb.Fatal("no pack", err)
	}
	return packs[0]
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

func TestOpenFilesAreLimited(t *testing.T) {
	r := newRepository(t)
	head := r.commit(2, "text")
	pack := r.pack(head)
	shared, stores := &Shared{}, make([]*Store, maxHandles)
	for i := range stores {
		stores[i] = openStoreWith(t, shared)
		add(t, stores[i], pack)
	}
	for range 2 {
		for _, s := range stores {
			if _, _, err := s.Read(plumbing.NewHash(head)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(shared.files.open); n != maxHandles {
		t.Errorf("%d files are open, want %d", n, maxHandles)
	}
	detached := stores[0]
	if err := errors.Join(detached.Detach(), os.RemoveAll(detached.dir)); err != nil {
		t.Fatal(err)
	}
	for _, s := range stores {
		if _, _, err := s.Read(plumbing.NewHash(head)); err != nil {
			t.Fatal(err)
		}
	}
}
