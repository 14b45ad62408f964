package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// ErrRaced is the error if a reference was moved by someone else. Update, and create the commit again.
var ErrRaced = errors.New("the reference was changed by another push")

// RefUpdate moves a reference to a commit.
type RefUpdate struct {
	Name string // full name, such as refs/heads/main
	// Old is the expected hash of the reference; zero if it must not exist.
	Old plumbing.Hash
	// New is the new hash. It must be in the mirror, and must descend from Old.
	New plumbing.Hash
	// Force allows New not to descend from Old. A zero Old then matches any hash.
	Force bool
}

const (
	maxOptions = 64 // of a push
	maxOption  = 1 << 10
)

// Push sends the new objects of commits to the remote of the last update, and moves references to them. The push is
// atomic if the server supports it. If the connection is interrupted, Push checks the result at the remote.
// The error is a fault: it wraps ErrRaced if a reference was moved by another push, it is terminal if the
// server declines the push, and otherwise the push can be retried.
func (v *View) Push(ctx context.Context, updates []RefUpdate, options map[string]string) error {
	if err := checkPush(updates, options); err != nil {
		return err
	}
	if v.mirror == nil {
		return gitFault("the repository was not fetched yet")
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
	return p.record(ctx)
}

// refPattern matches names of references that all servers accept; see git-check-ref-format(1).
var refPattern = regexp.MustCompile(`^refs(/[^/\s~^:?*\[\\\x00-\x20\x7f]+)+$`)

// CheckRef returns a fault if name is not a valid full name of a reference.
func CheckRef(name string) error {
	bad := !refPattern.MatchString(name) || len(name) > maxOption || strings.Contains(name, "..") ||
		strings.Contains(name, "@{") || strings.HasSuffix(name, ".")
	for _, part := range strings.Split(name, "/") {
		bad = bad || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock")
	}
	if bad {
		return gitFault("'%s' is not a full reference name", wire.Printable(name)).
			WithHint("Use the form refs/heads/BRANCH, with a valid name").Final()
	}
	return nil
}

func checkPush(updates []RefUpdate, options map[string]string) error {
	if len(updates) == 0 {
		return gitFault("there is nothing to push")
	}
	for _, u := range updates {
		if err := CheckRef(u.Name); err != nil {
			return err
		}
		if u.New.IsZero() {
			return gitFault("the update of reference '%s' has no commit", u.Name)
		}
	}
	for name, value := range options {
		if name == "" || len(name)+len(value) > maxOption || strings.ContainsAny(name+value, "\n\x00") ||
			len(options) > maxOptions {
			return gitFault("push option '%s' is not valid", wire.Printable(name)).
				WithHint("Correct spec.git.push.options: name and value must be one line of at most %d bytes",
					maxOption).Final()
		}
	}
	return nil
}

// push is one push.
type push struct {
	view    *View
	remote  Remote
	updates []RefUpdate
	from    map[plumbing.Hash]*repository // repositories of the commits to push
	known   map[plumbing.Hash]bool        // commits on the remote
	sent    []wire.Command
}

// find sets the repositories of the commits. They stay readable if the mirror is replaced during the push.
func (p *push) find(ctx context.Context) error {
	unlock, err := p.view.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, u := range p.updates {
		r := p.view.created[u.New]
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
	defer p.close(conn)
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
			continue // already pushed
		}
		p.sent = append(p.sent, command)
		if err := c.history(p.from[u.New], u.New); err != nil {
			return gitFault("cannot read the objects to push").Because(err)
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
	return p.checkResult(ctx, report, err)
}

// command returns the command for an update. current is the hash of the reference on the remote.
func (p *push) command(u RefUpdate, current plumbing.Hash) (wire.Command, error) {
	c := wire.Command{Name: u.Name, Old: current, New: u.New}
	switch {
	case current == u.New, u.Force && u.Old.IsZero():
		return c, nil
	case current != u.Old:
		return c, p.raced(u.Name)
	case u.Force || current.IsZero():
		return c, nil
	}
	if !p.from[u.New].descends(u.New, current) {
		return c, gitFault("commit %s is not a descendant of '%s' of %s", u.New, u.Name, fault.RedactURL(p.remote.URL)).
			WithHint("Push to another branch").Final()
	}
	return c, nil
}

func (p *push) raced(name string) error {
	return gitFault("cannot push to '%s' of %s", name, fault.RedactURL(p.remote.URL)).Because(ErrRaced).
		WithHint("The push is retried on top of the current commit")
}

// raceMessage matches the messages of servers if another push updates the reference at the same time.
var raceMessage = regexp.MustCompile(`(?i)lock|failed to update ref|incorrect old value|` +
	`reference already exists|refresh and try again|fetch first|stale info|non-fast-forward`)

// checkResult checks at the remote whether a push succeeded that failed or has no result. The references are reliable,
// while messages of servers differ.
func (p *push) checkResult(ctx context.Context, report *wire.Report, failure error) error {
	conn, err := p.dial(ctx)
	if err != nil {
		if failure == nil {
			failure = p.declined(report)
		}
		return failure
	}
	defer p.close(conn)
	updated := 0
	for _, c := range p.sent {
		switch conn.Refs.References[c.Name] {
		case c.New:
			updated++
		case c.Old:
		default:
			return p.raced(c.Name)
		}
	}
	switch {
	case updated == len(p.sent):
		return nil
	case failure != nil:
		return failure
	}
	for name, message := range report.Refused {
		if raceMessage.MatchString(message) {
			// a lock that a push left behind when its server was killed lasts until it is removed
			return fault.As(p.raced(name)).Because(fmt.Errorf("%w (the server reports: %s)", ErrRaced,
				wire.Printable(message)))
		}
	}
	return p.declined(report)
}

// declined returns the fault for a push that the server declined. A failure to unpack may be temporary.
func (p *push) declined(report *wire.Report) error {
	where := fault.RedactURL(p.remote.URL)
	refused := func(message string) error {
		if report.Output != "" && !strings.Contains(report.Output, message) {
			message += ": " + report.Output
		} else if report.Output != "" {
			message = report.Output
		}
		return &wire.Refused{Message: message}
	}
	if report.Unpack != "" {
		return gitFault("%s could not unpack the push", where).Because(refused(report.Unpack))
	}
	names := make([]string, 0, len(report.Refused))
	for name := range report.Refused {
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[0]
	for _, n := range names { // the cause of the failure of an atomic push
		if !strings.Contains(report.Refused[n], "atomic") {
			name = n
			break
		}
	}
	return gitFault("%s declined the push to '%s'", where, wire.Printable(name)).Because(refused(report.Refused[name])).
		WithHint("Check the branch's protection and the server's hooks, or push to another branch and open a " +
			"pull request").Final()
}

func (p *push) dial(ctx context.Context) (*wire.Conn, error) { return wire.DialPush(ctx, p.remote) }

// close ends a conversation and adds its counts.
func (p *push) close(conn *wire.Conn) {
	conn.Close()
	s := conn.Stats()
	p.view.mirror.counts.requests.Add(s.Requests)
	p.view.mirror.counts.bytes.Add(s.BytesReceived)
}

// record records the pushed commits, so that they are not fetched. It does nothing if ctx has ended.
func (p *push) record(ctx context.Context) error {
	unlock, err := p.view.lock(ctx)
	if err != nil {
		return nil // the push succeeded; its commits are fetched later
	}
	defer unlock()
	m := p.view.mirror
	m.listing = listing{}
	r := m.current.Load()
	for _, u := range p.updates {
		delete(p.view.created, u.New)
		if u.Name == NotesRef {
			m.notes = u.New
		}
		if r == nil || !r.holds(u.New) {
			continue
		}
		// the mirror does not contain the parents
		if err := r.record([]plumbing.Hash{u.New}, u.New); err != nil {
			return storageFault("cannot record the pushed commit", err)
		}
	}
	return nil
}
