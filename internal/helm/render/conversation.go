package render

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sluice-gitops/sluice/internal/build/sandbox"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Bounds of what the templates of one render may look up.
const (
	maxLookups     = 1000
	maxLookupBytes = 32 << 20
)

// conversation is what a child and its parent say for one render.
type conversation struct {
	receive func(most int) (kind byte, content []byte, err error)
	answer  func(kind byte, v any) error
	lookups
	chart string // its name and version
}

// converse reads what the child sends until the result or an error.
func (c *conversation) converse(ctx context.Context) (*Result, error) {
	result, left := &Result{}, maxOutput
	for {
		kind, content, err := c.receive(left)
		if err != nil {
			return nil, err
		}
		switch left -= len(content); kind {
		case kindChart:
			c.chart = excerpt.Line(string(content), 200)
		case kindQuery:
			left += len(content) // counted by lookups
			if err := c.answer(kindAnswer, c.lookups.answer(ctx, content)); err != nil {
				return nil, err
			}
		case kindFile:
			file, err := readFile(content)
			if err != nil {
				return nil, err
			}
			result.Files = append(result.Files, file)
		case kindValues:
			if result.Values, err = decodeValues(content); err != nil {
				return nil, err
			}
			return result, nil
		case kindError:
			return nil, readError(content)
		default:
			return nil, fmt.Errorf("the child sent a frame of the unknown kind %q", kind)
		}
	}
}

// outputError is the error of templates that render too much.
type outputError struct{ message string }

func (e *outputError) Error() string { return e.message }

// Unwrap ends the child: it has the output in memory.
func (e *outputError) Unwrap() error { return &sandbox.Ended{Kind: sandbox.TooMuchOutput} }

func readError(content []byte) error {
	var e wireError
	if err := json.Unmarshal(content, &e); err != nil {
		return err
	}
	if e.Output {
		return &outputError{e.Message}
	}
	return &Error{Message: e.Message}
}

// lookups answers the lookups of one render.
type lookups struct {
	lookup Lookup
	count  int
	bytes  int
}

func (l *lookups) answer(ctx context.Context, content []byte) wireAnswer {
	var q wireQuery
	if err := json.Unmarshal(content, &q); err != nil {
		return wireAnswer{Error: err.Error()}
	}
	if l.lookup == nil {
		return wireAnswer{Object: json.RawMessage("{}")}
	}
	if l.count++; l.count > maxLookups {
		return wireAnswer{Error: fmt.Sprintf("the templates look up more than %d times", maxLookups)}
	}
	object, err := l.lookup(ctx, q.APIVersion, q.Kind, q.Namespace, q.Name)
	if err != nil {
		return wireAnswer{Error: err.Error()}
	}
	text, err := encodeValues(object)
	if err != nil {
		return wireAnswer{Error: err.Error()}
	}
	if l.bytes += len(text); l.bytes > maxLookupBytes {
		return wireAnswer{Error: fmt.Sprintf("the templates look up more than %d MiB", maxLookupBytes>>20)}
	}
	return wireAnswer{Object: text}
}
