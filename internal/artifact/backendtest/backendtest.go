// Package backendtest contains the suite that every [artifact.Backend] must pass, against a real server. It is imported
// by tests only.
package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

// Suite is a backend to test.
type Suite struct {
	// Open returns a backend for the same empty storage at each call, as several replicas use it.
	Open func() artifact.Backend
	// Stop stops the server of the storage.
	Stop func()
	// Page is the maximum number of files in a response of the server. If it is 0, longer listings are not tested.
	Page int
	// Secrets are values that no error may contain.
	Secrets []string
}

// run is one run of a suite.
type run struct {
	Suite
	*testing.T
	artifact.Backend
}

// Run runs the suite. Its steps share the storage; each leaves it empty.
func (s Suite) Run(t *testing.T) {
	r := &run{Suite: s, T: t, Backend: s.Open()}
	r.missingFileDoesNotExist()
	r.otherReplicasReadWhatIsPut()
	r.putReplaces()
	r.failedPutStoresNothing()
	r.failedPutKeepsTheFile()
	r.deleteIsIdempotent()
	r.listMatchesPrefixes()
	r.listReturnsAllPages()
	r.concurrentPutsStoreWholeFiles()
	r.endedContextFails()
	s.Stop()
	r.stoppedServerFails()
}

func (r *run) put(name, content string) {
	r.Helper()
	if err := r.Put(r.Context(), name, strings.NewReader(content), int64(len(content))); err != nil {
		r.Fatalf("Put %s: %v", name, err)
	}
}

// requireContent fails the test unless the backend has the file with the content.
func (r *run) requireContent(b artifact.Backend, name, want string) artifact.BackendFile {
	r.Helper()
	body, info, err := b.Get(r.Context(), name)
	if err != nil {
		r.Fatalf("Get %s: %v", name, err)
	}
	got, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		r.Fatalf("reading %s: %v", name, err)
	}
	if string(got) != want || info.Name != name || info.Size != int64(len(want)) {
		r.Fatalf("Get %s returned %d bytes and %+v, want %d bytes", name, len(got), info, len(want))
	}
	return info
}

// requireMissing fails the test unless the file does not exist.
func (r *run) requireMissing(name string) {
	r.Helper()
	body, _, err := r.Get(r.Context(), name)
	if err == nil {
		_ = body.Close() // only the missing error matters
	}
	if !errors.Is(err, fs.ErrNotExist) {
		r.Fatalf("Get of the missing file %s returned %v, want fs.ErrNotExist", name, err)
	}
}

// remove removes files, and fails the test unless none is left.
func (r *run) remove(names ...string) {
	r.Helper()
	for _, name := range names {
		if err := r.Delete(r.Context(), name); err != nil {
			r.Fatalf("Delete %s: %v", name, err)
		}
	}
	if left := r.list(""); len(left) > 0 {
		r.Fatalf("%d files are left: %v", len(left), left)
	}
}

// list returns the files with the prefix, by name.
func (r *run) list(prefix string) map[string]artifact.BackendFile {
	r.Helper()
	all, err := r.List(r.Context(), prefix)
	if err != nil {
		r.Fatalf("List %q: %v", prefix, err)
	}
	byName := map[string]artifact.BackendFile{}
	for _, f := range all {
		byName[f.Name] = f
	}
	if len(byName) != len(all) {
		r.Fatalf("List %q returned a file more than once: %v", prefix, all)
	}
	return byName
}

func (r *run) missingFileDoesNotExist() {
	r.requireMissing("kind/a/b/missing.tar.gz")
	if files := r.list("kind/"); len(files) != 0 {
		r.Errorf("an empty storage has %v", files)
	}
}

func (r *run) otherReplicasReadWhatIsPut() {
	large := strings.Repeat("0123456789abcdef", 1<<16)
	contents := map[string]string{"kind/a/b/small.yaml": "a: b\n", "kind/a/b/large.tgz": large}
	other := r.Open()
	var names []string
	for name, content := range contents {
		names = append(names, name)
		r.put(name, content)
		info := r.requireContent(other, name, content)
		if info.Modified.IsZero() || info.Modified.Nanosecond() != 0 {
			r.Errorf("%s was modified at %v, want whole seconds", name, info.Modified)
		}
		if listed := r.list(name)[name]; listed.Size != info.Size || !listed.Modified.Equal(info.Modified) {
			r.Errorf("List returned %+v, and Get %+v", listed, info)
		}
	}
	r.remove(names...)
}

func (r *run) putReplaces() {
	const name = "kind/a/b/file.yaml"
	for _, content := range []string{"the first, which is longer", "second", "second"} {
		r.put(name, content)
		r.requireContent(r, name, content)
	}
	r.remove(name)
}

// broken returns content of size bytes that cannot be read to its end.
func broken(size int64) map[string]io.Reader {
	half := bytes.Repeat([]byte("x"), int(size/2))
	return map[string]io.Reader{
		"a failing reader": io.MultiReader(bytes.NewReader(half), iotest.ErrReader(errors.New("the disk is damaged"))),
		"a short reader":   bytes.NewReader(half),
	}
}

