// Package regex compiles regular expressions of tenants. The time of one is linear in the text, but a short expression
// that repeats its parts can stand for a program of many megabytes, so the size of the program is bounded, too.
package regex

import (
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
)

const (
	maxLength  = 4 << 10 // bytes of an expression
	maxProgram = 10_000  // instructions of its program; an instruction takes about 40 bytes
)

// Compile compiles a regular expression as [regexp.Compile] does. The error says what is wrong, also if the expression
// is too long or stands for too large a program. Its text is short, and can be shown.
func Compile(expression string) (*regexp.Regexp, error) {
	if len(expression) > maxLength {
		return nil, fmt.Errorf("it is longer than %d bytes", maxLength)
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if n := Instructions(parsed); n > maxProgram {
		return nil, fmt.Errorf("it stands for %d instructions, at most %d are allowed: use fewer or smaller {repeats}, "+
			"or smaller classes of characters", n, maxProgram)
	}
	return regexp.Compile(expression)
}

// Size returns about how many instructions the program of an expression has that [Compile] accepts.
func Size(compiled *regexp.Regexp) int {
	parsed, err := syntax.Parse(compiled.String(), syntax.Perl)
	if err != nil {
		return maxProgram
	}
	return int(min(Instructions(parsed), maxProgram))
}

// Instructions returns about how many instructions the program of an expression has, whose repeats are written out.
func Instructions(re *syntax.Regexp) int64 {
	n := int64(1 + len(re.Rune))
	for _, sub := range re.Sub {
		n = sum(n, Instructions(sub))
	}
	if re.Op == syntax.OpRepeat {
		repeats := int64(max(re.Min, re.Max, 1))
		if n > math.MaxInt64/repeats {
			return math.MaxInt64
		}
		n *= repeats
	}
	return n
}

func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
