package artifact

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
)

func archiveOf(t testing.TB, tree *Tree, from *previous) ([]byte, []segment) {
	t.Helper()
	var b bytes.Buffer
	segments, err := writeArchive(t.Context(), &b, tree, from)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), segments
}

// contents returns the contents of a tree, in the form that FromMap takes.
func contents(t testing.TB, tree *Tree) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := tree.Walk(func(name string, e *Entry) error {
		if e.Mode.IsDir() {
			out[name+"/"] = ""
			return nil
		}
		b, err := tree.content.Read(e.ID)
		out[name] = string(b)
		if e.Mode&fs.ModeSymlink != 0 {
			out[name] = "symlink:" + string(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// manyFiles returns n files in some directories. Their contents depend on the seed.
func manyFiles(n int, seed uint64) map[string]string {
	r := rand.New(rand.NewPCG(seed, 0))
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("dir%d/sub%d/file%d.yaml", r.IntN(7), r.IntN(5), i)] = strings.Repeat(fmt.Sprintf("line %d\n",
			r.Int()), r.IntN(40))
	}
	return files
}

func TestTreeIsAFileSystem(t *testing.T) {
	tree := FromMap(map[string]string{"a.yaml": "a", "dir/b.yaml": "bb", "dir/sub/c": "", "link": "symlink:dir/b.yaml",
		"dir/up": "symlink:../a.yaml"})
	if err := fstest.TestFS(tree, "a.yaml", "dir/b.yaml", "dir/sub/c", "link", "dir/up"); err != nil {
		t.Fatal(err)
	}
}

func TestTreeFollowsNoLinkOutOfItself(t *testing.T) {
	tree := FromMap(map[string]string{
		"up": "symlink:../x", "abs": "symlink:/etc/passwd", "dir/far": "symlink:../../x", "loop": "symlink:loop",
		"chain": "symlink:up",
		"self":  "symlink:.", "deep": "symlink:" + strings.Repeat("self/", 100) + "up",
	})
	for _, name := range []string{"up", "abs", "dir/far", "loop", "chain", "up/below", "deep", "self/abs"} {
		if _, err := tree.ReadFile(name); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: got %v, want fs.ErrInvalid", name, err)
		}
		if _, err := tree.Content(name); err == nil {
			t.Errorf("got content for %s", name)
		}
	}
}

func TestArchiveIsAFunctionOfItsTree(t *testing.T) {
	before := manyFiles(500, 1)
	names := slices.Sorted(maps.Keys(before))
	for reason, change := range map[string]func(map[string]string){
		"nothing changed":            func(map[string]string) {},
		"a file changed":             func(m map[string]string) { m[names[250]] = "changed" },
		"the first and last changed": func(m map[string]string) { m[names[0]], m[names[499]] = "x", "y" },
		"a file was added":           func(m map[string]string) { m["dir3/sub2/new.yaml"] = "new" },
		"a directory was removed": func(m map[string]string) {
			maps.DeleteFunc(m, func(n, _ string) bool { return strings.HasPrefix(n, "dir2/") })
		},
		"an empty directory was added": func(m map[string]string) { m["dir3/empty/"], m["zero/deep/"] = "", "" },
		"a file became a symlink":      func(m map[string]string) { m[names[10]] = "symlink:file" },
		"all files were removed":       func(m map[string]string) { clear(m) },
		"a file became a directory":    func(m map[string]string) { delete(m, names[3]); m[names[3]+"/below"] = "x" },
		"two files were renamed": func(m map[string]string) {
			m["a"], m["b"] = m[names[1]],
				m[names[2]]
			delete(m, names[1])
		},
	} {
		t.Run(reason, func(t *testing.T) {
			old, segments := archiveOf(t, FromMap(before), nil)
			after := maps.Clone(before)
			change(after)
			from := &previous{ReaderAt: bytes.NewReader(old), segments: map[string]segment{}}
			for _, s := range segments {
				from.segments[s.Key] = s
			}
			fresh, _ := archiveOf(t, FromMap(after), nil)
			again, _ := archiveOf(t, FromMap(after), nil)
			reused, _ := archiveOf(t, FromMap(after), from)
			if !bytes.Equal(fresh, again) {
				t.Error("two archives of the same tree differ")
			}
			if !bytes.Equal(fresh, reused) {
				t.Error("the archive with copied segments differs from one that was written")
			}
			read, err := ReadArchive(context.Background(), bytes.NewReader(reused))
			if err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(contents(t, read), after) {
				t.Error("the archive has other contents")
			}
			if read.Root().ID != FromMap(after).Root().ID {
				t.Error("the tree that was read has another ID")
			}
		})
	}
}

func TestArchiveCostsWhatChanged(t *testing.T) {
	files := manyFiles(2000, 2)
	old, segments := archiveOf(t, FromMap(files), nil)
	from := &previous{ReaderAt: bytes.NewReader(old), segments: map[string]segment{}}
	for _, s := range segments {
		from.segments[s.Key] = s
	}
	changed := slices.Sorted(maps.Keys(files))[1000]
	files[changed] = "changed"
	tree := FromMap(files)
	reads := &countingContent{Content: tree.content}
	tree.content = reads
	archiveOf(t, tree, from)
	if n := reads.n.Load(); n == 0 || n > 8*segmentFiles {
		t.Errorf("%d of %d files were read after 1 file changed", n, len(files))
	}
}

type countingContent struct {
	Content
	n atomic.Int64
}

func (c *countingContent) Read(id string) ([]byte, error) {
	c.n.Add(1)
	return c.Content.Read(id)
}

func TestArchiveSaysNothingOfTimeAndOwner(t *testing.T) {
	tree := newMemoryTree(map[string]file{"run.sh": {mode: 0o755, data: []byte("#!")}, "a": {mode: 0o644, data: nil},
		"link": {mode: fs.ModeSymlink | 0o777, data: []byte("a")}})
	b, _ := archiveOf(t, tree, nil)
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("%s: %+v", h.Name, h)
		}
		got = append(got, fmt.Sprintf("%s %o %s", h.Name, h.Mode, h.Linkname))
	}
	if want := []string{"a 644 ", "link 777 a", "run.sh 755 "}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestArchiveIsReadByTar(t *testing.T) {
	files := manyFiles(300, 3)
	files["link"] = "symlink:dir0"
	files[strings.Repeat("long/", 60)+"name"] = "x"
	b, _ := archiveOf(t, FromMap(files), nil)
	dir := t.TempDir()
	archive := filepath.Join(dir, "a.tar.gz")
	if err := os.WriteFile(archive, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-xzf", archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	for name, want := range files {
		if strings.HasPrefix(want, "symlink:") {
			continue
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestArchiveLeavesOutLinksThatLeadOut(t *testing.T) {
	b, _ := archiveOf(t, FromMap(map[string]string{"a": "x", "out": "symlink:../x", "abs": "symlink:/etc",
		"in": "symlink:a", "nowhere": "symlink:b"}), nil)
	tree, err := ReadArchive(context.Background(), bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := contents(t, tree), map[string]string{"a": "x", "in": "symlink:a",
		"nowhere": "symlink:b"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// packed returns a .tar.gz of the headers. A file with a size has that many bytes.
func packed(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestReadArchiveRefusesWhatIsNotSafe(t *testing.T) {
	for reason, c := range map[string]struct {
		headers []tar.Header
		says    string
	}{
		"a path out":         {headers: []tar.Header{{Name: "../x", Typeflag: tar.TypeReg}}, says: "leads out"},
		"a path out, hidden": {headers: []tar.Header{{Name: "a/../../x", Typeflag: tar.TypeReg}}, says: "leads out"},
		"an absolute path":   {headers: []tar.Header{{Name: "/etc/passwd", Typeflag: tar.TypeReg}}, says: "leads out"},
		"the root as a file": {headers: []tar.Header{{Name: ".", Typeflag: tar.TypeReg}}, says: "leads out"},
		"a symlink out": {headers: []tar.Header{{Name: "a/b", Typeflag: tar.TypeSymlink, Linkname: "../../x"}},
			says: "symlink"},
		"an absolute symlink": {headers: []tar.Header{{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc"}},
			says: "symlink"},
		"a hard link out": {headers: []tar.Header{{Name: "a", Typeflag: tar.TypeLink, Linkname: "../b"}},
			says: "hard link"},
		"a hard link to nothing": {headers: []tar.Header{{Name: "a", Typeflag: tar.TypeLink, Linkname: "b"}},
			says: "hard link"},
		"a hard link to a link": {headers: []tar.Header{{Name: "b", Typeflag: tar.TypeSymlink, Linkname: "c"},
			{Name: "a", Typeflag: tar.TypeLink, Linkname: "b"}}, says: "hard link"},
		"an archive bomb of hard links": {headers: []tar.Header{{Name: "a", Size: 600},
			{Name: "b", Typeflag: tar.TypeLink, Linkname: "a"}}, says: "more than 1000 bytes"},
		"a name that is not UTF-8": {headers: []tar.Header{{Name: "a\xff", Format: tar.FormatGNU}},
			says: "UTF-8"},
		"a device":       {headers: []tar.Header{{Name: "a", Typeflag: tar.TypeChar}}, says: "type"},
		"a block device": {headers: []tar.Header{{Name: "a", Typeflag: tar.TypeBlock}}, says: "type"},
		"a fifo":         {headers: []tar.Header{{Name: "a", Typeflag: tar.TypeFifo}}, says: "type"},
		"too many bytes": {headers: []tar.Header{{Name: "a", Size: 600}, {Name: "b", Size: 600}},
			says: "more than 1000 bytes"},
		"too many entries": {headers: []tar.Header{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}},
			says: "more than 3 entries"},
		"a directory that is too deep": {headers: []tar.Header{{Name: "a/b/c/d/e/f"}}, says: "too long"},
		"a name that is too long":      {headers: []tar.Header{{Name: strings.Repeat("a", 60)}}, says: "too long"},
		"a link target that is too long": {headers: []tar.Header{{Name: "a", Typeflag: tar.TypeSymlink,
			Linkname: strings.Repeat("a", 60)}}, says: "too long"},
	} {
		t.Run(reason, func(t *testing.T) {
			l := limits{bytes: 1000, entries: 3, depth: 4, name: 50}
			if _, err := l.read(t.Context(), bytes.NewReader(packed(t, c.headers...)), nil); err == nil ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("got error %v, want it to contain %q", err, c.says)
			}
		})
	}
}

func TestReadArchiveEndsBombsEarly(t *testing.T) {
	l := limits{bytes: 1 << 20, entries: 1000, depth: 64, name: 512}
	for what, b := range map[string][]byte{
		"zeros":         packed(t, tar.Header{Name: "a", Size: 64 << 20}),
		"not a tar":     gzipped(t, make([]byte, 64<<20)),
		"a sparse file": sparse(t, 1<<40),
		"headers that are": packed(t, slices.Repeat([]tar.Header{{Name: "a",
			PAXRecords: map[string]string{"comment": strings.Repeat("x", 512<<10)}}}, 64)...),
		"entries": packed(t, slices.Repeat([]tar.Header{{Name: "a"}}, 1001)...),
	} {
		r := &countingReader{Reader: bytes.NewReader(b)}
		if _, err := l.read(t.Context(), r, nil); what != "not a tar" &&
			(err == nil || !strings.Contains(err.Error(), "more than")) {
			t.Errorf("%s: got %v", what, err)
		}
		if r.n > 256<<10 {
			t.Errorf("%s: %d compressed bytes were read", what, r.n)
		}
	}
}

type countingReader struct {
	io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(data)
	must(t, errors.Join(err, z.Close()))
	return b.Bytes()
}

// sparse returns an archive of a sparse file with the size, which consists of one hole (PAX format 1.0).
func sparse(t testing.TB, size int64) []byte {
	t.Helper()
	dir := t.TempDir()
	file, archive := filepath.Join(dir, "hole"), filepath.Join(dir, "a.tar.gz")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, size))
	if out, err := exec.Command("tar", "--format=pax", "--sparse", "-czf", archive, "-C", dir, "hole").
		CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	b, err := os.ReadFile(archive)
	must(t, err)
	return b
}

func TestReadArchiveTakesWhatOthersWrite(t *testing.T) {
	b := packed(t,
		tar.Header{Name: "pax_global_header", Typeflag: tar.TypeXGlobalHeader,
			PAXRecords: map[string]string{"comment": "commit"}},
		tar.Header{Name: "./", Typeflag: tar.TypeDir}, tar.Header{Name: "./dir/", Typeflag: tar.TypeDir},
		tar.Header{Name: "./dir/a", Mode: 0o600}, tar.Header{Name: "b", Mode: 0o700},
		tar.Header{Name: "b", Mode: 0o644, Size: 1},
		tar.Header{Name: "hard", Typeflag: tar.TypeLink, Linkname: "./b"}, tar.Header{Name: "nested.tgz", Size: 2},
	)
	tree, err := ReadArchive(context.Background(), bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := contents(t, tree), map[string]string{"dir/a": "", "b": "\x00", "hard": "\x00",
		"nested.tgz": "\x00\x00"}; !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if info, err := tree.Stat("dir/a"); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v %v", info, err)
	}
}
