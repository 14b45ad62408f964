// Package regex compiles regular expressions of tenants. The time of one is linear in the text, but a short expression
// that repeats its parts can stand for a program of many megabytes, so the size of the program is bounded, too.
package regex

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

const (
	maxLength  = 4 << 10 // bytes of an expression
	maxProgram = 10_000  // instructions of its program; an instruction takes about 40 bytes
)

// Compile compiles a regular expression as [regexp.Compile] does. The error says what is wrong, also if the expression
// is too long or stands for too large a program. Its text is short, and can be shown.
func Compile(expression string) (*regexp.Regexp, error) {
	compiled, _, err := CompileSized(expression)
	return compiled, err
}

// CompileSized is [Compile]. It also returns about how many instructions the program has.
func CompileSized(expression string) (compiled *regexp.Regexp, instructions int, err error) {
	if len(expression) > maxLength {
		return nil, 0, fmt.Errorf("it is longer than %d bytes", maxLength)
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, 0, err
	}
	n := Instructions(parsed)
	if n > maxProgram {
		return nil, 0, fmt.Errorf("it stands for %d instructions, at most %d are allowed: use fewer or smaller "+
			"{repeats}, or smaller classes of characters", n, maxProgram)
	}
	compiled, err = regexp.Compile(expression)
	return compiled, int(n), err
}

// Instructions returns about how many instructions the program of an expression has, whose repeats are written out. The
// parser refuses repeats of more than 1,000 in all levels together, so the number stays far below the largest integer.
func Instructions(re *syntax.Regexp) int64 {
	n := int64(1 + len(re.Rune))
	for _, sub := range re.Sub {
		n += Instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= int64(max(re.Min, re.Max, 1))
	}
	return n
}

// Size returns about how many instructions the programs of expressions have together, one for an expression that is
// plain text. The time for a comparison grows with it. The error is that of [Compile] for one of them.
func Size(expressions ...string) (instructions int, err error) {
	for _, e := range expressions {
		n := 1
		if regexp.QuoteMeta(e) != e {
			if _, n, err = CompileSized(e); err != nil {
				return 0, fmt.Errorf("'%s': %w", excerpt.Bytes(e, maxShown), err)
			}
		}
		instructions += n
	}
	return instructions, nil
}

const maxShown = 100 // bytes of an expression in an error