func (r *run) failedPutStoresNothing() {
	const name, size = "kind/a/b/file.tgz", 1 << 20
	for why, content := range broken(size) {
		if err := r.Put(r.Context(), name, content, size); err == nil {
			r.Errorf("Put of %s succeeded", why)
		}
		r.requireMissing(name)
	}
	r.remove()
}

func (r *run) failedPutKeepsTheFile() {
	const name, size = "kind/a/b/file.tgz", 1 << 20
	r.put(name, "complete")
	for why, content := range broken(size) {
		if err := r.Put(r.Context(), name, content, size); err == nil {
			r.Errorf("Put of %s succeeded", why)
		}
		r.requireContent(r, name, "complete")
	}
	r.remove(name)
}

func (r *run) deleteIsIdempotent() {
	const name = "kind/a/b/file.yaml"
	r.put(name, "content")
	r.put(name+".index", "another")
	for range 2 {
		if err := r.Delete(r.Context(), name); err != nil {
			r.Errorf("Delete: %v", err)
		}
		r.requireMissing(name)
	}
	r.requireContent(r, name+".index", "another")
	r.remove(name + ".index")
}

func (r *run) listMatchesPrefixes() {
	names := []string{"kind/a/b/1.yaml", "kind/a/b/1.yaml.index", "kind/a/bc/1.yaml", "kind2/a/b/1.yaml"}
	for _, name := range names {
		r.put(name, name)
	}
	for prefix, want := range map[string][]string{
		"":            names,
		"kind":        names,
		"kind/":       names[:3],
		"kind/a/b":    names[:3],
		"kind/a/b/":   names[:2],
		"kind/a/c":    nil,
		"a/b/":        nil,
		"kind2/a/b/1": names[3:],
	} {
		got := r.list(prefix)
		for _, name := range want {
			if f, ok := got[name]; !ok || f.Size != int64(len(name)) {
				r.Errorf("List %q returned %v, want %s", prefix, got, name)
			}
		}
		if len(got) != len(want) {
			r.Errorf("List %q returned %d files, want %d", prefix, len(got), len(want))
		}
	}
	r.remove(names...)
}

func (r *run) listReturnsAllPages() {
	if r.Page == 0 {
		return
	}
	names := make([]string, r.Page+1)
	for i := range names {
		names[i] = fmt.Sprintf("kind/a/%d/file.yaml", i)
		r.put(names[i], "content")
	}
	if got := r.list("kind/a/"); len(got) != len(names) {
		r.Errorf("List returned %d files, want %d", len(got), len(names))
	}
	r.remove(names...)
}

func (r *run) concurrentPutsStoreWholeFiles() {
	const name, size, puts = "kind/a/b/file.yaml", 64 << 10, 8
	stored := make(chan error, puts)
	for i := range puts {
		go func() {
			stored <- r.Put(r.Context(), name, strings.NewReader(strings.Repeat(fmt.Sprint(i), size)), size)
		}()
	}
	for range puts {
		if err := <-stored; err != nil {
			r.Errorf("Put: %v", err)
		}
	}
	body, _, err := r.Get(r.Context(), name)
	if err != nil {
		r.Fatalf("Get: %v", err)
	}
	got, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		r.Fatalf("reading: %v", err)
	}
	if len(got) != size || len(bytes.Trim(got, string(got[:1]))) > 0 {
		r.Errorf("%d bytes of several writers are stored", len(got))
	}
	r.remove(name)
}

func (r *run) endedContextFails() {
	const name = "kind/a/b/file.yaml"
	r.put(name, "content")
	ctx, cancel := context.WithCancel(r.Context())
	cancel()
	for call, err := range r.calls(ctx, name) {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			r.Errorf("%s returned %v, want the error of the context", call, err)
		}
	}
	r.requireContent(r, name, "content")
	r.remove(name)
}

// stoppedServerFails makes sure that a server that cannot be reached is not taken for an empty storage.
func (r *run) stoppedServerFails() {
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	for call, err := range r.calls(ctx, "kind/a/b/file.yaml") {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			r.Errorf("%s returned %v, want an error", call, err)
			continue
		}
		for _, secret := range r.Secrets {
			if strings.Contains(err.Error(), secret) {
				r.Errorf("the error of %s contains a secret: %v", call, err)
			}
		}
	}
}

// calls returns the errors of all methods, by name.
func (r *run) calls(ctx context.Context, name string) map[string]error {
	body, _, getErr := r.Get(ctx, name)
	if getErr == nil {
		_, err := io.ReadAll(body)
		getErr = errors.Join(err, body.Close())
	}
	_, listErr := r.List(ctx, "kind/")
	return map[string]error{
		"Get":    getErr,
		"List":   listErr,
		"Put":    r.Put(ctx, name, strings.NewReader("other"), 5),
		"Delete": r.Delete(ctx, name),
	}
}
