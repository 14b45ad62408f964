package git

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// allowAny is the capability to request any object of the remote.
const allowAny capability.Capability = "allow-any-sha1-in-want"

// listing is the result of listing the references of a remote.
type listing struct {
	owner string // of the view that listed them
	start time.Time
	refs  *packp.AdvRefs
	err   error
}

// maxListing is the maximum number of references of a listing that is kept for other sources.
const maxListing = 1000

// update is one update of a mirror to a reference. It holds the lock of the mirror until it is closed.
type update struct {
	mirror *mirror
	ctx    context.Context
	cancel context.CancelFunc
	remote Remote
	ref    Reference
	owner  string
	conn   *wire.Conn
}

// Resolved is the revision of a reference. If the mirror does not contain it, the mirror stays locked and the
// connection open until Fetch or Close is called.
type Resolved struct {
	Revision
	update *update // nil if there is nothing to fetch
	target target
}

// Fetch fetches the revision into the mirror, unless the mirror contains it. The context of the call that resolved the
// revision applies. The error is a fault.
func (r *Resolved) Fetch() error {
	if r.update == nil {
		return nil
	}
	defer r.Close()
	return r.update.fetchAny(r.target)
}

// Close releases the mirror and the connection. It is idempotent and always returns nil.
func (r *Resolved) Close() error {
	if r.update != nil {
		r.update.close()
		r.update = nil
	}
	return nil
}

// update resolves the reference and fetches the revision.
func (m *mirror) update(ctx context.Context, remote Remote, ref Reference, owner string, fresh bool) (Revision,
	error) {
	r, err := m.resolve(ctx, remote, ref, owner, fresh)
	if err != nil {
		return Revision{}, err
	}
	return r.Revision, r.Fetch()
}

// resolve implements [View.Resolve]. It uses a listing of another owner that is younger than
// limits.listingTTL. If fresh is set, it uses only one that started after this call.
func (m *mirror) resolve(ctx context.Context, remote Remote, ref Reference, owner string, fresh bool) (*Resolved,
	error) {
	pinned, isPinned, err := ref.pinned()
	if err != nil {
		return nil, err
	}
	mayRead := m.mayRead(remote, owner)
	if isPinned && mayRead && m.ancestries.has(ref) && m.holds(plumbing.NewHash(pinned.Commit)) {
		return &Resolved{Revision: pinned}, nil
	}
	cancel := func() {}
	if _, ok := ctx.Deadline(); !ok {
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
	}
	called := time.Now()
	select {
	case m.lock <- struct{}{}:
	case <-ctx.Done():
		cancel()
		return nil, lockTimeout(remote, ctx.Err())
	}
	remote.Scratch = m.dir
	u := &update{mirror: m, ctx: ctx, cancel: cancel, remote: remote, ref: ref, owner: owner}
	r, err := u.resolve(called, fresh, mayRead)
	if err != nil || r.update == nil {
		u.close()
	}
	return r, err
}

// close closes the connection and releases the lock of the mirror.
func (u *update) close() {
	u.disconnect()
	u.cancel()
	<-u.mirror.lock
}

// resolve resolves the reference. The result refers to the update if the commit must be fetched. It uses the listing
// of another owner only if the owner may read what others fetched.
func (u *update) resolve(called time.Time, fresh, mayRead bool) (*Resolved, error) {
	if mayRead {
		if revision, done, err := u.mirror.resolveListed(u.ref, u.owner, called, fresh); done {
			return &Resolved{Revision: revision}, err
		}
	}
	if err := u.dial(); err != nil {
		return nil, err
	}
	if err := u.checkBranch(); err != nil {
		return nil, err
	}
	t, err := u.ref.resolve(u.conn.Refs)
	if err != nil {
		return nil, err
	}
	if u.mirror.holdsTarget(t) {
		return &Resolved{Revision: t.Revision}, nil
	}
	return &Resolved{Revision: t.Revision, update: u, target: t}, nil
}

// mayRead reports whether an owner may read what other owners fetched: it has listed the references of the remote with
// its login, or the remote needs none.
func (m *mirror) mayRead(remote Remote, owner string) bool {
	return isAnonymous(remote) || m.proofs.has(owner)
}

