package git

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// ErrUnchanged is the error for a commit that would have the tree of its parent.
var ErrUnchanged = errors.New("the commit changes nothing")

// maxMessage is the maximum size, in bytes, of the message of a commit and of a note.
const maxMessage = 64 << 10

// Edit sets the content of a file, or removes the file if Content is nil. An existing file keeps its mode.
type Edit struct {
	Path    string // slash-separated, from the root
	Content []byte
}

// Signature is the author or committer of a commit.
type Signature struct {
	Name, Email string
	When        time.Time // now when zero
}

// NewCommit is a commit to create.
type NewCommit struct {
	Parent            plumbing.Hash // its tree is edited; zero for the first commit, see [View.Begin]
	Edits             []Edit
	Author, Committer Signature // Committer is Author if it has no e-mail address
	Message           string
	// Sign returns an armored signature of payload, the commit without a signature. The commit is not signed when nil.
	Sign func(payload []byte) (string, error)
}

// Commit creates a commit in the mirror. Only this view can use it until it is pushed. The parent must be in
// the mirror. The error is ErrUnchanged if there is nothing to commit, otherwise a fault.
func (v *View) Commit(ctx context.Context, c NewCommit) (plumbing.Hash, error) {
	unlock, err := v.lock(ctx)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer unlock()
	r, err := v.parent(c.Parent)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	w := &writer{from: r}
	hash, err := w.commit(c)
	if err != nil {
		if fault.As(err) == nil && !errors.Is(err, ErrUnchanged) {
			err = gitFault("cannot create a commit on top of %s", c.Parent).Because(err)
		}
		return plumbing.ZeroHash, err
	}
	return hash, v.store(ctx, w, hash)
}

// parent returns the repository to create a commit in. The first commit of a remote has no parent.
func (v *View) parent(commit plumbing.Hash) (*repository, error) {
	if r := v.mirror.current.Load(); commit.IsZero() && r != nil {
		return r, nil
	}
	return v.repository(Revision{Commit: commit.String()})
}

// lock locks the mirror of the last update.
func (v *View) lock(ctx context.Context) (unlock func(), err error) {
	if v.mirror == nil {
		return nil, gitFault("the repository was not fetched yet")
	}
	select {
	case v.mirror.lock <- struct{}{}:
		return func() { <-v.mirror.lock }, nil
	case <-ctx.Done():
		return nil, lockTimeout(v.remote, ctx.Err())
	}
}

// store stores the new objects, and records the repository of the commit, since the mirror may be replaced before the
// commit is pushed.
func (v *View) store(ctx context.Context, w *writer, commit plumbing.Hash) error {
	if len(w.objects) > 0 {
		if err := w.from.objects.Put(ctx, w.objects); err != nil {
			return storageFault("cannot store a commit", err)
		}
	}
	if v.created == nil {
		v.created = map[plumbing.Hash]*repository{}
	}
	v.created[commit] = w.from
	return nil
}

// writer collects new objects for a repository.
type writer struct {
	from    *repository
	objects []packstore.Object
	added   map[plumbing.Hash]bool
}

// add adds an object unless it exists, and returns its hash.
func (w *writer) add(kind plumbing.ObjectType, data []byte) plumbing.Hash {
	hash := plumbing.ComputeHash(kind, data)
	if !w.added[hash] && !w.from.objects.Has(hash) {
		if w.added == nil {
			w.added = map[plumbing.Hash]bool{}
		}
		w.added[hash] = true
		w.objects = append(w.objects, packstore.Object{Kind: kind, Data: data})
	}
	return hash
}

func (w *writer) commit(c NewCommit) (plumbing.Hash, error) {
	if strings.TrimSpace(c.Message) == "" {
		return plumbing.ZeroHash, gitFault("the commit message is empty").
			WithHint("Correct spec.git.commit.messageTemplate").Final()
	}
	var root plumbing.Hash
	if !c.Parent.IsZero() {
		var err error
		if root, err = w.from.rootTree(c.Parent); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	tree, err := w.editRoot(root, c.Edits)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if tree == root {
		return plumbing.ZeroHash, ErrUnchanged
	}
	data, err := c.encode(tree)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return w.add(plumbing.CommitObject, data), nil
}

// encode returns the commit in the format of git. The signature is a header whose continuation lines begin
// with a space.
func (c *NewCommit) encode(tree plumbing.Hash) ([]byte, error) {
	committer := c.Committer
	if committer.Email == "" {
		committer = c.Author
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "tree %s\n", tree)
	if !c.Parent.IsZero() {
		fmt.Fprintf(&head, "parent %s\n", c.Parent)
	}
	fmt.Fprintf(&head, "author %s\ncommitter %s\n", c.Author, committer)
	body := "\n" + cleanMessage(c.Message)
	if c.Sign != nil {
		signature, err := c.Sign(append(bytes.Clone(head.Bytes()), body...))
		if err != nil {
			return nil, err
		}
		signature = strings.ReplaceAll(strings.TrimSpace(signature), "\r\n", "\n")
		fmt.Fprintf(&head, "gpgsig %s\n", strings.ReplaceAll(signature, "\n", "\n "))
	}
	head.WriteString(body)
	return head.Bytes(), nil
}

// String returns the signature in the format of git, without characters that would end the name or the address.
func (s Signature) String() string {
	when := s.When
	if when.IsZero() {
		when = time.Now()
	}
	clean := func(text string) string {
		return strings.Trim(strings.Map(func(r rune) rune {
			if r == '<' || r == '>' || unicode.IsControl(r) {
				return -1
			}
			return r
		}, strings.ToValidUTF8(text, "")), " .,:;\"\\'")
	}
	email := clean(s.Email)
	return fmt.Sprintf("%s <%s> %d %s", cmp.Or(clean(s.Name), email, "unknown"), email, max(0, when.Unix()),
		when.Format("-0700"))
}

// cleanMessage returns a valid text that ends with one newline.
func cleanMessage(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\x00", ""), "?")
	return strings.TrimSpace(excerpt.Bytes(text, maxMessage)) + "\n"
}
