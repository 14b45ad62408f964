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

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
)

// allowAny is the capability to hand out any object that the remote has.
const allowAny capability.Capability = "allow-any-sha1-in-want"

// listing is what a remote answered when it was asked for its references.
type listing struct {
	owner string // of the view that asked
	begun time.Time
	refs  *packp.AdvRefs
	err   error
}

// maxListing is how many references are kept for others who ask soon.
const maxListing = 1000

// update is one run of bringing a mirror to a reference. It holds the lock of the mirror until it is closed.
type update struct {
	mirror *mirror
	ctx    context.Context
	cancel context.CancelFunc
	remote Remote
	ref    Reference
	owner  string
	conn   *wire.Conn
}

// Resolved is a revision that a reference leads to. Unless the mirror has it already, the mirror stays locked and the
// connection to the remote open until Fetch or Close is called.
type Resolved struct {
	Revision
	update *update // nil once there is nothing left to do
	target target
}

// Fetch fetches the revision into the mirror, unless the mirror has it. The context of the call that resolved the
// revision applies. The error is a fault.
func (r *Resolved) Fetch() error {
	if r.update == nil {
		return nil
	}
	defer r.Close()
	return r.update.bringAny(r.target)
}

// Close releases the mirror and the connection. It is idempotent and always returns nil.
func (r *Resolved) Close() error {
	if r.update != nil {
		r.update.close()
		r.update = nil
	}
	return nil
}

// update brings the mirror to a reference: it resolves the reference and fetches the revision.
func (m *mirror) update(ctx context.Context, remote Remote, ref Reference, owner string, fresh bool) (Revision,
	error) {
	r, err := m.resolve(ctx, remote, ref, owner, fresh)
	if err != nil {
		return Revision{}, err
	}
	return r.Revision, r.Fetch()
}

// resolve finds the revision of a reference. It asks the remote once for its references; a pinned commit that
// the mirror has costs no request at all. References that the remote listed for another owner less than
// [limits].moment ago count, unless fresh requires an answer to a request made from now on.
func (m *mirror) resolve(ctx context.Context, remote Remote, ref Reference, owner string, fresh bool) (*Resolved,
	error) {
	pinned, isPinned, err := ref.pinned()
	if err != nil {
		return nil, err
	}
	if isPinned && m.holds(plumbing.NewHash(pinned.Commit)) {
		return &Resolved{Revision: pinned}, nil
	}
	cancel := func() {}
	if _, ok := ctx.Deadline(); !ok {
		ctx, cancel = context.WithTimeout(ctx, defaultTimeout)
	}
	asked := time.Now()
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		cancel()
		return nil, busy(remote, ctx.Err())
	}
	remote.Scratch = m.dir
	u := &update{mirror: m, ctx: ctx, cancel: cancel, remote: remote, ref: ref, owner: owner}
	r, err := u.resolve(asked, fresh)
	if err != nil || r.update == nil {
		u.close()
	}
	return r, err
}

// close releases the lock of the mirror and the connection.
func (u *update) close() {
	u.hangUp()
	u.cancel()
	<-u.mirror.turn
}

// resolve finds the revision. The result refers to the update if something is left to fetch.
func (u *update) resolve(asked time.Time, fresh bool) (*Resolved, error) {
	if revision, done, err := u.mirror.known(u.ref, u.owner, asked, fresh); done {
		return &Resolved{Revision: revision}, err
	}
	if err := u.dial(); err != nil {
		return nil, err
	}
	t, err := u.ref.resolve(u.conn.Refs)
	if err != nil {
		return nil, err
	}
	if u.mirror.arrived(t) {
		return &Resolved{Revision: t.Revision}, nil
	}
	return &Resolved{Revision: t.Revision, update: u, target: t}, nil
}

// busy explains that another one has the mirror for too long.
func busy(remote Remote, err error) error {
	return gitFault("another fetch from %s takes too long", fault.RedactURL(remote.URL)).Because(err).
		WithHint("Check the network, or raise spec.timeout")
}

// known answers from the last listing, if it counts and nothing is to be fetched.
func (m *mirror) known(ref Reference, owner string, asked time.Time, fresh bool) (Revision, bool, error) {
	l := &m.listing
	after := l.begun.After(asked) // while this one waited for its turn
	if l.err != nil {
		return Revision{}, after, l.err
	}
	if l.refs == nil || !after && (fresh || l.owner == owner || asked.Sub(l.begun) > m.limits.moment) {
		return Revision{}, false, nil
	}
	t, err := ref.resolve(l.refs)
	return t.Revision, err == nil && m.arrived(t), nil
}

func (u *update) dial() error {
	u.hangUp()
	begun := time.Now()
	conn, err := wire.Dial(u.ctx, u.remote)
	switch {
	case err == nil && len(conn.Refs.References) <= maxListing:
		u.mirror.listing = listing{u.owner, begun, conn.Refs, nil}
	case err != nil && u.ctx.Err() == nil: // else it is this one's own haste
		u.mirror.listing = listing{u.owner, begun, nil, err}
	default:
		u.mirror.listing = listing{}
	}
	if err == nil {
		u.mirror.notes = conn.Refs.References[NotesRef]
	}
	u.conn = conn
	return err
}

