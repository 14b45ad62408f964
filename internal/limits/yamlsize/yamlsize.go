// Package yamlsize bounds the memory and time that YAML of a tenant takes when it is decoded. A short text can need
// much: lists of short values, aliases, whose text is written again for each of them when YAML is converted to JSON,
// equal keys, each pair of which becomes a line of an error, and directives, each of which is compared with all others.
package yamlsize

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	yaml "go.yaml.in/yaml/v3"

	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	textCopies = 5   // of the text while it is decoded: as YAML, as JSON, and as values
	valueBytes = 640 // memory of a value while it is decoded

	maxValues     = 50_000  // that aliases of a text may add
	maxText       = 4 << 20 // bytes of text that aliases of a text may add
	maxDirectives = 100     // for tags
)

// Memory estimates the memory in bytes that decoding a text needs, apart from what its aliases add.
func Memory(text []byte) int64 { return textCopies*int64(len(text)) + valueBytes*int64(Values(text)) }

// Values returns how many values a text has at most, apart from what its aliases add. Each value but the first follows
// one of the counted characters.
func Values(text []byte) int {
	values := 1
	for _, c := range []byte{'\n', ',', '[', '{'} {
		values += bytes.Count(text, []byte{c})
	}
	return values
}

// Acquire takes the memory for decoding texts from the budget of ctx, and checks them. Call it before the texts are
// parsed, and release the lease after they are no longer used. The error is a fault of the budget or one of [Check].
// Work says what the memory is for, after "memory for".
func Acquire(ctx context.Context, work string, texts ...[]byte) (*guard.Lease, error) {
	total := int64(0)
	for _, text := range texts {
		total += Memory(text)
	}
	lease, err := guard.BudgetOf(ctx).Acquire(ctx, work, total)
	if err != nil {
		return nil, err
	}
	for _, text := range texts {
		if err := Check(text); err != nil {
			lease.Release()
			return nil, err
		}
	}
	return lease, nil
}

// CheckDirectives returns an error if a text has more than 100 directives for tags. Kubernetes uses none. The error
// contains no part of the text.
func CheckDirectives(text []byte) error {
	if bytes.Count(text, []byte("%TAG")) > maxDirectives {
		return fmt.Errorf("it has more than %d %%TAG directives; write the tags in full, or leave them out",
			maxDirectives)
	}
	return nil
}

// Check returns an error if the aliases of a text stand for more than 50,000 values or 4 MiB of text, if one is
// recursive, or if a text has too many directives. It returns nil for other texts that are not YAML. The error contains
// no part of the text.
func Check(text []byte) error {
	if err := CheckDirectives(text); err != nil {
		return err
	}
	if bytes.IndexByte(text, '&') < 0 || bytes.IndexByte(text, '*') < 0 {
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil { // another parser may accept it
			if int64(bytes.Count(text, []byte{'*'}))*int64(len(text)) > maxText {
				return errors.New("it has aliases, and is not valid YAML")
			}
			return nil
		}
		if _, err := new(Scale).Weigh(&document); err != nil {
			return err
		}
	}
}
