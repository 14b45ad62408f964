package helm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ParseIndex reads a repository's index, in YAML or in JSON, of at most limit bytes. It needs memory for what
// an [Index] keeps and for one entry at a time, whatever the size of the whole.
func ParseIndex(r io.Reader, limit int64) (*Index, error) {
	limited := &io.LimitedReader{R: r, N: limit + 1}
	index, err := parseIndex(bufio.NewReaderSize(limited, 64<<10))
	if limited.N <= 0 {
		return nil, fmt.Errorf("the index has more than %d bytes", limit)
	}
	if err != nil {
		return nil, fmt.Errorf("the index cannot be read: %w", err)
	}
	return index, nil
}

func parseIndex(r *bufio.Reader) (*Index, error) {
	if bom, _ := r.Peek(3); string(bom) == "\xEF\xBB\xBF" {
		r.Discard(3) //nolint:errcheck // it was just seen
	}
	start, err := skipSpace(r)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty")
	}
	if err != nil {
		return nil, err
	}
	b := &indexBuilder{charts: map[string][]Entry{}}
	if start == '{' {
		err = newTokens(r, b).run()
	} else {
		err = newCutter(r, b).run()
	}
	if err != nil {
		return nil, err
	}
	return b.index()
}

// skipSpace returns the first byte that is no white space, without taking it.
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

// tokens reads an index in JSON without holding it: token by token, and of the entries one at a time.
type tokens struct {
	*json.Decoder
	b     *indexBuilder
	leash *leash
}

// leash bounds what may be read for one token or entry.
type leash struct {
	r    io.Reader
	left int
}

func (l *leash) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("more than %d bytes in one entry or text", maxPiece)
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

func newTokens(r io.Reader, b *indexBuilder) *tokens {
	l := &leash{r: r}
	return &tokens{json.NewDecoder(l), b, l}
}

func (t *tokens) token() (json.Token, error) {
	t.leash.left = maxPiece
	return t.Token()
}

func (t *tokens) decode(into any) error {
	t.leash.left = maxPiece
	return t.Decode(into)
}

func (t *tokens) run() error {
	err := t.document()
	if err != nil {
		return fmt.Errorf("at byte %d: %w", t.InputOffset(), err)
	}
	if _, err := t.token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows after its end")
	}
	return nil
}

func (t *tokens) document() error {
	return t.members(func(key string) error {
		switch {
		case key == "apiVersion":
			return t.decode(&t.b.apiVersion)
		case key == "entries" && t.b.hasEntries:
			return errors.New("the key entries stands there twice")
		case key == "entries":
			t.b.hasEntries = true
			return t.members(t.chart)
		default:
			return t.skip()
		}
	})
}

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

// members calls visit after every key of an object; null has none.
func (t *tokens) members(visit func(key string) error) error {
	return t.each('{', func() error {
		key, err := t.token()
		if err != nil {
			return err
		}
		return visit(key.(string)) // the decoder lets no other key through
	})
}

// each calls visit for what stands between the brackets; null has nothing.
func (t *tokens) each(open json.Delim, visit func() error) error {
	got, err := t.token()
	if err != nil || got == nil {
		return err
	}
	if got != open {
		return fmt.Errorf("%v is expected, not %.20v", open, got)
	}
	for t.more() {
		if err := visit(); err != nil {
			return err
		}
	}
	_, err = t.token()
	return err
}

func (t *tokens) more() bool {
	t.leash.left = maxPiece
	return t.More()
}

// skip passes over a value without keeping it.
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
