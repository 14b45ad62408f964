// Package git keeps a bare mirror of a repository: it resolves references, fetches only what is new, and gives trees of
// commits without ever checking files out. It knows no controller.
package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/sideband"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/fault"
)

const (
	maxPack      = 2 << 30 // bytes that one fetch may bring
	maxFetches   = 64      // fetches before the mirror is fetched anew: what they brought is not packed together
	maxTips      = 8       // commits offered as known when fetching
	cacheSize    = 16 << 20
	tipRef       = "refs/sluice/tip"
	generations  = "gen-"
	memoryObject = 64 << 20 // bytes of an object that is read as a whole
)

// Mirror is a kept bare repository. Its methods may be called from one goroutine at a time; the trees it gave may be
// read at any time, also while it is updated.
type Mirror struct {
	dir        string
	generation int
	objects    *objects
	last       *lastTree // for the next tree to share directories with
}

// objects reads the object store, one reader at a time: the library's store is not made for more.
type objects struct {
	mu    sync.Mutex
	store *filesystem.Storage
}

// Open opens the mirror in dir, or starts an empty one. What a killed process left half done is removed.
func Open(dir string) (*Mirror, error) {
	m := &Mirror{dir: dir}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storageFault("cannot make the mirror's directory", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, storageFault("cannot read the mirror's directory", err)
	}
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name()[min(len(generations), len(e.Name())):])
		if err == nil && e.IsDir() {
			m.generation = max(m.generation, n)
		}
	}
	m.load()
	if !m.sound() {
		return m, m.renew()
	}
	return m, m.sweep()
}

func (m *Mirror) path(generation int) string {
	return filepath.Join(m.dir, generations+strconv.Itoa(generation))
}

func (m *Mirror) load() {
	store := filesystem.NewStorageWithOptions(osfs.New(m.path(m.generation)), cache.NewObjectLRU(cacheSize),
		filesystem.Options{ExclusiveAccess: false, KeepDescriptors: true, LargeObjectThreshold: 0})
	m.objects = &objects{store: store}
}

// sound tells whether the tip that the mirror says it holds is really there.
func (m *Mirror) sound() bool {
	tip, err := m.objects.store.Reference(tipRef)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return true // nothing fetched yet
	}
	return err == nil && m.holds(tip.Hash().String())
}

// renew starts an empty generation. The one before stays until the next, for trees that are still read.
func (m *Mirror) renew() error {
	m.generation++
	m.last = nil
	m.load()
	return m.sweep()
}

// sweep removes generations that nothing can read from any more, and packs that were never finished.
func (m *Mirror) sweep() error {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return storageFault("cannot read the mirror's directory", err)
	}
	for _, e := range entries {
		if e.Name() != filepath.Base(m.path(m.generation)) && e.Name() != filepath.Base(m.path(m.generation-1)) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(m.dir, e.Name())))
		}
	}
	unfinished, globErr := filepath.Glob(filepath.Join(m.path(m.generation), "objects", "pack", "tmp_*"))
	for _, f := range unfinished {
		err = errors.Join(err, os.Remove(f))
	}
	if err = errors.Join(err, globErr); err != nil {
		return storageFault("cannot tidy the mirror's directory", err)
	}
	return nil
}

// Close releases the mirror's files.
func (m *Mirror) Close() error {
	m.objects.mu.Lock()
	defer m.objects.mu.Unlock()
	return m.objects.store.Close()
}

