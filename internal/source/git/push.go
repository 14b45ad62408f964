package git

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
)

// ErrRaced says that somebody else moved a reference in between: update, and commit upon what is there now.
var ErrRaced = errors.New("somebody else pushed in between")

// RefUpdate asks that a reference lead to a commit.
type RefUpdate struct {
	Name string // in full, such as refs/heads/main
	// Old is where the reference must be for the update to happen; zero: it must not be there.
	Old plumbing.Hash
	// New must be in the mirror, and build upon Old.
	New plumbing.Hash
	// Force lets go of commits: New need not build upon Old, and a zero Old stands for whatever is there.
	Force bool
}

const (
	maxOptions = 64 // of one push
	maxOption  = 1 << 10
)

// Push sends commits to the remote of the last update, with exactly the objects that are new, and moves
// references to them: all of them or none, if the server is able to. What became of a push that broke off is
// asked for. Errors are faults: one for which errors.Is(err, ErrRaced) holds when a reference was moved by
// another, a terminal one when the server declines, any other may be tried again.
func (v *View) Push(ctx context.Context, updates []RefUpdate, options map[string]string) error {
	if err := checkPush(updates, options); err != nil {
		return err
	}
	if v.mirror == nil {
		return gitFault("nothing was fetched yet")
	}
	p := &push{view: v, remote: v.remote, updates: updates, from: map[plumbing.Hash]*repository{},
		known: map[plumbing.Hash]bool{}}
	p.remote.Scratch = v.mirror.dir
	if err := p.find(ctx); err != nil {
		return err
	}
	if err := p.run(ctx, options); err != nil {
		return err
	}
	return p.note(ctx)
}

// refPattern is what every server takes as a name; git-check-ref-format(1) has the rules.
var refPattern = regexp.MustCompile(`^refs(/[^/\s~^:?*\[\\\x00-\x20\x7f]+)+$`)

// CheckRef tells whether a full name of a reference is one. The error is a fault.
func CheckRef(name string) error {
	bad := !refPattern.MatchString(name) || len(name) > maxOption || strings.Contains(name, "..") ||
		strings.Contains(name, "@{") || strings.HasSuffix(name, ".")
	for _, part := range strings.Split(name, "/") {
		bad = bad || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock")
	}
	if bad {
		return gitFault("'%s' is not the name of a reference", wire.Printable(name)).
			WithHint("Write it as refs/heads/BRANCH").Final()
	}
	return nil
}

func checkPush(updates []RefUpdate, options map[string]string) error {
	if len(updates) == 0 {
		return gitFault("nothing is to be pushed")
	}
	for _, u := range updates {
		if err := CheckRef(u.Name); err != nil {
			return err
		}
		if u.New.IsZero() {
			return gitFault("reference '%s' is to lead to no commit", u.Name)
		}
	}
	for name, value := range options {
		if name == "" || len(name)+len(value) > maxOption || strings.ContainsAny(name+value, "\n\x00") ||
			len(options) > maxOptions {
			return gitFault("the push option '%s' cannot be sent", wire.Printable(name)).
				WithHint("Correct spec.git.push.options: a name and a value of one line, %d bytes at most",
					maxOption).Final()
		}
	}
	return nil
}

// push is one run of moving references.
type push struct {
	view    *View
	remote  Remote
	updates []RefUpdate
	from    map[plumbing.Hash]*repository // what holds a commit that is to be pushed
	known   map[plumbing.Hash]bool        // commits that the remote has
	sent    []wire.Command
}

// find finds what holds the commits. From here on the mirror may be fetched anew: what it holds stays readable.
func (p *push) find(ctx context.Context) error {
	done, err := p.view.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	for _, u := range p.updates {
		r := p.view.made[u.New]
		if r == nil {
			if r, err = p.view.repository(Revision{Commit: u.New.String()}); err != nil {
				return err
			}
		}
		p.from[u.New] = r
		for _, tip := range r.tips {
			p.known[tip] = true
		}
	}
	return nil
}

func (p *push) run(ctx context.Context, options map[string]string) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer p.hangUp(conn)
	for _, h := range conn.Refs.References {
		p.known[h] = true
	}
	c := &collector{ctx: ctx, known: p.known, whole: !conn.Thin(), sent: map[plumbing.Hash]role{}}
	for _, u := range p.updates {
		command, err := p.command(u, conn.Refs.References[u.Name])
		if err != nil {
			return err
		}
		if command.Old == command.New {
			continue // it is there already
		}
		p.sent = append(p.sent, command)
		if err := c.history(p.from[u.New], u.New); err != nil {
			return gitFault("cannot read what is to be pushed").Because(err)
		}
	}
	if len(p.sent) == 0 {
		return nil
	}
	var pack bytes.Buffer
	if err := packstore.Encode(&pack, c.objects); err != nil {
		return err
	}
	report, err := conn.Push(ctx, wire.Push{Commands: p.sent, Options: options, Pack: pack.Bytes()})
	if err == nil && report.Unpack == "" && len(report.Refused) == 0 {
		return nil
	}
	if fault.As(err) != nil && fault.As(err).Terminal {
		return err
	}
	return p.settle(ctx, report, err)
}

