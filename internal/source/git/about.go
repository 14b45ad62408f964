package git

import (
	"bytes"
	"strconv"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/source/git/wire"
)

// Commit describes a commit. The texts are one printable line of at most a few hundred bytes.
type Commit struct {
	Author, Subject string
	At              time.Time // when it was committed; zero if the commit does not say so in a readable way
}

// About describes the commit of a revision in the mirror. The error is a fault.
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

// maxCommitTime bounds the time of a commit: the end of year 9999.
const maxCommitTime = 253402300799

// parseCommit returns the author, the time of the committer, and the first paragraph of the message.
func parseCommit(data []byte) Commit {
	var c Commit
	headers, message, _ := bytes.Cut(data, []byte("\n\n"))
	for line := range bytes.Lines(headers) {
		if author, ok := bytes.CutPrefix(line, []byte("author ")); ok && c.Author == "" {
			end := bytes.LastIndexByte(author, '>') + 1
			c.Author = wire.Printable(string(author[:end]))
		}
		if committer, ok := bytes.CutPrefix(line, []byte("committer ")); ok && c.At.IsZero() {
			seconds, _, _ := bytes.Cut(bytes.TrimSpace(committer[bytes.LastIndexByte(committer, '>')+1:]), []byte(" "))
			if at, err := strconv.ParseInt(string(seconds), 10, 64); err == nil && at > 0 && at <= maxCommitTime {
				c.At = time.Unix(at, 0).UTC()
			}
		}
	}
	subject, _, _ := bytes.Cut(bytes.TrimLeft(message, "\n"), []byte("\n\n"))
	c.Subject = wire.Printable(string(subject))
	return c
}
