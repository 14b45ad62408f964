package git

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
)

// Mirrors holds the mirrors of a process in one directory. Sources with the same URL and credentials share a mirror and
// its fetches; other sources share nothing. A source with a login reads a mirror once it has listed the references of
// the remote itself. It is safe for concurrent use.
type Mirrors struct {
	Budget *artifact.Budget // for fetched packs; nil does not limit them

	dir    string
	limits limits
	packs  packstore.Shared

	mu    sync.Mutex
	open  map[string]*mirror // by key
	views map[string]*View   // by owner
	done  Stats              // of removed mirrors
}

// NewMirrors returns the mirrors in dir.
func NewMirrors(dir string) *Mirrors {
	return &Mirrors{dir: dir, limits: currentLimits(), open: map[string]*mirror{}, views: map[string]*View{}}
}

// DropCache drops what is cached of all mirrors, to free memory.
func (ms *Mirrors) DropCache() { ms.packs.DropCache() }

// View returns the view of an owner, such as the UID of an object. It is kept until [Mirrors.Forget].
func (ms *Mirrors) View(owner string) *View {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	v := ms.views[owner]
	if v == nil {
		v = &View{mirrors: ms, owner: owner}
		ms.views[owner] = v
	}
	return v
}

// Forget removes the view of an owner, and the mirrors without other owners. Trees of the view stay readable.
func (ms *Mirrors) Forget(owner string) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.views, owner)
	return ms.releaseLocked(owner)
}

// Collect removes the mirrors without a live owner. It is called at the start, for owners that were deleted while the
// process was not running.
func (ms *Mirrors) Collect(live func(owner string) bool) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	entries, err := os.ReadDir(ms.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		dir, m := filepath.Join(ms.dir, e.Name()), ms.open[e.Name()]
		used := m != nil
		markers, err := filepath.Glob(filepath.Join(dir, userPrefix+"*"))
		errs = append(errs, err)
		for _, file := range markers {
			owner := strings.TrimPrefix(filepath.Base(file), userPrefix)
			if live(owner) {
				used = true
				continue
			}
			if m != nil {
				delete(m.users, owner)
				m.proofs.forget(owner)
			}
			errs = append(errs, os.Remove(file))
		}
		if !used {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// Stats returns the current counts of all mirrors.
func (ms *Mirrors) Stats() Stats {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	sum := ms.done
	for _, m := range ms.open {
		sum = add(sum, m)
	}
	return sum
}

func add(s Stats, m *mirror) Stats {
	return Stats{Requests: s.Requests + m.counts.requests.Load(),
		BytesReceived: s.BytesReceived + m.counts.bytes.Load()}
}

// acquire returns the mirror of a remote, and adds the owner to it.
func (ms *Mirrors) acquire(owner string, remote Remote) (*mirror, error) {
	key := keyOf(remote)
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.open[key]
	if m == nil {
		var err error
		if m, err = openMirror(filepath.Join(ms.dir, key), &ms.packs); err != nil {
			return nil, err
		}
		m.key, m.limits, m.budget = key, ms.limits, ms.Budget
		ms.open[key] = m
	}
	if !m.users[owner] {
		if err := os.WriteFile(filepath.Join(m.dir, userPrefix+owner), nil, 0o600); err != nil {
			return nil, storageFault("cannot record the owner of the mirror", err)
		}
		m.users[owner] = true
	}
	return m, nil
}

// release removes the owner from all mirrors except those in keep, and removes mirrors without owners.
func (ms *Mirrors) release(owner string, keep ...*mirror) error {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.releaseLocked(owner, keep...)
}

func (ms *Mirrors) releaseLocked(owner string, keep ...*mirror) error {
	keeps := map[*mirror]bool{}
	for _, m := range keep {
		keeps[m] = true
	}
	var errs []error
	for key, m := range ms.open {
		if !m.users[owner] || keeps[m] {
			continue
		}
		if len(m.users) > 1 {
			delete(m.users, owner)
			m.proofs.forget(owner)
			errs = append(errs, os.Remove(filepath.Join(m.dir, userPrefix+owner)))
			continue
		}
		delete(ms.open, key)
		ms.done = add(ms.done, m)
		errs = append(errs, m.remove())
	}
	if err := errors.Join(errs...); err != nil {
		return storageFault("cannot remove an unused mirror", err)
	}
	return nil
}

// keyOf returns the key of the mirror of a remote: a digest of everything that may change what the remote shows. Of a
// login it uses the private part, because a public key proves nothing.
func keyOf(r Remote) string {
	c := r.Credentials
	parts := []string{r.URL, r.ProxyURL, string(c.CA), string(c.ClientCert), string(c.ClientKey), string(c.KnownHosts),
		r.Identity}
	if r.Identity == "" {
		parts = append(parts, c.Username, c.Password, c.BearerToken)
		if c.Identity != nil {
			private := c.Identity.Digest()
			parts = append(parts, string(private[:]))
		}
	}
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
