package helm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// ParseIndex parses the index of a repository, in YAML or JSON, of at most limit bytes. Apart from the [Index] it needs
// memory for one entry only, however large the index is. The memory counts for the owner of ctx.
func ParseIndex(ctx context.Context, r io.Reader, limit int64) (*Index, error) {
	limited := &io.LimitedReader{R: r, N: limit + 1}
	index, err := parseIndex(ctx, bufio.NewReaderSize(limited, 64<<10))
	if limited.N <= 0 {
		return nil, fmt.Errorf("the index exceeds %d bytes", limit)
	}
	if guard.IsMemory(err) {
		return nil, err
	}
	if err != nil {
		return nil, redact.Rewrite(fmt.Errorf("cannot parse the index: %w", err), withoutValues)
	}
	return index, nil
}

var yamlValue = regexp.MustCompile("`[^`]*` ?")

// withoutValues returns a message of the YAML library without quoted values: they may be the content of an internal
// server.
func withoutValues(message string) string { return yamlValue.ReplaceAllString(message, "") }

func parseIndex(ctx context.Context, r *bufio.Reader) (*Index, error) {
	if bom, _ := r.Peek(3); string(bom) == "\xEF\xBB\xBF" {
		r.Discard(3) //nolint:errcheck // the bytes were just peeked
	}
	start, err := skipSpace(r)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty")
	}
	if err != nil {
		return nil, err
	}
	lease := guard.NewLease(ctx, "the index")
	b := &indexBuilder{ctx: ctx, charts: map[string][]Entry{}, lease: lease}
	if start == '{' {
		err = newTokens(r, b).run()
	} else {
		err = newCutter(r, b).run()
	}
	if err != nil {
		lease.Release()
		return nil, err
	}
	index, err := b.index()
	if err != nil {
		lease.Release()
		return nil, err
	}
	lease.Shrink(2 * index.weight)
	guard.HoldWhile(lease, index)
	return index, nil
}

// skipSpace returns the first byte that is not white space, without consuming it.
func skipSpace(r *bufio.Reader) (byte, error) {
	for {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, r.UnreadByte()
		}
	}
}

// tokens parses an index in JSON without loading it into memory: by token, and entries one at a time.
type tokens struct {
	*json.Decoder
	b       *indexBuilder
	limiter *limiter
}

// limiter bounds what is read for one token or entry.
type limiter struct {
	r    io.Reader
	left int
}

// Read implements [io.Reader].
func (l *limiter) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("an entry or a string exceeds %d bytes", maxPiece)
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

func newTokens(r io.Reader, b *indexBuilder) *tokens {
	l := &limiter{r: r}
	return &tokens{Decoder: json.NewDecoder(l), b: b, limiter: l}
}

// token returns the next token.
func (t *tokens) token() (json.Token, error) {
	t.limiter.left = maxPiece
	return t.Token()
}

// decode decodes the next value.
func (t *tokens) decode(into any) error {
	t.limiter.left = maxPiece
	return t.Decode(into)
}

// run parses the index.
func (t *tokens) run() error {
	err := t.document()
	if err != nil {
		return fmt.Errorf("at byte %d: %w", t.InputOffset(), err)
	}
	if _, err := t.token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected content after the end")
	}
	return nil
}

// document parses the keys of the index.
func (t *tokens) document() error {
	return t.members(func(key string) error {
		switch {
		case key == "apiVersion":
			return t.decode(&t.b.apiVersion)
		case key == "entries" && t.b.hasEntries:
			return errors.New("duplicate key 'entries'")
		case key == "entries":
			t.b.hasEntries = true
			return t.members(t.chart)
		default:
			return t.skip()
		}
	})
}

// chart parses the list of entries of a chart.
func (t *tokens) chart(name string) error {
	if err := t.b.open(name); err != nil {
		return err
	}
	return t.each('[', func() error {
		var i item
		if err := t.decode(&i); err != nil {
			return err
		}
		return t.b.add(name, i)
	})
}

// members calls visit after each key of an object. It treats null as an empty object.
func (t *tokens) members(visit func(key string) error) error {
	return t.each('{', func() error {
		key, err := t.token()
		if err != nil {
			return err
		}
		return visit(key.(string)) // the decoder refuses other types of keys
	})
}

// each calls visit for each element between brackets. It treats null as an empty list.
func (t *tokens) each(open json.Delim, visit func() error) error {
	got, err := t.token()
	if err != nil || got == nil {
		return err
	}
	if got != open {
		return fmt.Errorf("expected %v, got %.20v", open, got)
	}
	for t.more() {
		if err := visit(); err != nil {
			return err
		}
	}
	_, err = t.token()
	return err
}

// more reports whether there is another element.
func (t *tokens) more() bool {
	t.limiter.left = maxPiece
	return t.More()
}

// skip skips a value.
func (t *tokens) skip() error {
	for depth := 0; ; {
		got, err := t.token()
		if err != nil {
			return err
		}
		switch got {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}
