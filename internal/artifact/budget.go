package artifact

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// measureInterval is how long what was written is added to the last measurement of the directory, instead of measuring
// it again.
const measureInterval = 10 * time.Second

// errBudget marks errors of a budget that is used up.
var errBudget = errors.New("the budget for storage is used up")

// Budget bounds the total size of the files in a directory. What is written through it counts at once; the directory is
// measured again from time to time, and before a write is refused. A nil Budget has no bound. It is safe for
// concurrent use.
type Budget struct {
	dir   string
	limit int64 // bytes; unlimited if 0

	mu       sync.Mutex
	used     int64
	measured time.Time
}

// NewBudget returns a budget for the directory. With a limit of 0 it is nine tenths of the disk of the directory.
func NewBudget(dir string, limit int64) *Budget {
	if limit <= 0 {
		if _, size, ok := space(dir); ok {
			limit = int64(size / 10 * 9)
		}
	}
	return &Budget{dir: dir, limit: limit}
}

// Reader returns a reader of data that is written to the directory. It fails once the budget is used up.
func (b *Budget) Reader(r io.Reader) io.Reader {
	if b == nil {
		return r
	}
	return &budgetReader{r, b}
}

// Writer returns a writer of a file in the directory. It fails once the budget is used up.
func (b *Budget) Writer(w io.Writer) io.Writer {
	if b == nil {
		return w
	}
	return &budgetWriter{w, b}
}

type budgetReader struct {
	io.Reader
	budget *Budget
}

func (r *budgetReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if refused := r.budget.take(int64(n)); refused != nil {
		return 0, refused
	}
	return n, err
}

type budgetWriter struct {
	io.Writer
	budget *Budget
}

func (w *budgetWriter) Write(p []byte) (int, error) {
	if err := w.budget.take(int64(len(p))); err != nil {
		return 0, err
	}
	return w.Writer.Write(p)
}

// take counts bytes before they are written. The error is a fault.
func (b *Budget) take(n int64) error {
	if b.limit <= 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit || time.Since(b.measured) > measureInterval {
		b.used, b.measured = sizeOf(b.dir), time.Now()
	}
	if b.used+n > b.limit {
		return fault.New(meta.StorageOperationFailedReason,
			"the files in --storage-path use %s, and their limit is %s", megabytes(uint64(b.used)),
			megabytes(uint64(b.limit))).Because(errBudget).
			WithHint("Remove or suspend large sources, or raise --storage-limit. Sources that need no more space go on")
	}
	b.used += n
	return nil
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
