package git

import (
	"bytes"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/source/git/wire"
)

// Commit holds the author and the subject of a commit. Both are one printable line of at most a few hundred bytes.
type Commit struct{ Author, Subject string }

// About returns the author and the subject of a revision in the mirror. The error is a fault.
func (v *View) About(revision Revision) (Commit, error) {
	r, err := v.repository(revision)
	if err != nil {
		return Commit{}, err
	}
	_, data, err := r.objects.Read(plumbing.NewHash(revision.Commit))
	if err != nil {
		return Commit{}, gitFault("cannot read commit %s", revision.Commit).Because(err)
	}
	return parseCommit(data), nil
}

// parseCommit returns the author, without the time, and the first paragraph of the message.
func parseCommit(data []byte) Commit {
	var c Commit
	headers, message, _ := bytes.Cut(data, []byte("\n\n"))
	for line := range bytes.Lines(headers) {
		if author, ok := bytes.CutPrefix(line, []byte("author ")); ok && c.Author == "" {
			end := bytes.LastIndexByte(author, '>') + 1
			c.Author = wire.Printable(string(author[:end]))
		}
	}
	subject, _, _ := bytes.Cut(bytes.TrimLeft(message, "\n"), []byte("\n\n"))
	c.Subject = wire.Printable(string(subject))
	return c
}