// Update resolves the reference and brings the mirror to it. It asks the remote once for its references, and fetches
// nothing when the commit is held already; a pinned commit that is held costs no request at all.
func (m *Mirror) Update(ctx context.Context, remote Remote, ref Reference) (Revision, error) {
	pinned, isPinned, err := ref.pinned()
	if err != nil {
		return Revision{}, err
	}
	if isPinned && m.holds(pinned.Commit) {
		return pinned, nil
	}
	session, err := remote.session(ctx, m.dir)
	if err != nil {
		return Revision{}, remote.explain(err, "connecting")
	}
	defer session.Close() // everything was read
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return Revision{}, remote.explain(withContext(ctx, err), "listing references")
	}
	revision := pinned
	if !isPinned {
		if revision, err = ref.resolve(refs); err != nil {
			return Revision{}, err
		}
	}
	if m.holds(revision.Commit) {
		return revision, m.setTip(revision.Commit)
	}
	if err := m.bring(ctx, remote, session, refs, revision.Commit); err != nil && isPinned && ctx.Err() == nil {
		if err := m.fetchHistory(ctx, remote, ref, revision.Commit); err != nil {
			return Revision{}, remote.explain(withContext(ctx, err), "fetching")
		}
	} else if err != nil {
		return Revision{}, remote.explain(withContext(ctx, err), "fetching")
	}
	return revision, m.setTip(revision.Commit)
}

// bring fetches a commit: what is new of it, or all of it when little is known or the remote cannot tell what is new.
func (m *Mirror) bring(ctx context.Context, remote Remote, session transport.UploadPackSession, refs *packp.AdvRefs, commit string) error {
	held, err := m.objects.store.Shallow()
	if err != nil || len(held) >= maxFetches {
		if err := m.renew(); err != nil {
			return err
		}
		held = nil
	}
	err = m.fetch(ctx, session, refs, commit, held)
	if err == nil || len(held) == 0 || ctx.Err() != nil {
		return err
	}
	if err := m.renew(); err != nil {
		return err
	}
	again, err := remote.session(ctx, m.dir)
	if err != nil {
		return err
	}
	defer again.Close() // everything was read
	if refs, err = again.AdvertisedReferencesContext(ctx); err != nil {
		return err
	}
	return m.fetch(ctx, again, refs, commit, nil)
}

