package git

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/sluice-gitops/sluice/internal/source/git/wire"
)

// NotesRef is the reference of the notes that Sluice adds to its commits: what was changed, by which policy, why and by
// whom.
const NotesRef = "refs/notes/sluice"

const (
	// maxFlatNotes is the number of notes in a directory above which further notes go to subdirectories.
	maxFlatNotes = 256
	notesMessage = "Notes added by Sluice\n"
)

// Note returns the note of a commit, cut to 64 KiB; empty if there is none. Update fetches notes together
// with commits, so that Note rarely needs a request. The error is a fault.
func (v *View) Note(ctx context.Context, commit plumbing.Hash) (string, error) {
	unlock, err := v.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	r, err := v.notes(ctx)
	if err != nil || r == nil {
		return "", err
	}
	text, err := r.note(v.mirror.notes, commit)
	if err != nil {
		return "", gitFault("cannot read the note of commit %s", commit).Because(err)
	}
	if len(text) > maxMessage {
		text = text[:maxMessage]
	}
	return strings.ToValidUTF8(text, "?"), nil
}

// AddNote creates a commit of NotesRef that adds text to the note of a commit. It returns the update to push together
// with the commit. The error is a fault.
func (v *View) AddNote(ctx context.Context, commit plumbing.Hash, text string, author Signature) (RefUpdate, error) {
	unlock, err := v.lock(ctx)
	if err != nil {
		return RefUpdate{}, err
	}
	defer unlock()
	r, err := v.notes(ctx)
	if err != nil {
		return RefUpdate{}, err
	}
	update := RefUpdate{Name: NotesRef, Old: v.mirror.notes}
	if r == nil {
		if r = v.mirror.current.Load(); r == nil {
			return RefUpdate{}, gitFault("the repository was not fetched yet")
		}
	}
	w := &writer{from: r}
	if update.New, err = w.note(update.Old, commit, cleanMessage(text), author); err != nil {
		return RefUpdate{}, gitFault("cannot add a note to commit %s", commit).Because(err)
	}
	return update, v.store(ctx, w, update.New)
}

// notes fetches the notes of the remote if necessary, and returns their repository; nil if there are none.
func (v *View) notes(ctx context.Context) (*repository, error) {
	m := v.mirror
	if m.notes.IsZero() {
		return nil, nil
	}
	if !m.holds(m.notes) {
		remote := v.remote
		remote.Scratch = m.dir
		u := &update{mirror: m, ctx: ctx, remote: remote, owner: v.owner}
		defer u.disconnect()
		if err := u.fetchNotes(); err != nil {
			return nil, err
		}
	}
	if m.notes.IsZero() {
		return nil, nil
	}
	return m.current.Load(), nil
}

// fetchNotes fetches the current notes.
func (u *update) fetchNotes() error {
	if err := u.dial(); err != nil {
		return err
	}
	tip := u.mirror.notes
	r := u.mirror.current.Load()
	if tip.IsZero() || u.mirror.holds(tip) || r == nil {
		return nil
	}
	t := target{Revision: Revision{Ref: NotesRef, Commit: tip.String()}, want: tip, hidden: false}
	return u.fetch(r, t, wire.Request{Want: []plumbing.Hash{tip}, Single: u.conn.Supports(capability.Shallow),
		Have: r.latest(maxTips)})
}

// note returns a note. Its path is the hash of the commit, split into any number of directories of two digits.
func (r *repository) note(tip, commit plumbing.Hash) (string, error) {
	tree, err := r.rootTree(tip)
	for name := commit.String(); err == nil; {
		var entries []entry
		if entries, err = r.entries(tree); err != nil {
			break
		}
		if i := slices.IndexFunc(entries, func(e entry) bool { return e.name == name && !isDirectory(e) }); i >= 0 {
			var text []byte
			_, text, err = r.objects.Read(entries[i].hash)
			return string(text), err
		}
		i := slices.IndexFunc(entries, func(e entry) bool {
			return len(name) > 2 && e.name == name[:2] &&
				isDirectory(e)
		})
		if i < 0 {
			return "", nil
		}
		tree, name = entries[i].hash, name[2:]
	}
	return "", err
}

// note adds text to the note of a commit, and returns the new commit of the notes.
func (w *writer) note(tip, commit plumbing.Hash, text string, author Signature) (plumbing.Hash, error) {
	c := NewCommit{Parent: tip, Author: author, Message: notesMessage}
	var root plumbing.Hash
	if !tip.IsZero() {
		before, err := w.from.note(tip, commit)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		switch {
		case strings.Contains("\n"+before, "\n"+text):
			return tip, nil
		case before != "":
			text = strings.TrimRight(before, "\n") + "\n\n" + text
		}
		if root, err = w.from.rootTree(tip); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	tree, err := w.noteIn(root, commit.String(), []byte(text))
	if err != nil {
		return plumbing.ZeroHash, err
	}
	data, err := c.encode(tree)
	return w.add(plumbing.CommitObject, data), err
}

// noteIn adds a note to a directory: in its place if it exists, otherwise in a subdirectory if there are some or the
// directory is full.
func (w *writer) noteIn(tree plumbing.Hash, name string, text []byte) (plumbing.Hash, error) {
	entries, err := w.entries(tree)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	at := slices.IndexFunc(entries, func(e entry) bool { return e.name == name && !isDirectory(e) })
	if at >= 0 {
		entries[at].hash = w.add(plumbing.BlobObject, text)
		return w.directory(entries), nil
	}
	if len(name) <= 2 {
		return plumbing.ZeroHash, errors.New("the notes are nested too deeply")
	}
	below := slices.IndexFunc(entries, func(e entry) bool { return e.name == name[:2] && isDirectory(e) })
	if below < 0 && len(entries) < maxFlatNotes && !slices.ContainsFunc(entries, isDirectory) {
		return w.directory(append(entries, entry{mode: modeFile, name: name,
			hash: w.add(plumbing.BlobObject, text)})), nil
	}
	if below < 0 {
		below = len(entries)
		entries = append(entries, entry{mode: modeDir, name: name[:2]})
	}
	entries[below].hash, err = w.noteIn(entries[below].hash, name[2:], text)
	return w.directory(entries), err
}