// lockTimeout returns the fault for a mirror that another update holds for too long.
func lockTimeout(remote Remote, err error) error {
	return gitFault("timed out waiting for another fetch from %s", fault.RedactURL(remote.URL)).Because(err).
		WithHint("Check the network, or raise spec.timeout")
}

// resolveListed resolves the reference by the last listing, if it is recent enough and nothing must be fetched. called
// is the time of the call of update.
func (m *mirror) resolveListed(ref Reference, owner string, called time.Time, fresh bool) (Revision, bool, error) {
	l := &m.listing
	after := l.start.After(called) // while this update waited for the lock
	if l.err != nil {
		return Revision{}, after, l.err
	}
	if l.refs == nil || !after && (fresh || l.owner == owner || called.Sub(l.start) > m.limits.listingTTL) {
		return Revision{}, false, nil
	}
	t, err := ref.resolve(l.refs)
	return t.Revision, err == nil && m.holdsTarget(t) && m.ancestries.has(ref), nil
}

// dial opens a conversation and keeps its listing of references.
func (u *update) dial() error {
	u.disconnect()
	start := time.Now()
	conn, err := wire.Dial(u.ctx, u.remote)
	switch {
	case err == nil && len(conn.Refs.References) <= maxListing:
		u.mirror.listing = listing{owner: u.owner, start: start, refs: conn.Refs, err: nil}
	case err != nil && u.ctx.Err() == nil: // not caused by the context of this update
		u.mirror.listing = listing{owner: u.owner, start: start, refs: nil, err: err}
	default:
		u.mirror.listing = listing{}
	}
	if err == nil {
		u.mirror.notes = conn.Refs.References[NotesRef]
		u.mirror.proofs.set(u.owner, true)
	} else if f := fault.As(err); f != nil && f.Reason == meta.AuthenticationFailedReason {
		u.mirror.proofs.set(u.owner, false)
	}
	u.conn = conn
	return err
}

// disconnect ends the conversation and adds its counts.
func (u *update) disconnect() {
	if u.conn == nil {
		return
	}
	u.conn.Close()
	s := u.conn.Stats()
	u.mirror.counts.requests.Add(s.Requests)
	u.mirror.counts.bytes.Add(s.BytesReceived)
	u.conn = nil
}

// fetchAny fetches the commit, whether or not the remote lists it.
func (u *update) fetchAny(t target) error {
	if t.hidden && !u.conn.Supports(capability.AllowReachableSHA1InWant) && !u.conn.Supports(allowAny) {
		return u.fetchHistory(t)
	}
	return u.fetchTarget(t)
}

// fetchTarget fetches the new objects of the target, or all of them into a new repository if necessary.
func (u *update) fetchTarget(t target) error {
	r := u.mirror.current.Load()
	if r != nil && !r.damaged.Load() && r.objects.Len() < u.mirror.limits.packs {
		err := u.fetch(r, t, wire.Request{Want: u.wanted(t), Single: u.conn.Supports(capability.Shallow),
			Have: r.latest(maxTips)})
		if err == nil || t.hidden || !u.needsNewRepository(err) {
			return err
		}
		if err := u.dial(); err != nil {
			return err
		}
	}
	return u.fetchNew(t, wire.Request{Want: u.wanted(t), Single: u.conn.Supports(capability.Shallow)})
}

// wanted returns the hashes to fetch for a target. They include the notes, which then need no request of their own.
func (u *update) wanted(t target) []plumbing.Hash {
	if notes := u.mirror.notes; !notes.IsZero() && notes != t.want && !u.mirror.holds(notes) {
		return []plumbing.Hash{t.want, notes}
	}
	return []plumbing.Hash{t.want}
}

// fetchHistory fetches a commit that cannot be requested by its hash: with the history of the branch of the reference,
// or of the default branch of the remote.
func (u *update) fetchHistory(t target) error {
	if head := u.conn.Refs.Head; u.ref.Branch == "" && head != nil {
		return u.fetchNew(t, wire.Request{Want: []plumbing.Hash{*head}})
	}
	branch, err := Reference{Branch: u.ref.Branch}.resolve(u.conn.Refs)
	if err != nil {
		return err
	}
	return u.fetchNew(t, wire.Request{Want: []plumbing.Hash{branch.want}})
}

