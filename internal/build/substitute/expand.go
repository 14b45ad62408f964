// Package substitute replaces ${variables} in Kubernetes objects, with the string functions of bash. It does
// not access a cluster, and its errors contain no values of variables.
package substitute

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// Limits on the size of an expanded text in bytes, and on the nesting of expressions.
const (
	maxText  = 8 << 20
	maxDepth = 20
)

var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)

// ValidName reports whether s is a valid variable name: letters, digits and underscores, not starting with a digit.
func ValidName(s string) bool { return s != "" && name.FindString(s) == s }

// Expand replaces every ${expression} in a text by its value. $$ becomes $, and any other $ is kept. A
// variable that is not set is empty; with strict, it is an error of type [*Missing] that lists all such
// variables.
func Expand(text string, variables map[string]string, strict bool) (string, error) {
	steps := maxSteps
	return expand(text, variables, strict, &steps)
}

func expand(text string, variables map[string]string, strict bool, steps *int) (string, error) {
	e := &expander{variables: variables, isMissing: map[string]bool{}, steps: steps}
	out, err := e.text(text, 0)
	if err != nil {
		return "", err
	}
	if strict && len(e.missing) > 0 {
		return "", &Missing{Names: e.missing}
	}
	return out, nil
}

// Missing is the error for variables that are not set and have no default.
type Missing struct{ Names []string }

func (m *Missing) Error() string {
	if len(m.Names) == 1 {
		return fmt.Sprintf("variable %s is not set", m.Names[0])
	}
	return fmt.Sprintf("variables %s are not set", strings.Join(m.Names, ", "))
}

type expander struct {
	variables map[string]string
	missing   []string
	isMissing map[string]bool
	grown     int  // bytes produced so far, at all levels
	steps     *int // left; each operation takes one for each byte of its value, and patterns more
}

// text expands the expressions in a text.
func (e *expander) text(s string, depth int) (string, error) {
	var out strings.Builder
	for {
		at := strings.IndexByte(s, '$')
		if at < 0 {
			break
		}
		out.WriteString(s[:at])
		s = s[at:]
		switch {
		case strings.HasPrefix(s, "$$"):
			out.WriteByte('$')
			s = s[2:]
		case strings.HasPrefix(s, "${"):
			end, ok := closing(s)
			if !ok {
				return "", fmt.Errorf("%s has no closing brace", quote(s))
			}
			value, err := e.expression(s[2:end], depth+1)
			if err != nil {
				return "", err
			}
			out.WriteString(value)
			s = s[end+1:]
		default:
			out.WriteByte('$')
			s = s[1:]
		}
		if e.grown+out.Len() > maxText {
			return "", errTooLong
		}
	}
	out.WriteString(s)
	e.grown += out.Len()
	return out.String(), nil
}

var errTooLong = fmt.Errorf("the text would grow beyond %d MiB", maxText>>20)

// closing returns the index of the brace that closes the ${ at the start of s. A backslash escapes the next character.
func closing(s string) (int, bool) {
	open := 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case strings.HasPrefix(s[i:], "${"):
			open++
			i++
		case s[i] == '}':
			if open--; open == 0 {
				return i, true
			}
		}
	}
	return 0, false
}

// quote returns the start of an expression as written in the source, which contains no values of variables.
func quote(s string) string {
	return strconv.Quote(excerpt.Bytes(s, 40))
}

// errNotExpression returns the error for braces that contain something else, such as shell syntax.
func errNotExpression(s string) error {
	return fmt.Errorf("%s is not a substitution expression", quote("${"+s+"}"))
}

// expression evaluates the text between ${ and }.
func (e *expander) expression(s string, depth int) (string, error) {
	if depth > maxDepth {
		return "", errors.New("expressions nest too deep")
	}
	length, rest := strings.HasPrefix(s, "#"), strings.TrimPrefix(s, "#")
	variable := name.FindString(rest)
	operation := rest[len(variable):]
	if variable == "" || length && operation != "" {
		return "", errNotExpression(s)
	}
	value, set := e.variables[variable]
	if d, ok := defaultOf(operation); ok {
		if set && (value != "" || !d.ifEmpty) {
			return value, nil
		}
		return e.text(d.text, depth)
	}
	if message, ok := strings.CutPrefix(operation, ":?"); ok {
		if value != "" {
			return value, nil
		}
		return "", fmt.Errorf("variable %s is not set or empty: %s", variable, quote(message))
	}
	if !set && !e.isMissing[variable] {
		e.isMissing[variable] = true
		e.missing = append(e.missing, variable)
	}
	if length || operation != "" {
		*e.steps -= len(value)
	}
	switch {
	case *e.steps < 0:
		return "", errTooSlow
	case length:
		return strconv.Itoa(utf8.RuneCountInString(value)), nil
	case operation == "":
		return value, nil
	}
	out, err := e.apply(value, operation, depth)
	switch {
	case errors.Is(err, errUnknown):
		return "", errNotExpression(s)
	case *e.steps < 0:
		return "", errTooSlow
	default:
		return out, err
	}
}

