package artifact

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// measureInterval is how long what was written is added to the last measurement of the directory, instead of measuring
// it again.
const measureInterval = 10 * time.Second

// ownerFile is the name of the file in a directory that names the namespace that it belongs to.
const ownerFile = "namespace"

var (
	errBudget = errors.New("the budget for storage is used up")                // marks errors of a budget
	errShare  = errors.New("the share of the namespace in storage is used up") // marks errors of a share
)

// Budget bounds the total size of the files in a directory. What is written through it counts at once; the directory is
// measured again from time to time, and before a write is refused. A nil Budget has no bound. It is safe for
// concurrent use.
//
// A namespace may use at most as much as it leaves free. So one namespace gets at most a half, and there is always room
// for another one.
type Budget struct {
	dir   string
	limit int64 // bytes; unlimited if 0
	// Unshared is a namespace without such a bound: the one of the process.
	Unshared string

	mu       sync.Mutex
	used     int64
	owned    map[string]int64 // bytes by namespace
	measured time.Time
}

// NewBudget returns a budget for the directory. With a limit of 0 it is nine tenths of the disk of the directory.
func NewBudget(dir string, limit int64) *Budget {
	if limit <= 0 {
		if _, size, ok := space(dir); ok {
			limit = int64(size / 10 * 9)
		}
	}
	return &Budget{dir: dir, limit: limit, owned: map[string]int64{}}
}

// Share is the part of a budget that a namespace may use. A nil Share has no bound.
type Share struct {
	budget         *Budget
	namespace, dir string
}

// Of returns the share of a namespace; without a name, files have no owner. Dir is the directory whose files belong to
// it; empty if their path contains the namespace.
func (b *Budget) Of(namespace, dir string) *Share {
	if b == nil {
		return nil
	}
	return &Share{budget: b, namespace: namespace, dir: dir}
}

// Reader returns a reader of data that is written to the directory. It fails once the share is used up.
func (s *Share) Reader(r io.Reader) io.Reader {
	if s == nil {
		return r
	}
	s.mark()
	return &shareReader{r, s}
}

// Writer returns a writer of a file in the directory. It fails once the share is used up.
func (s *Share) Writer(w io.Writer) io.Writer {
	if s == nil {
		return w
	}
	s.mark()
	return &shareWriter{w, s}
}

// mark records the namespace in the directory, for measurements after a restart. Without it, the files have no
// owner.
func (s *Share) mark() {
	if s.dir == "" || s.namespace == "" || ownerOf(s.dir) == s.namespace {
		return
	}
	_ = os.WriteFile(filepath.Join(s.dir, ownerFile), []byte(s.namespace), 0o600)
}

// IsOwnerFile reports whether a file in a directory of a share names the namespace that it belongs to.
func IsOwnerFile(name string) bool { return name == ownerFile }

// ownerOf returns the namespace that a directory belongs to; empty if that is not recorded.
func ownerOf(dir string) string {
	content, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if err != nil || len(content) > maxOwner {
		return ""
	}
	return string(content)
}

// maxOwner is the maximum length of the name of a namespace.
const maxOwner = 63

type shareReader struct {
	io.Reader
	share *Share
}

func (r *shareReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if refused := r.share.take(int64(n)); refused != nil {
		return 0, refused
	}
	return n, err
}

type shareWriter struct {
	io.Writer
	share *Share
}

func (w *shareWriter) Write(p []byte) (int, error) {
	if err := w.share.take(int64(len(p))); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// take counts bytes before they are written. The error is a fault.
func (s *Share) take(n int64) error {
	b := s.budget
	if b.limit <= 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit || b.owned[s.namespace]+n > b.most(s.namespace) || time.Since(b.measured) > measureInterval {
		b.used, b.owned = measure(b.dir)
		b.measured = time.Now()
	}
	if b.used+n > b.limit {
		return fault.New(meta.StorageOperationFailedReason,
			"the files in --storage-path use %s, and their limit is %s", megabytes(uint64(b.used)),
			megabytes(uint64(b.limit))).Because(errBudget).
			WithHint("Remove or suspend large sources, or raise --storage-limit. Sources that need no more space go on")
	}
	if most := b.most(s.namespace); b.owned[s.namespace]+n > most {
		return fault.New(meta.StorageOperationFailedReason,
			"the files of namespace '%s' in --storage-path use %s, and may use at most %s, as much as they leave free",
			s.namespace, megabytes(uint64(b.owned[s.namespace])), megabytes(uint64(most))).Because(errShare).
			WithHint("Remove or suspend large sources of the namespace, or raise --storage-limit")
	}
	b.used += n
	b.owned[s.namespace] += n
	return nil
}

// most returns how many bytes a namespace may use.
func (b *Budget) most(namespace string) int64 {
	if namespace == "" || namespace == b.Unshared {
		return b.limit
	}
	return guard.ShareOf(b.limit, b.used-b.owned[namespace])
}

// measure returns the size of all files below a directory, in sum and by namespace.
func measure(dir string) (sum int64, owned map[string]int64) {
	owned = map[string]int64{}
	tops, err := os.ReadDir(dir)
	if err != nil {
		return 0, owned
	}
	for _, top := range tops {
		base := filepath.Join(dir, top.Name())
		children, err := os.ReadDir(base)
		if err != nil || top.Name() != "artifacts" && top.Name() != "images" && top.Name() != "mirrors" &&
			top.Name() != "buckets" {
			sum += sizeOf(base)
			continue
		}
		for _, child := range children {
			below := filepath.Join(base, child.Name())
			switch top.Name() {
			case "artifacts": // <kind>/<namespace>/<name>
				namespaces, _ := os.ReadDir(below) // none: removed in the meantime
				for _, n := range namespaces {
					owned[n.Name()] += sizeOf(filepath.Join(below, n.Name()))
				}
			case "images":
				owned[child.Name()] += sizeOf(below)
			default:
				owned[ownerOf(below)] += sizeOf(below)
			}
		}
	}
	for _, n := range owned {
		sum += n
	}
	return sum, owned
}

// sizeOf returns the size of all files below a directory. A file with several names counts once for each.
func sizeOf(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // removed in the meantime
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return nil
	})
	return sum
}
