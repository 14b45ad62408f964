package artifact

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// onProcessors sets on how many processors the test runs.
func onProcessors(t *testing.T, n int) {
	t.Helper()
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// randomFiles returns files that cannot be compressed, of different segments.
func randomFiles(n, size int) map[string]string {
	r := rand.NewChaCha8([32]byte{1})
	files := map[string]string{}
	for i := 0; len(files) < n; i++ {
		name := fmt.Sprintf("f%06d", i)
		if !cut(name) {
			continue
		}
		data := make([]byte, size)
		_, _ = r.Read(data) // never fails
		files[name] = string(data)
	}
	return files
}

func TestArchiveDoesNotDependOnProcessors(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"many small files":                 manyFiles(2000, 4),
		"segments that are not kept":       randomFiles(5, 3*maxUnwritten),
		"files that take memory to read":   randomFiles(3, largeFile+1),
		"segments that fit barely":         randomFiles(9, maxUnwritten-2048),
		"a single file, and an empty tree": {"a": "a"},
	} {
		t.Run(name, func(t *testing.T) {
			onProcessors(t, 1)
			alone, segments := archiveOf(t, FromMap(files), nil)
			runtime.GOMAXPROCS(4)
			together, same := archiveOf(t, FromMap(files), nil)
			if !bytes.Equal(alone, together) || fmt.Sprint(segments) != fmt.Sprint(same) {
				t.Error("the archives differ")
			}
		})
	}
}

// meetingContent lets the read of one file wait until another is read.
type meetingContent struct {
	Content
	first, second string
	met           chan struct{}
	once          sync.Once
}

func (c *meetingContent) Read(id string) ([]byte, error) {
	switch id {
	case c.first:
		<-c.met
	case c.second:
		c.once.Do(func() { close(c.met) })
	}
	return c.Content.Read(id)
}

func TestSegmentsAreWrittenAtTheSameTime(t *testing.T) {
	onProcessors(t, 2)
	tree := FromMap(randomFiles(2, 100))
	want, _ := archiveOf(t, tree, nil)
	tree.content = &meetingContent{Content: tree.content, first: tree.root.Entries[0].ID,
		second: tree.root.Entries[1].ID, met: make(chan struct{})}
	got, _ := archiveOf(t, tree, nil)
	if !bytes.Equal(got, want) {
		t.Error("the segment that was ready first is written first")
	}
}

// TestLargeFilesWaitForTheirTurn writes files that need all memory each, while the files before them are read later.
func TestLargeFilesWaitForTheirTurn(t *testing.T) {
	onProcessors(t, 2)
	const size = largeFile + 1
	tree := FromMap(randomFiles(3, size))
	want, _ := archiveOf(t, tree, nil)
	tree.content = plainContent{tree.content}
	budget := guard.NewBudget(size * 3) // no owner gets more than three quarters
	var b bytes.Buffer
	if _, err := writeArchive(guard.WithBudget(t.Context(), budget), &b, tree, nil); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) || budget.Used() != 0 {
		t.Errorf("the archive differs, or %d bytes are used", budget.Used())
	}
}

// plainContent is not in memory.
type plainContent struct{ Content }

// failingContent cannot read one file.
type failingContent struct {
	Content
	id string
}

func (c failingContent) Read(id string) ([]byte, error) {
	if id == c.id {
		return nil, fs.ErrPermission
	}
	return c.Content.Read(id)
}

func TestArchiveFailsOnceWithTheNameOfTheFile(t *testing.T) {
	onProcessors(t, 4)
	tree := FromMap(randomFiles(20, 1000))
	bad := tree.root.Entries[7]
	tree.content = failingContent{tree.content, bad.ID}
	_, err := writeArchive(t.Context(), &bytes.Buffer{}, tree, nil)
	if !errors.Is(err, fs.ErrPermission) || strings.Count(err.Error(), bad.Name) != 1 {
		t.Errorf("got %v", err)
	}
}
