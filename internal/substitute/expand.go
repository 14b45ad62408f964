// Package substitute replaces ${variables} in Kubernetes objects, with the string functions of bash. It reads
// no cluster, and no value of a variable ever stands in its errors.
package substitute

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-gitops/sluice/internal/excerpt"
)

// Bounds on what one text may grow to, and on how deep expressions may nest.
const (
	maxText  = 8 << 20
	maxDepth = 20
)

var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*`)

// ValidName tells whether a variable may be called so: letters, digits and underscores, no digit first.
func ValidName(s string) bool { return s != "" && name.FindString(s) == s }

// Expand replaces every ${expression} in a text by its value. $${ stands for ${, and any other $ for itself.
// A variable that is not set is empty; with strict, the error is a [*Missing] that names all of them.
func Expand(text string, variables map[string]string, strict bool) (string, error) {
	e := &expander{variables: variables}
	out, err := e.text(text, 0)
	if err != nil {
		return "", err
	}
	if strict && len(e.missing) > 0 {
		return "", &Missing{Names: e.missing}
	}
	return out, nil
}

// Missing says which variables are not set and have no default.
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
	grown     int // bytes made so far, over all levels
	steps     int // of matching
}

// text expands a text that is no expression itself.
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
		case strings.HasPrefix(s, "$${"):
			out.WriteString("${")
			s = s[3:]
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

// closing returns where the brace closes that s, which starts with ${, opens. A backslash takes the meaning
// of what follows.
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

// quote shows the start of an expression as it is written, which holds no value of a variable.
func quote(s string) string {
	return strconv.Quote(excerpt.Bytes(s, 40))
}

// errNotExpression says that braces hold something else, such as a construct of a shell.
func errNotExpression(s string) error {
	return fmt.Errorf("%s is no expression that substitution knows", quote("${"+s+"}"))
}

// expression evaluates what stands between ${ and }.
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
	if !set && !slices.Contains(e.missing, variable) {
		e.missing = append(e.missing, variable)
	}
	switch {
	case length:
		return strconv.Itoa(utf8.RuneCountInString(value)), nil
	case operation == "":
		return value, nil
	}
	out, err := e.apply(value, operation, depth)
	switch {
	case errors.Is(err, errUnknown):
		return "", errNotExpression(s)
	case e.steps > maxSteps:
		return "", errTooSlow
	default:
		return out, err
	}
}

// fallback is what stands in for a variable.
type fallback struct {
	text    string
	ifEmpty bool // also for one that is set to nothing
}

func defaultOf(operation string) (fallback, bool) {
	for prefix, ifEmpty := range map[string]bool{":=": true, ":-": true, "=": false, "-": false} {
		if text, ok := strings.CutPrefix(operation, prefix); ok {
			return fallback{text, ifEmpty}, true
		}
	}
	return fallback{}, false
}

var errUnknown = errors.New("unknown operation")

// apply works one of the string functions on a value.
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

// slice takes position or position:length, in characters. Both count from the end when negative.
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

// strip takes a pattern off the start (#) or the end (%); the doubled sign takes as much as matches.
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

// replace puts a text in place of what a pattern matches: of the first match, of all (/), at the start (#) or
// the end (%).
func (e *expander) replace(value, arguments string, depth int) (string, error) {
	mode := byte(0)
	if arguments != "" && strings.IndexByte("/#%", arguments[0]) >= 0 {
		mode, arguments = arguments[0], arguments[1:]
	}
	at := unescapedSlash(arguments)
	p, err := e.pattern(arguments[:at], depth)
	if err != nil {
		return "", err
	}
	replacement := ""
	if at < len(arguments) {
		if replacement, err = e.text(strings.ReplaceAll(arguments[at+1:], `\/`, "/"), depth); err != nil {
			return "", err
		}
	}
	switch mode {
	case '#':
		if n := p.prefix(value, true); n >= 0 {
			return replacement + value[n:], nil
		}
		return value, nil
	case '%':
		if n := p.suffix(value, true); n >= 0 {
			return value[:n] + replacement, nil
		}
		return value, nil
	default:
		return p.replace(value, replacement, mode == '/')
	}
}

// unescapedSlash returns where the pattern ends; braces within it belong to it.
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

// pattern expands and reads a glob.
func (e *expander) pattern(s string, depth int) (*pattern, error) {
	text, err := e.text(s, depth)
	if err != nil {
		return nil, err
	}
	return parsePattern(text, &e.steps), nil
}