// needsNewRepository reports whether the failure may be caused by the commits that we have, here or on the remote.
func (u *update) needsNewRepository(err error) bool {
	var refused *wire.Refused
	return u.ctx.Err() == nil && (errors.Is(err, packstore.ErrMalformed) || errors.Is(err, packstore.ErrDamaged) ||
		errors.As(err, &refused))
}

// fetchNew fetches into a new repository, which replaces the current one once it contains the commit.
func (u *update) fetchNew(t target, request wire.Request) error {
	m := u.mirror
	number := m.number + 1
	dir := m.path(number)
	if err := os.RemoveAll(dir); err != nil {
		return storageFault("cannot clean the directory of the mirror", err)
	}
	r, err := createRepository(dir, m.packs)
	if err != nil {
		return storageFault("cannot create the directory of the mirror", err)
	}
	if err := u.fetch(r, t, request); err != nil {
		_ = os.RemoveAll(dir) // otherwise it is removed when the mirror is opened again
		return err
	}
	return m.replace(r, number)
}

// fetch fetches a pack, stores it, and records the commit.
func (u *update) fetch(r *repository, t target, request wire.Request) error {
	if !request.Single { // only commits with their history are useful to the remote
		request.Have = slices.DeleteFunc(request.Have,
			func(h plumbing.Hash) bool { return slices.Contains(r.shallow, h) })
	}
	for _, h := range request.Have {
		if slices.Contains(r.shallow, h) {
			request.Shallow = append(request.Shallow, h)
		}
	}
	answer, err := u.conn.Fetch(u.ctx, request, u.mirror.limits.pack)
	if err != nil {
		return u.notFound(t, err)
	}
	if err := u.store(r.objects, answer); err != nil {
		return err
	}
	commit := plumbing.NewHash(t.Commit)
	if !r.holds(commit) || t.Tag != "" && !r.objects.Has(t.want) {
		return u.notFound(t, nil)
	}
	commits := []plumbing.Hash{commit}
	if notes := u.mirror.notes; slices.Contains(request.Want, notes) && r.holds(notes) {
		commits = []plumbing.Hash{notes, commit}
	}
	if err := r.record(answer.Shallow, commits...); err != nil {
		return storageFault("cannot record the fetched commit", err)
	}
	return nil
}

// store stores the pack of an answer.
func (u *update) store(objects *packstore.Store, answer *wire.Answer) error {
	share := u.mirror.budget.Of(guard.OwnerOf(u.ctx), u.mirror.dir)
	stream := &errorRecorder{Reader: share.Reader(answer.Pack)}
	room := packstore.Room{Bases: u.mirror.limits.pack, Writer: share.Writer}
	switch err := objects.Add(u.ctx, stream, room); {
	case err == nil:
		return nil
	case stream.err != nil:
		return answer.Explain(stream.err)
	case u.ctx.Err() != nil:
		return answer.Explain(u.ctx.Err())
	case guard.IsMemory(err):
		return gitFault("cannot index the objects of %s", fault.RedactURL(u.remote.URL)).Because(err)
	case errors.Is(err, packstore.ErrMalformed), errors.Is(err, packstore.ErrDamaged):
		return gitFault("%s sent a pack that is not valid", fault.RedactURL(u.remote.URL)).Because(err)
	case fault.As(err) != nil: // of the share
		return err
	default:
		return storageFault("cannot store the fetched objects", err)
	}
}

// notFound returns the fault for a missing commit, or err if it has another cause.
func (u *update) notFound(t target, err error) error {
	var refused *wire.Refused
	switch {
	case err != nil && !errors.As(err, &refused):
		return err
	case t.hidden && u.ref.Branch != "":
		return u.notOnBranch(err)
	case t.hidden:
		return gitFault("commit %s not found on the remote", t.Commit).Because(err).
			WithHint("Check spec.ref.commit, and set spec.ref.branch to the branch of the commit")
	case err != nil:
		return err
	}
	return gitFault("'%s' is not a reference to a commit", t.Ref).
		WithHint("Correct spec.ref: the reference points to an object of another type")
}

// errorRecorder is a reader that records its error, to distinguish network failures from disk failures.
type errorRecorder struct {
	io.Reader
	err error
}

func (r *errorRecorder) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
