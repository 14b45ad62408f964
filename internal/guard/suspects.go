package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

const (
	running = ".run"  // suffix of the marker of an object in work
	waiting = ".wait" // suffix of the marker of a suspect that is not in work

	suspectDelay    = 10 * time.Second // after the last death without delay; it doubles with each further one
	largeDeaths     = 1                // deaths without delay of an object whose work took much memory
	smallDeaths     = 4                // deaths without delay of others, as a death may have other causes
	maxSuspectDelay = 10 * time.Minute
	aloneRetry      = 2 * time.Second // while another suspect is in work
	markShare       = 32              // work that takes this part of the memory budget is marked
)

// Suspects remembers, in a directory, which objects were in work when a process died without notice, for example
// because the kernel killed it for its memory. Such an object is a suspect: the next process works on one suspect at a
// time, and later if it was in work at several deaths. A pass that returns, with any result, ends the suspicion.
//
// Markers are written for the first pass of an object in a process, and when a pass takes much memory. They are not
// synced: only the death of the machine can lose them. A nil Suspects does nothing.
type Suspects struct {
	dir   string
	now   func() time.Time
	start time.Time

	mu    sync.Mutex
	known map[string]*suspect
	seen  map[string]bool // objects that had a pass
	alone string          // the suspect in work
}

// suspect is the content of a marker.
type suspect struct {
	Object string `json:"object"`
	Deaths int    `json:"deaths"` // of processes that had it in work
	Large  bool   `json:"large"`  // its work took much memory
}

// ReadSuspects reads the markers of an earlier process. The directory is created if it does not exist.
func ReadSuspects(dir string, now func() time.Time) (*Suspects, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Suspects{dir: dir, now: now, start: now(), known: map[string]*suspect{}, seen: map[string]bool{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := s.read(e.Name()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// read reads a marker. A damaged one is removed.
func (s *Suspects) read(file string) error {
	name := filepath.Join(s.dir, file)
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var found suspect
	if json.Unmarshal(b, &found) != nil || found.Object == "" {
		return os.Remove(name)
	}
	if strings.HasSuffix(file, running) {
		found.Deaths++
		if err := s.write(&found, waiting); err != nil {
			return err
		}
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	if before := s.known[found.Object]; before == nil || before.Deaths < found.Deaths {
		s.known[found.Object] = &found
	}
	return nil
}

func (s *Suspects) path(object, suffix string) string {
	sum := sha256.Sum256([]byte(object))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:16])+suffix)
}

func (s *Suspects) write(m *suspect, suffix string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(s.path(m.Object, suffix), b, 0o600)
}

// Begin begins a pass over an object. If the object is a suspect that must wait, it returns no work, for how long, and
// the number of deaths. The caller must call Done of the work.
func (s *Suspects) Begin(object string) (w *Work, wait time.Duration, deaths int) {
	if s == nil {
		return nil, 0, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.known[object]; m != nil {
		if wait := s.start.Add(m.delay()).Sub(s.now()); wait > 0 {
			return nil, wait, m.Deaths
		}
		if s.alone != "" {
			return nil, aloneRetry, m.Deaths
		}
		s.alone = object
		deaths = m.Deaths
	}
	w = &Work{suspects: s, marker: suspect{Object: object, Deaths: deaths}}
	if !s.seen[object] || deaths > 0 {
		s.seen[object] = true
		w.mark(false)
	}
	return w, 0, 0
}

// Forget removes what is stored about a deleted object.
func (s *Suspects) Forget(object string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, object)
	if s.known[object] != nil && s.alone != object {
		delete(s.known, object)
		s.remove(object, waiting)
	}
}

func (s *Suspects) remove(object, suffix string) {
	if err := os.Remove(s.path(object, suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.Background().Error(err, "cannot write the marker of an object in work")
	}
}

// delay returns for how long after the start of the process the object is not tried.
func (m *suspect) delay() time.Duration {
	free := smallDeaths
	if m.Large {
		free = largeDeaths
	}
	if m.Deaths <= free {
		return 0
	}
	return min(maxSuspectDelay, suspectDelay<<min(m.Deaths-free-1, 10))
}

// Work is a pass over an object.
type Work struct {
	suspects *Suspects
	marker   suspect
	mu       sync.Mutex
	marked   bool
	done     bool
}

// Mark writes the marker of an object whose work takes much memory, unless it exists. A marker that cannot be written
// is missed only if the process dies.
func (w *Work) Mark() {
	if w != nil {
		w.mark(true)
	}
}

func (w *Work) mark(large bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done || w.marked && (w.marker.Large || !large) {
		return
	}
	w.marked, w.marker.Large = true, large
	if err := w.suspects.write(&w.marker, running); err != nil {
		klog.Background().Error(err, "cannot write the marker of an object in work")
	}
}

// Done ends the work.
func (w *Work) Done() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.done = true
	marked := w.marked
	w.mu.Unlock()
	if !marked {
		return
	}
	s, object := w.suspects, w.marker.Object
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(object, running)
	if s.alone == object {
		s.alone = ""
		delete(s.known, object)
		s.remove(object, waiting)
	}
}

type workKey struct{}

// WithWork returns a context in which large shares of the memory budget mark the work.
func WithWork(ctx context.Context, w *Work) context.Context {
	return context.WithValue(ctx, workKey{}, w)
}

func workOf(ctx context.Context) *Work {
	w, _ := ctx.Value(workKey{}).(*Work)
	return w
}
