package substitute

import (
	"errors"
	"slices"
	"strings"
	"unicode/utf8"
)

// pattern is a glob as bash has it: * any text, ? any character, [a-z] and [!a-z] one of a set, \x the character x.
type pattern struct {
	parts []part
	steps *int // taken so far by all patterns of the text
}

// maxSteps bounds matching: some patterns look at all of a text from every place in it.
const maxSteps = 100_000_000

var errTooSlow = errors.New("the pattern would take too long to match")

// part matches one character, or any number of them.
type part struct {
	star bool
	any  bool
	set  []span // one of these, or with not, none of these
	not  bool
}

type span struct{ from, to rune }

func parsePattern(s string, steps *int) *pattern {
	p := &pattern{steps: steps}
	for s != "" {
		r, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		switch r {
		case '*':
			if n := len(p.parts); n == 0 || !p.parts[n-1].star { // two say no more than one
				p.parts = append(p.parts, part{star: true})
			}
			continue
		case '?':
			p.parts = append(p.parts, part{any: true})
			continue
		case '[':
			if set, rest, ok := parseSet(s); ok {
				p.parts, s = append(p.parts, set), rest
				continue
			}
		case '\\':
			if s != "" {
				r, size = utf8.DecodeRuneInString(s)
				s = s[size:]
			}
		}
		p.parts = append(p.parts, part{set: []span{{r, r}}})
	}
	return p
}

// parseSet reads what follows a bracket. Without a closing one, the bracket stands for itself.
func parseSet(s string) (part, string, bool) {
	p := part{}
	if strings.HasPrefix(s, "!") || strings.HasPrefix(s, "^") {
		p.not, s = true, s[1:]
	}
	end := strings.IndexByte(s[min(1, len(s)):], ']') // a bracket right at the start is a member
	if end < 0 {
		return p, s, false
	}
	members := []rune(s[:end+1])
	for i := 0; i < len(members); i++ {
		if i+2 < len(members) && members[i+1] == '-' {
			p.set = append(p.set, span{members[i], members[i+2]})
			i += 2
			continue
		}
		p.set = append(p.set, span{members[i], members[i]})
	}
	return p, s[end+2:], true
}

func (p part) matches(r rune) bool {
	if p.any {
		return true
	}
	for _, s := range p.set {
		if s.from <= r && r <= s.to {
			return !p.not
		}
	}
	return p.not
}

// ends returns, for a match that starts where s does, every offset at which it may end. It takes one step a
// character and part, whatever the pattern.
func (p *pattern) ends(s string, visit func(end int)) {
	at := make([]bool, len(p.parts)+1) // which parts may come next
	p.reach(at, 0)
	for i, r := range s {
		if at[len(p.parts)] {
			visit(i)
		}
		if *p.steps += len(at); *p.steps > maxSteps {
			return
		}
		next := make([]bool, len(at))
		any := false
		for n, here := range at[:len(p.parts)] {
			switch {
			case !here:
			case p.parts[n].star:
				p.reach(next, n)
				any = true
			case p.parts[n].matches(r):
				p.reach(next, n+1)
				any = true
			}
		}
		at = next
		if !any {
			return
		}
	}
	if at[len(p.parts)] {
		visit(len(s))
	}
}

// reach marks a part as next, and what follows it when it may match nothing.
func (p *pattern) reach(at []bool, n int) {
	at[n] = true
	for n < len(p.parts) && p.parts[n].star {
		n++
		at[n] = true
	}
}

// prefix returns how much of the start of s matches, or -1.
func (p *pattern) prefix(s string, longest bool) int {
	found := -1
	p.ends(s, func(end int) {
		if found < 0 || longest {
			found = end
		}
	})
	return found
}

// suffix returns where the match that reaches to the end of s starts, or -1.
func (p *pattern) suffix(s string, longest bool) int {
	backwards := &pattern{slices.Clone(p.parts), p.steps}
	slices.Reverse(backwards.parts)
	if n := backwards.prefix(reverse(s), longest); n >= 0 {
		return len(s) - n
	}
	return -1
}

func reverse(s string) string {
	out := make([]byte, 0, len(s))
	for s != "" {
		_, size := utf8.DecodeLastRuneInString(s)
		out = append(out, s[len(s)-size:]...)
		s = s[:len(s)-size]
	}
	return string(out)
}

// replace puts a text in place of the first or of all longest matches. What matches nothing is not a match.
func (p *pattern) replace(s, replacement string, all bool) (string, error) {
	var out strings.Builder
	for i := 0; i < len(s); {
		if n := p.prefix(s[i:], true); n > 0 {
			out.WriteString(replacement)
			i += n
			if !all {
				out.WriteString(s[i:])
				break
			}
		} else {
			_, size := utf8.DecodeRuneInString(s[i:])
			out.WriteString(s[i : i+size])
			i += size
		}
		if out.Len() > maxText {
			return "", errTooLong
		}
	}
	return out.String(), nil
}
