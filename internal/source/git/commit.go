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

	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/git/packstore"
)

// ErrUnchanged says that a commit would have the tree of its parent.
var ErrUnchanged = errors.New("nothing would change")

// maxMessage bounds, in bytes, the message of a commit and the text of a note.
const maxMessage = 64 << 10

// Edit sets a file to a content, or removes it when Content is nil. A file that is there keeps its mode.
type Edit struct {
	Path    string // slash-separated, from the top
	Content []byte
}

// Signature is who did something, and when.
type Signature struct {
	Name, Email string
	When        time.Time // now when zero
}

// NewCommit is a commit that is to be made.
type NewCommit struct {
	Parent            plumbing.Hash // whose tree is edited
	Edits             []Edit
	Author, Committer Signature // the author commits when Committer has no e-mail address
	Message           string
	// Sign, when set, returns an armored signature of the payload, which is the commit without it.
	Sign func(payload []byte) (string, error)
}

// Commit makes a commit in the mirror, which Push then sends; until then only this view knows of it. The
// parent must be in the mirror. ErrUnchanged says that there is nothing to commit; any other error is a
// fault.
func (v *View) Commit(ctx context.Context, c NewCommit) (plumbing.Hash, error) {
	done, err := v.begin(ctx)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer done()
	r, err := v.repository(Revision{Commit: c.Parent.String()})
	if err != nil {
		return plumbing.ZeroHash, err
	}
	w := &writer{from: r}
	hash, err := w.commit(c)
	if err != nil {
		if fault.As(err) == nil && !errors.Is(err, ErrUnchanged) {
			err = gitFault("cannot make a commit upon %s", c.Parent).Because(err)
		}
		return plumbing.ZeroHash, err
	}
	return hash, v.store(ctx, w, hash)
}

// begin waits until nobody else changes the mirror of the last update.
func (v *View) begin(ctx context.Context) (done func(), err error) {
	if v.mirror == nil {
		return nil, gitFault("nothing was fetched yet")
	}
	select {
	case v.mirror.turn <- struct{}{}:
		return func() { <-v.mirror.turn }, nil
	case <-ctx.Done():
		return nil, busy(v.remote, ctx.Err())
	}
}

// store puts the new objects into the mirror, and remembers where: it may be fetched anew before they are pushed.
func (v *View) store(ctx context.Context, w *writer, commit plumbing.Hash) error {
	if len(w.objects) > 0 {
		if err := w.from.objects.Put(ctx, w.objects); err != nil {
			return storageFault("cannot store a commit", err)
		}
	}
	if v.made == nil {
		v.made = map[plumbing.Hash]*repository{}
	}
	v.made[commit] = w.from
	return nil
}

// writer makes objects that a repository does not have.
type writer struct {
	from    *repository
	objects []packstore.Object
	added   map[plumbing.Hash]bool
}

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
		return plumbing.ZeroHash, gitFault("a commit needs a message").
			WithHint("Correct the template of the message").Final()
	}
	root, err := w.from.rootTree(c.Parent)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	tree, err := w.editTop(root, c.Edits)
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

// encode writes the commit as git has it. A signature is a header, whose further lines begin with a space.
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

// String writes a signature as git has it. What would end a name or an address early is left out.
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

// cleanMessage makes a text that ends with one newline.
func cleanMessage(text string) string {
	text = strings.ToValidUTF8(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\x00", ""), "?")
	return strings.TrimSpace(excerpt.Bytes(text, maxMessage)) + "\n"
}
