package guard

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	answerShare  = 8               // an answer may use this part of the budget
	answerFactor = 3               // memory for each byte of an answer, while it is decoded
	valueBytes   = 100             // memory for each value in an answer, besides its bytes
	smallAnswer  = 256 << 10       // bytes of an answer that needs no lease
	decodeTime   = 5 * time.Second // from the end of an answer until its memory is given back

	// answerOwner shares memory for answers that belong to no namespace, such as those for watches of clusters that
	// tenants chose: the servers of one tenant must not use all of the budget. No namespace has this name.
	answerOwner = "watches of clusters"
)

// Answers limits the memory for the answers of an API server that a tenant chose. It counts the answers of one list,
// which may have many pages, together. It is safe for concurrent use.
type Answers struct {
	mu   sync.Mutex
	left int64
}

// NewAnswers returns the limit for one list of a budget.
func NewAnswers(b *Budget) *Answers { return &Answers{left: b.total / answerShare} }

func (a *Answers) take(bytes int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left -= bytes
	return a.left >= 0
}

type answersKey struct{}

// WithAnswers returns a context for requests whose answers are counted together.
func WithAnswers(ctx context.Context, a *Answers) context.Context {
	return context.WithValue(ctx, answersKey{}, a)
}

// LimitAnswer bounds the memory that the answer to a request can take: JSON of many short values needs a lot more
// than its bytes. Watches are not bounded in total, only by the limit that client-go has for each event.
func LimitAnswer(req *http.Request, resp *http.Response) {
	if _, limited := resp.Body.(*limitedAnswer); limited || IsWatch(req.URL) || resp.Body == nil ||
		resp.Body == http.NoBody {
		return
	}
	ctx := req.Context()
	all, ok := ctx.Value(answersKey{}).(*Answers)
	if !ok {
		all = NewAnswers(BudgetOf(ctx))
	}
	lease := &Lease{budget: BudgetOf(ctx), work: "reading the answer of a cluster",
		owner: cmp.Or(OwnerOf(ctx), answerOwner)}
	resp.Body = &limitedAnswer{ReadCloser: resp.Body, ctx: ctx, all: all, host: req.URL.Host, lease: lease}
}

// IsWatch reports whether a request is for a watch.
func IsWatch(u *url.URL) bool {
	w := u.Query().Get("watch")
	return w == "1" || strings.EqualFold(w, "true")
}

// IsInitialList reports whether a request is for a watch that begins with a list. All of the list is in memory before
// any of it is used, without a limit; so a server that a tenant chose is asked for a list and a watch instead.
func IsInitialList(u *url.URL) bool {
	return IsWatch(u) && u.Query().Get("sendInitialEvents") == "true"
}

// ErrInitialList is the error for such a watch. Client-go then lists and watches.
var ErrInitialList = errors.New("watches that begin with a list are not used for this cluster")

// limitedAnswer is the body of an answer.
type limitedAnswer struct {
	io.ReadCloser
	ctx   context.Context
	all   *Answers
	host  string
	lease *Lease
	read  int64
	small int64 // bytes of memory that were not taken yet
	err   error
	end   sync.Once
}

// Read implements [io.Reader].
func (a *limitedAnswer) Read(p []byte) (int, error) {
	if a.err != nil {
		return 0, a.err
	}
	n, err := a.ReadCloser.Read(p)
	if a.err = a.take(p[:n]); a.err != nil {
		return 0, a.err
	}
	return n, err
}

func (a *limitedAnswer) take(p []byte) error {
	bytes := int64(len(p)) * answerFactor
	for _, c := range p {
		if c == ',' || c == '[' || c == '{' { // also in strings: an upper bound is enough
			bytes += valueBytes
		}
	}
	a.read += int64(len(p))
	if !a.all.take(bytes) {
		return &AnswerTooLargeError{a.host, a.read}
	}
	if a.small += bytes; a.read <= smallAnswer {
		return nil // most answers are, and need not wait for others
	}
	bytes, a.small = a.small, 0
	return a.lease.Take(a.ctx, bytes)
}

// Close implements [io.Closer]. The answer is decoded after it, so its memory is given back a little later.
func (a *limitedAnswer) Close() error {
	a.end.Do(func() {
		if a.lease.Bytes() > 0 {
			AfterFunc("giving back memory", decodeTime, a.lease.Release)
		}
	})
	return a.ReadCloser.Close()
}

// AnswerTooLargeError is the error for an answer of an API server that needs too much memory.
type AnswerTooLargeError struct {
	host string
	read int64
}

func (e *AnswerTooLargeError) Error() string {
	return "the answer of '" + e.host + "' needs too much memory, it was cut off after " + Bytes(e.read) +
		". Use a cluster with fewer or smaller objects of a kind, or raise the memory limit of the controller"
}

// IsAnswerTooLarge reports whether err's chain contains an [AnswerTooLargeError].
func IsAnswerTooLarge(err error) bool { return errors.As(err, new(*AnswerTooLargeError)) }
