package ignore

import (
	"path"
	"slices"
	"strings"
)

// pattern is one line of a .gitignore file; see gitignore(5).
type pattern struct {
	include  bool      // starts with !
	dirOnly  bool      // ends with /
	anchored bool      // contains another /, so that it matches a path instead of a name
	parts    []segment // of the path; one if the pattern is not anchored
}

// segment matches one part of a path.
type segment struct {
	text string
	kind kind
}

type kind int

const (
	literal kind = iota
	suffix       // a star followed by text
	glob         // any pattern of path.Match
	anyDirs      // **: any number of directories
)

// parse parses a line. It reports false for empty lines, comments, and patterns that cannot match.
func parse(line string) (pattern, bool) {
	line = trim(line)
	var p pattern
	if line == "" || line[0] == '#' {
		return p, false
	}
	line, p.include = strings.CutPrefix(line, "!")
	line, p.dirOnly = strings.CutSuffix(line, "/")
	p.anchored = strings.Contains(line, "/")
	for part := range strings.SplitSeq(strings.TrimPrefix(line, "/"), "/") {
		s, ok := newSegment(part)
		if !ok {
			return p, false
		}
		p.parts = append(p.parts, s)
	}
	return p, true
}

// trim removes the line break, and trailing spaces that are not escaped.
func trim(line string) string {
	line = strings.TrimRight(line, "\r\n")
	kept := strings.TrimRight(line, " \t")
	if strings.HasSuffix(kept, `\`) && len(kept) < len(line) && !strings.HasSuffix(kept, `\\`) {
		kept += " "
	}
	return kept
}

// newSegment parses one part of a path.
func newSegment(s string) (segment, bool) {
	if s == "**" {
		return segment{kind: anyDirs}, true
	}
	for strings.Contains(s, "**") {
		s = strings.ReplaceAll(s, "**", "*") // inside of a name, two stars are equivalent to one
	}
	if !strings.ContainsAny(s, `*?[\`) {
		return segment{s, literal}, s != ""
	}
	if rest, ok := strings.CutPrefix(s, "*"); ok && rest != "" && !strings.ContainsAny(rest, `*?[\`) {
		return segment{rest, suffix}, true
	}
	s = brackets(s)
	_, err := path.Match(s, "")
	return segment{s, glob}, err == nil
}

// brackets converts character classes of git to those of path.Match: negated by ^, and with literal ] and - escaped.
func brackets(s string) string {
	var b strings.Builder
	inside := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			b.WriteByte(s[i])
			i++
		case !inside && s[i] == '[':
			inside = true
			b.WriteByte(s[i])
			if i+1 < len(s) && (s[i+1] == '!' || s[i+1] == '^') {
				i++
				b.WriteByte('^')
			}
			if i+1 < len(s) && (s[i+1] == ']' || s[i+1] == '-') {
				i++
				b.WriteByte('\\')
				b.WriteByte(s[i])
			}
			continue
		case inside && s[i] == ']':
			inside = false
		case inside && s[i] == '-' && i+1 < len(s) && s[i+1] == ']':
			b.WriteByte('\\')
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// matches reports whether the segment matches one part of a path.
func (s segment) matches(name string) bool {
	switch s.kind {
	case literal:
		return s.text == name
	case suffix:
		return strings.HasSuffix(name, s.text)
	case glob:
		ok, err := path.Match(s.text, name)
		return ok && err == nil
	}
	return true
}

// matches reports whether the pattern matches the file or directory name in dir, which is relative to the directory of
// the pattern.
func (p *pattern) matches(dir []string, name string, isDir bool) bool {
	if p.dirOnly && !isDir {
		return false
	}
	if !p.anchored {
		return p.parts[0].matches(name)
	}
	last := p.parts[len(p.parts)-1]
	if !last.matches(name) {
		return false // a cheap check that most paths fail
	}
	return matchPath(p.parts, append(slices.Clip(dir), name))
}

// matchPath matches a path. When a part does not match, it backtracks to the last **, which is sufficient.
func matchPath(parts []segment, names []string) bool {
	i, j := 0, 0
	dirs, taken := -1, 0 // index of the last **, and the number of names up to its end
	for j < len(names) {
		switch {
		case i < len(parts) && parts[i].kind == anyDirs:
			if i == len(parts)-1 {
				return true
			}
			dirs, taken = i, j
			i++
		case i < len(parts) && parts[i].matches(names[j]):
			i++
			j++
		case dirs >= 0:
			taken++
			i, j = dirs+1, taken
		default:
			return false
		}
	}
	return i == len(parts)
}
