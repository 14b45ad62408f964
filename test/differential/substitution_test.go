package differential

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/build/substitute"
)

// grammar is the documented grammar of substitutions with the results of Flux, by its documentation and its code, for
// v=release-1.2.3, w=ALPHA, e="" and an unset u.
var grammar = map[string]string{
	"${v}": "release-1.2.3", "x${v}y": "xrelease-1.2.3y", "${v}${w}": "release-1.2.3ALPHA", "${e}": "", "${u}": "",
	"$v": "$v", "$$v": "$v", "$${v}": "${v}", "$$${v}": "$release-1.2.3", "a$": "a$", "{v}": "{v}", "$ {v}": "$ {v}",
	"${#v}": "13", "${#e}": "0", "${#u}": "0",
	"${v^}": "Release-1.2.3", "${v^^}": "RELEASE-1.2.3", "${w,}": "aLPHA", "${w,,}": "alpha", "${e^}": "",
	"${v:0}": "release-1.2.3", "${v:8}": "1.2.3", "${v:8:3}": "1.2", "${v:0:7}": "release", "${v:8:99}": "1.2.3",
	"${v:99}": "", "${v:99:1}": "", "${v:0:0}": "",
	"${v#*-}": "1.2.3", "${v#release}": "-1.2.3", "${v#x}": "release-1.2.3", "${v##*.}": "3", "${v%.*}": "release-1.2",
	"${v%%.*}": "release-1", "${v%%-*}": "release", "${v#[a-r]?}": "lease-1.2.3", "${v%3}": "release-1.2.",
	"${v##*}": "",
	"${v:-d}": "release-1.2.3", "${e:-d}": "d", "${u:-d}": "d", "${v:=d}": "release-1.2.3", "${e:=d}": "d",
	"${u:=d}": "d",
	"${v=d}":  "release-1.2.3", "${u:=${w}}": "ALPHA", "${u:=x${w}y}": "xALPHAy", "${u:=a b: c}": "a b: c",
	"${u:=}":           "",
	"${u:=${e:=${w}}}": "ALPHA", "${u:=/a/b}": "/a/b", "${u:=\"q\"}": "\"q\"",
	"${v:?message}": "release-1.2.3", "${v:+other}": "release-1.2.3", "${u:+other}": "other", "${e:+other}": "other",
	"${v/e/E}": "rElease-1.2.3", "${v//e/E}": "rElEasE-1.2.3", "${v//./_}": "release-1_2_3",
	`${v//\./_}`: "release-1.2.3",
	"${v/?/x}":   "release-1.2.3", "${v/*/x}": "release-1.2.3", "${v/[a-z]/x}": "release-1.2.3",
	"${v/#release/r}": "r-1.2.3",
	"${v/#1/x}":       "release-1.2.3", "${v/%3/4}": "release-1.2.4", "${v/%2/x}": "release-1.2.3",
	"${v//-/\\/}":     "release/1.2.3",
	"${v/1.2.3/${w}}": "release-ALPHA", "${v//e/}": "rlas-1.2.3", "${v/e/}": "rlease-1.2.3",
	"${v/none/x}": "release-1.2.3",
	`${v//./\\}`:  `release-1\2\3`, "${w//A/$$}": "$LPH$",
}

func TestSubstitutionFollowsTheDocumentedGrammar(t *testing.T) {
	variables := map[string]string{"v": "release-1.2.3", "w": "ALPHA", "e": ""}
	for text, want := range grammar {
		if got, err := substitute.Expand(text, variables, false); err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", text, got, err, want)
		}
	}
}

// expression is an expression of parts, whose results are known by their construction.
type expression struct {
	parts     []part
	variables map[string]string
}

type part struct{ text, want string }

func (e expression) text() (text string) {
	for _, p := range e.parts {
		text += p.text
	}
	return text
}

func (e expression) want() (want string) {
	for _, p := range e.parts {
		want += p.want
	}
	return want
}

// smaller returns the expression without each of its parts, and without each of its variables.
func (e expression) smaller() (all []expression) {
	for i := range e.parts {
		all = append(all, expression{slices.Delete(slices.Clone(e.parts), i, i+1), e.variables})
	}
	for name := range e.variables {
		if !strings.Contains(e.text(), name) {
			without := maps.Clone(e.variables)
			delete(without, name)
			all = append(all, expression{e.parts, without})
		}
	}
	return all
}

func TestSubstitutionGivesWhatWasConstructed(t *testing.T) {
	comparison[expression]{
		quick: 2000, full: 200_000,
		generate: func(r *rand.Rand) expression {
			e := expression{variables: map[string]string{}}
			for range 1 + r.IntN(4) {
				e.add(r, 2)
			}
			return e
		},
		compare: func(_ *testing.T, e expression) string {
			got, err := substitute.Expand(e.text(), e.variables, true)
			if err != nil || got != e.want() {
				return fmt.Sprintf("is %q, %v", got, err)
			}
			return ""
		},
		smaller: expression.smaller,
		show: func(e expression) string {
			return fmt.Sprintf("%s with %q, want %q", e.text(), e.variables, e.want())
		},
	}.run(t)
}

// word returns a text without characters that have a meaning in expressions.
func word(r *rand.Rand) string {
	var out strings.Builder
	for range r.IntN(7) {
		out.WriteByte("abcXYZ0189-_.:,= "[r.IntN(17)])
	}
	return out.String()
}

// define adds a variable and returns its name.
func (e *expression) define(value string) string {
	name := fmt.Sprintf("v%d", len(e.variables))
	e.variables[name] = value
	return name
}

// add appends an expression that is made from its result.
func (e *expression) add(r *rand.Rand, depth int) {
	a, b, c := "<"+word(r)+"|", "("+word(r)+")", "~"+word(r)+">" // each begins with a character of its own
	old := strings.TrimSuffix(b, ")") + "!"
	switch r.IntN(14) {
	case 0:
		e.append("${"+e.define(a)+"}", a)
	case 1:
		e.append("${#"+e.define(a)+"}", strconv.Itoa(len(a)))
	case 2:
		e.append("${"+e.define(a+b)+"#"+a+"}", b)
	case 3:
		e.append("${"+e.define(a+b)+"%"+b+"}", a)
	case 4:
		e.append("${"+e.define(a+b+a+b+c)+"#*"+b+"}", a+b+c)
	case 5:
		e.append("${"+e.define(a+b+a+b+c)+"##*"+b+"}", c)
	case 6:
		e.append("${"+e.define(a+b+a+b+c)+"%%"+b+"*}", a)
	case 7:
		e.append("${"+e.define(a+old+c+old)+"/"+old+"/"+b+"}", a+b+c+old)
	case 8:
		e.append("${"+e.define(a+old+c+old)+"//"+old+"/"+b+"}", a+b+c+b)
	case 9:
		e.append("${"+e.define(old+a)+"/#"+old+"/"+b+"}", b+a)
	case 10:
		e.append("${"+e.define(a+old)+"/%"+old+"/"+b+"}", a+b)
	case 11:
		e.append(fmt.Sprintf("${%s:%d:%d}", e.define(a+b+c), len(a), len(b)), b)
	case 12:
		inner := expression{variables: e.variables}
		if depth > 0 {
			inner.add(r, depth-1)
		}
		e.append("${unset"+pick(r, ":=", ":-", ":+")+inner.text()+"}", inner.want())
	default:
		e.append(a+"$$"+b, a+"$"+b)
	}
}

func (e *expression) append(text, want string) { e.parts = append(e.parts, part{text, want}) }