// fallback is the default of a variable.
type fallback struct {
	text    string
	ifEmpty bool // also used if the variable is set but empty
}

// defaultOf returns the default of an operation that has one. As in Flux, :+ is one of them: the value of a variable
// that is set is not replaced.
func defaultOf(operation string) (fallback, bool) {
	for prefix, ifEmpty := range map[string]bool{":=": true, ":-": true, ":+": true, "=": false, "-": false} {
		if text, ok := strings.CutPrefix(operation, prefix); ok {
			return fallback{text, ifEmpty}, true
		}
	}
	return fallback{}, false
}

var errUnknown = errors.New("unknown operation")

// apply applies a string function to a value.
func (e *expander) apply(value, operation string, depth int) (string, error) {
	switch operation {
	case "^":
		return first(value, unicode.ToUpper), nil
	case "^^":
		return strings.ToUpper(value), nil
	case ",":
		return first(value, unicode.ToLower), nil
	case ",,":
		return strings.ToLower(value), nil
	}
	switch operation[0] {
	case ':':
		return e.slice(value, operation[1:], depth)
	case '#', '%':
		return e.strip(value, operation, depth)
	case '/':
		return e.replace(value, operation[1:], depth)
	default:
		return "", errUnknown
	}
}

func first(s string, to func(rune) rune) string {
	r, size := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError {
		return s
	}
	return string(to(r)) + s[size:]
}

// slice returns a substring. The arguments are position or position:length, in characters. Negative numbers count from
// the end.
func (e *expander) slice(value, arguments string, depth int) (string, error) {
	expanded, err := e.text(arguments, depth)
	if err != nil {
		return "", err
	}
	position, count, bounded := strings.Cut(expanded, ":")
	runes := []rune(value)
	from, err := strconv.Atoi(strings.TrimSpace(position))
	if err != nil {
		return "", errUnknown
	}
	if from < 0 {
		from += len(runes)
	}
	if from < 0 || from > len(runes) {
		return "", nil
	}
	to := len(runes)
	if bounded {
		n, err := strconv.Atoi(strings.TrimSpace(count))
		if err != nil {
			return "", errUnknown
		}
		if n < 0 {
			to = max(from, to+n)
		} else {
			to = from + min(n, to-from)
		}
	}
	return string(runes[from:to]), nil
}

// strip removes the shortest match of a pattern from the start (#) or the end (%). A doubled sign removes the longest
// match.
func (e *expander) strip(value, operation string, depth int) (string, error) {
	sign := operation[:1]
	text := operation[1:]
	longest := strings.HasPrefix(text, sign)
	p, err := e.pattern(strings.TrimPrefix(text, sign), depth)
	if err != nil {
		return "", err
	}
	if sign == "#" {
		if n := p.prefix(value, longest); n >= 0 {
			return value[n:], nil
		}
	} else if n := p.suffix(value, longest); n >= 0 {
		return value[:n], nil
	}
	return value, nil
}

// replace replaces a text, not a pattern: its first occurrence, all of them (/), or the one at the start (#) or the end
// (%).
func (e *expander) replace(value, arguments string, depth int) (string, error) {
	mode := byte(0)
	if arguments != "" && strings.IndexByte("/#%", arguments[0]) >= 0 {
		mode, arguments = arguments[0], arguments[1:]
	}
	at := unescapedSlash(arguments)
	old, err := e.text(unescape.Replace(arguments[:at]), depth)
	if err != nil {
		return "", err
	}
	replacement := ""
	if at < len(arguments) {
		if replacement, err = e.text(unescape.Replace(arguments[at+1:]), depth); err != nil {
			return "", err
		}
	}
	switch mode {
	case '#':
		if rest, ok := strings.CutPrefix(value, old); ok {
			return replacement + rest, nil
		}
		return value, nil
	case '%':
		if rest, ok := strings.CutSuffix(value, old); ok {
			return rest + replacement, nil
		}
		return value, nil
	}
	n := 1
	if mode == '/' {
		n = strings.Count(value, old)
	}
	if old == "" {
		return value, nil
	}
	if len(value)+n*max(0, len(replacement)-len(old)) > maxText {
		return "", errTooLong
	}
	return strings.Replace(value, old, replacement, n), nil
}

// unescape removes the backslashes that keep a slash or a backslash from having a meaning in replacements.
var unescape = strings.NewReplacer(`\\`, `\`, `\/`, "/")

// unescapedSlash returns the index of the slash that ends the pattern, or the length of s. Slashes in nested
// expressions belong to the pattern.
func unescapedSlash(s string) int {
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case strings.HasPrefix(s[i:], "${"):
			if end, ok := closing(s[i:]); ok {
				i += end
			}
		case s[i] == '/':
			return i
		}
	}
	return len(s)
}

// pattern expands and parses a glob.
func (e *expander) pattern(s string, depth int) (*pattern, error) {
	text, err := e.text(s, depth)
	if err != nil {
		return nil, err
	}
	return parsePattern(text, e.steps), nil
}
