package decrypt

import (
	"errors"
	"fmt"

	"github.com/getsops/sops/v3"

	"github.com/sluice-gitops/sluice/internal/limits/regex"
)

// maxMatching bounds the instructions of regular expressions that are compiled for a file: about 5 s. A usual
// expression has 25, and is compiled for each key on the way to a value.
const maxMatching = 20_000_000

// extent is the size of an encrypted file.
type extent struct {
	values   int64 // also comments
	steps    int64 // keys on the ways to all values
	comments int64
}

// checkMatching returns an error if the regular expressions of a file, which say what is encrypted, take long. SOPS
// compiles one again for each comparison: that for comments for each value and each comment above it.
func checkMatching(tree *sops.Tree) error {
	var e extent
	for _, b := range tree.Branches {
		e.add(b, 0)
	}
	m := &tree.Metadata
	byPath, err1 := instructions(m.EncryptedRegex, m.UnencryptedRegex)
	byComment, err2 := instructions(m.EncryptedCommentRegex, m.UnencryptedCommentRegex)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if n := byPath*e.steps + byComment*e.values*e.comments; n > maxMatching {
		return fmt.Errorf("they would be compiled for %d values, and have %d instructions in all, more than %d",
			e.values, n, maxMatching)
	}
	return nil
}

// instructions returns about how many instructions expressions have, of which some are empty.
func instructions(expressions ...string) (int64, error) {
	total := int64(0)
	for _, e := range expressions {
		if e == "" {
			continue
		}
		n, err := regex.Size(e)
		if err != nil {
			return 0, err
		}
		total += int64(n)
	}
	return total, nil
}

func (e *extent) add(value any, depth int64) {
	switch v := value.(type) {
	case sops.TreeBranch:
		for _, item := range v {
			if _, ok := item.Key.(sops.Comment); ok {
				e.add(item.Key, depth)
				continue
			}
			e.add(item.Value, depth+1)
		}
	case []any:
		for _, item := range v {
			e.add(item, depth)
		}
	case sops.Comment:
		e.comments++
		e.values++
		e.steps += depth
	default:
		e.values++
		e.steps += depth
	}
}