// command decides what to ask for, by what is there.
func (p *push) command(u RefUpdate, there plumbing.Hash) (wire.Command, error) {
	c := wire.Command{Name: u.Name, Old: there, New: u.New}
	switch {
	case there == u.New, u.Force && u.Old.IsZero():
		return c, nil
	case there != u.Old:
		return c, p.raced(u.Name)
	case u.Force || there.IsZero():
		return c, nil
	}
	if !p.from[u.New].descends(u.New, there) {
		return c, gitFault("%s does not build upon what %s has as '%s'", u.New, fault.RedactURL(p.remote.URL), u.Name).
			WithHint("Push by force, or to another branch").Final()
	}
	return c, nil
}

func (p *push) raced(name string) error {
	return gitFault("cannot push to '%s' of %s", name, fault.RedactURL(p.remote.URL)).Because(ErrRaced).
		WithHint("It is tried again upon what is there now")
}

// busyRemote matches what servers say when another push has the reference right now, or had it a moment ago.
var busyRemote = regexp.MustCompile(`(?i)lock|failed to update ref|incorrect old value|reference already exists|refresh and try again|fetch first|stale info|non-fast-forward`)

// settle finds out what became of a push that was not taken, or of which nothing is known: what servers say
// differs, what they have does not.
func (p *push) settle(ctx context.Context, report *wire.Report, failure error) error {
	conn, err := p.dial(ctx)
	if err != nil {
		if failure == nil {
			failure = p.declined(report)
		}
		return failure
	}
	defer p.hangUp(conn)
	arrived := 0
	for _, c := range p.sent {
		switch conn.Refs.References[c.Name] {
		case c.New:
			arrived++
		case c.Old:
		default:
			return p.raced(c.Name)
		}
	}
	switch {
	case arrived == len(p.sent):
		return nil
	case failure != nil:
		return failure
	}
	for name, why := range report.Refused {
		if busyRemote.MatchString(why) {
			return p.raced(name)
		}
	}
	return p.declined(report)
}

// declined tells what the server said. What it could not unpack may come through the next time.
func (p *push) declined(report *wire.Report) error {
	where := fault.RedactURL(p.remote.URL)
	said := func(why string) error {
		if report.Said != "" && !strings.Contains(report.Said, why) {
			why += ": " + report.Said
		} else if report.Said != "" {
			why = report.Said
		}
		return &wire.Refused{Words: why}
	}
	if report.Unpack != "" {
		return gitFault("%s could not take what was pushed", where).Because(said(report.Unpack))
	}
	names := make([]string, 0, len(report.Refused))
	for name := range report.Refused {
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[0]
	for _, n := range names { // the one that is at fault, of several that fell together
		if !strings.Contains(report.Refused[n], "atomic") {
			name = n
			break
		}
	}
	return gitFault("%s declines the push to '%s'", where, wire.Printable(name)).Because(said(report.Refused[name])).
		WithHint("Check the branch's protection and the server's hooks, or push to another branch and open a " +
			"pull request").Final()
}

func (p *push) dial(ctx context.Context) (*wire.Conn, error) { return wire.DialPush(ctx, p.remote) }

func (p *push) hangUp(conn *wire.Conn) {
	conn.Close()
	s := conn.Stats()
	p.view.mirror.counts.requests.Add(s.Requests)
	p.view.mirror.counts.bytes.Add(s.BytesReceived)
}

// note notes what the remote has now, so that it is not fetched. It is no loss if there is no time left for that.
func (p *push) note(ctx context.Context) error {
	done, err := p.view.begin(ctx)
	if err != nil {
		return nil // the push was taken: what is not noted is fetched
	}
	defer done()
	m := p.view.mirror
	m.listing = listing{}
	r := m.current.Load()
	for _, u := range p.updates {
		delete(p.view.made, u.New)
		if u.Name == NotesRef {
			m.notes = u.New
		}
		if r == nil || !r.holds(u.New) {
			continue
		}
		// The remote is told to be without what is before it, as the mirror is.
		if err := r.record([]plumbing.Hash{u.New}, u.New); err != nil {
			return storageFault("cannot note what was pushed", err)
		}
	}
	return nil
}