func (u *update) hangUp() {
	if u.conn == nil {
		return
	}
	u.conn.Close()
	s := u.conn.Stats()
	u.mirror.counts.requests.Add(s.Requests)
	u.mirror.counts.bytes.Add(s.BytesReceived)
	u.conn = nil
}

// bringAny fetches the commit, whether or not the remote lists it.
func (u *update) bringAny(t target) error {
	if t.hidden && !u.conn.Supports(capability.AllowReachableSHA1InWant) && !u.conn.Supports(allowAny) {
		return u.bringHistory(t)
	}
	return u.bring(t)
}

// bring fetches the commit: what is new of it, or all of it when nothing is held to build on.
func (u *update) bring(t target) error {
	r := u.mirror.current.Load()
	if r != nil && !r.damaged.Load() && r.objects.Len() < u.mirror.limits.packs {
		err := u.fetch(r, t, wire.Request{Want: u.wanted(t), Single: u.conn.Supports(capability.Shallow),
			Have: r.latest(maxTips)})
		if err == nil || t.hidden || !u.worthFetchingAnew(err) {
			return err
		}
		if err := u.dial(); err != nil {
			return err
		}
	}
	return u.anew(t, wire.Request{Want: u.wanted(t), Single: u.conn.Supports(capability.Shallow)})
}

// wanted is what to fetch for a target: with it the notes, so that they cost no request of their own.
func (u *update) wanted(t target) []plumbing.Hash {
	if notes := u.mirror.notes; !notes.IsZero() && notes != t.want && !u.mirror.holds(notes) {
		return []plumbing.Hash{t.want, notes}
	}
	return []plumbing.Hash{t.want}
}

// bringHistory finds a commit that the remote does not hand out by its hash: in the history of its
// branch, or else of the remote's own.
func (u *update) bringHistory(t target) error {
	if head := u.conn.Refs.Head; u.ref.Branch == "" && head != nil {
		return u.anew(t, wire.Request{Want: []plumbing.Hash{*head}})
	}
	branch, err := Reference{Branch: u.ref.Branch}.resolve(u.conn.Refs)
	if err != nil {
		return err
	}
	return u.anew(t, wire.Request{Want: []plumbing.Hash{branch.want}})
}

// worthFetchingAnew tells whether the failure may come from what is held, on either side.
func (u *update) worthFetchingAnew(err error) bool {
	var refused *wire.Refused
	return u.ctx.Err() == nil && (errors.Is(err, packstore.ErrMalformed) || errors.Is(err, packstore.ErrDamaged) ||
		errors.As(err, &refused))
}

// anew fetches into a repository of its own, which takes the place of the current one once it holds the commit.
func (u *update) anew(t target, request wire.Request) error {
	m := u.mirror
	number := m.number + 1
	dir := m.path(number)
	if err := os.RemoveAll(dir); err != nil {
		return storageFault("cannot tidy the mirror's directory", err)
	}
	r, err := createRepository(dir)
	if err != nil {
		return storageFault("cannot make the mirror's directory", err)
	}
	if err := u.fetch(r, t, request); err != nil {
		_ = os.RemoveAll(dir) // or else when the mirror is opened again
		return err
	}
	return m.replaceBy(r, number)
}

// fetch asks for a pack, stores it, and notes the commit.
func (u *update) fetch(r *repository, t target, request wire.Request) error {
	if !request.Single { // of what is held, only what has all of its history can be built on
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
	stream := &remembering{Reader: answer.Pack}
	switch err := r.objects.Add(u.ctx, stream); {
	case err == nil:
	case stream.err != nil:
		return answer.Explain(stream.err)
	case u.ctx.Err() != nil:
		return answer.Explain(u.ctx.Err())
	case errors.Is(err, packstore.ErrMalformed), errors.Is(err, packstore.ErrDamaged):
		return gitFault("what %s sends cannot be read", fault.RedactURL(u.remote.URL)).Because(err)
	default:
		return storageFault("cannot store what was fetched", err)
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
		return storageFault("cannot note what was fetched", err)
	}
	return nil
}

// notFound explains why there is no commit, if that is so.
func (u *update) notFound(t target, err error) error {
	var refused *wire.Refused
	switch {
	case err != nil && !errors.As(err, &refused):
		return err
	case t.hidden && u.ref.Branch != "":
		return gitFault("commit %s not found in branch '%s'", t.Commit, u.ref.Branch).Because(err).
			WithHint("Check spec.ref.commit and spec.ref.branch; a commit that was force-pushed away is gone")
	case t.hidden:
		return gitFault("commit %s not found on the remote", t.Commit).Because(err).
			WithHint("Check spec.ref.commit, and set spec.ref.branch to the branch that it is on")
	case err != nil:
		return err
	}
	return gitFault("'%s' does not lead to a commit", t.Ref).
		WithHint("Correct spec.ref: a tag may point to something else")
}

// remembering keeps the error that ended the stream: it tells the network's failures from the disk's.
type remembering struct {
	io.Reader
	err error
}

func (r *remembering) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