// withContext prefers the context's own error: transports wrap it beyond recognition.
func withContext(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// fetch asks for one commit without its history, and says what is held so that only new objects travel.
func (m *Mirror) fetch(ctx context.Context, session transport.UploadPackSession, refs *packp.AdvRefs, commit string, held []plumbing.Hash) error {
	req := request(refs)
	req.Wants = []plumbing.Hash{plumbing.NewHash(commit)}
	if refs.Capabilities.Supports(capability.Shallow) {
		_ = req.Capabilities.Set(capability.Shallow) // takes no argument, so it cannot fail
		req.Depth = packp.DepthCommits(1)
		held = held[max(0, len(held)-maxTips):]
		req.Shallows, req.Haves = held, held
	}
	if len(req.Haves) > 0 {
		// A server compares with the trees of commits outside of the history it sends only for a thin pack.
		_ = req.Capabilities.Set(capability.ThinPack) // takes no argument, so it cannot fail
	}
	return m.receive(ctx, session, req)
}

// fetchHistory finds a commit that the remote does not hand out by its hash: in the history of the branch.
func (m *Mirror) fetchHistory(ctx context.Context, remote Remote, ref Reference, commit string) error {
	session, err := remote.session(ctx, m.dir)
	if err != nil {
		return err
	}
	defer session.Close() // everything was read
	refs, err := session.AdvertisedReferencesContext(ctx)
	if err != nil {
		return err
	}
	branch := ref.Branch
	if branch == "" {
		branch = DefaultBranch
	}
	tip, err := Reference{Branch: branch}.resolve(refs)
	if err != nil {
		return err
	}
	if err := m.renew(); err != nil {
		return err
	}
	req := request(refs)
	req.Wants = []plumbing.Hash{plumbing.NewHash(tip.Commit)}
	if err := m.receive(ctx, session, req); err != nil {
		return err
	}
	if !m.holds(commit) {
		return gitFault("commit %s not found in branch '%s'", commit, branch).
			WithHint("Check spec.ref.commit, and set spec.ref.branch to the branch that it is on")
	}
	return nil
}

func request(refs *packp.AdvRefs) *packp.UploadPackRequest {
	req := packp.NewUploadPackRequestFromCapabilities(refs.Capabilities)
	if refs.Capabilities.Supports(capability.NoProgress) {
		_ = req.Capabilities.Set(capability.NoProgress) // takes no argument, so it cannot fail
	}
	return req
}

// receive stores the pack that answers a request, then what it says of the history's ends.
func (m *Mirror) receive(ctx context.Context, session transport.UploadPackSession, req *packp.UploadPackRequest) error {
	resp, err := session.UploadPack(ctx, req)
	if err != nil {
		return err
	}
	defer resp.Close() // read to its end, or given up
	var pack io.Reader = resp
	if req.Capabilities.Supports(capability.Sideband64k) {
		pack = sideband.NewDemuxer(sideband.Sideband64k, resp)
	} else if req.Capabilities.Supports(capability.Sideband) {
		pack = sideband.NewDemuxer(sideband.Sideband, resp)
	}
	m.objects.mu.Lock()
	defer m.objects.mu.Unlock()
	// The shallow file comes after the pack: until then a killed process leaves objects that nothing refers to.
	if err := m.unpack(&bounded{pack, maxPack}, len(req.Haves) > 0); err != nil {
		return err
	}
	return m.updateShallow(resp.Shallows, resp.Unshallows)
}

// unpack stores a pack as it is, or the objects of a thin one, whose deltas build on objects that are held.
func (m *Mirror) unpack(pack io.Reader, thin bool) error {
	if !thin {
		return packfile.UpdateObjectStorage(m.objects.store, pack)
	}
	parser, err := packfile.NewParserWithStorage(packfile.NewScanner(pack), m.objects.store)
	if err != nil {
		return err
	}
	_, err = parser.Parse()
	return err
}

func (m *Mirror) updateShallow(added, removed []plumbing.Hash) error {
	held, err := m.objects.store.Shallow()
	if err != nil {
		return err
	}
	gone := map[plumbing.Hash]bool{}
	for _, h := range append(removed, added...) {
		gone[h] = true
	}
	kept := make([]plumbing.Hash, 0, len(held)+len(added))
	for _, h := range held {
		if !gone[h] {
			kept = append(kept, h)
		}
	}
	return m.objects.store.SetShallow(append(kept, added...))
}

// holds tells whether the commit and its root tree are there.
func (m *Mirror) holds(commit string) bool {
	m.objects.mu.Lock()
	defer m.objects.mu.Unlock()
	c, err := object.GetCommit(m.objects.store, plumbing.NewHash(commit))
	if err != nil {
		return false
	}
	return m.objects.store.HasEncodedObject(c.TreeHash) == nil
}

func (m *Mirror) setTip(commit string) error {
	m.objects.mu.Lock()
	defer m.objects.mu.Unlock()
	if err := m.objects.store.SetReference(plumbing.NewHashReference(tipRef, plumbing.NewHash(commit))); err != nil {
		return storageFault("cannot write the mirror's tip", err)
	}
	return nil
}

func storageFault(what string, err error) error {
	return fault.New(meta.StorageOperationFailedReason, "%s", what).Because(err).
		WithHint("Check that --storage-path is writable and has room")
}

// bounded fails when more comes than a fetch may bring.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the repository sends more than %d MiB", maxPack>>20)
	}
	return n, err
}

// Size implements artifact.Content for blobs.
func (o *objects) Size(id string) (int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.store.EncodedObjectSize(blobHash(id))
}

// Read implements artifact.Content for blobs.
func (o *objects) Read(id string) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj, err := o.store.EncodedObject(plumbing.BlobObject, blobHash(id))
	if err != nil {
		return nil, err
	}
	if obj.Size() > memoryObject {
		return nil, fmt.Errorf("a file of %d MiB is larger than the %d MiB that a source may hold in one", obj.Size()>>20, memoryObject>>20)
	}
	r, err := obj.Reader()
	if err != nil {
		return nil, err
	}
	b := make([]byte, obj.Size())
	_, err = io.ReadFull(r, b)
	return b, errors.Join(err, r.Close())
}

var _ artifact.Content = (*objects)(nil)
