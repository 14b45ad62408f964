package substitute

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

var variables = map[string]string{
	"a": "alpha", "empty": "", "path": "/usr/local/bin", "file": "app.tar.gz", "Name": "Ünïcode", "n": "2", "glob": "*",
	"dots": "a.b.c", "key": "a", "self": "${a}", "stars": "x*y*z",
}

var expansions = map[string]string{
	"":                     "",
	"plain":                "plain",
	"${a}":                 "alpha",
	"x${a}y${a}z":          "xalphayalphaz",
	"$a $ $$ $1 $(a) $":    "$a $ $ $1 $(a) $",
	"$${a}":                "${a}",
	"$$${a}":               "$alpha",
	`\${a}`:                `\alpha`,
	`back\\slash\.`:        `back\\slash\.`,
	"{${a}}":               "{alpha}",
	"${none}":              "",
	"${self}":              "${a}", // values are not expanded again
	"${none:=d}":           "d",
	"${none:-d}":           "d",
	"${none=d}":            "d",
	"${none-d}":            "d",
	"${empty:=d}":          "d",
	"${empty:-d}":          "d",
	"${empty=d}":           "",
	"${empty-d}":           "",
	"${a:=d}":              "alpha",
	"${none:=}":            "",
	"${none:=a: b, c}":     "a: b, c",
	"${none:=${a}}":        "alpha",
	"${none:=x${b:-${a}}}": "xalpha",
	"${none:=$${a}}":       "${a}",
	"${none:={}}":          "{}", // the first closing brace ends the expression
	"${#a}":                "5",
	"${#Name}":             "7",
	"${#none}":             "0",
	"${a^}":                "Alpha",
	"${a^^}":               "ALPHA",
	"${Name,}":             "ünïcode",
	"${Name,,}":            "ünïcode",
	"${Name^^}":            "ÜNÏCODE",
	"${empty^}":            "",
	"${a:1}":               "lpha",
	"${a:1:2}":             "lp",
	"${a:0:99}":            "alpha",
	"${a:9}":               "",
	"${a: -2}":             "ha",
	"${a:1:-1}":            "lph",
	"${a:4:-4}":            "",
	"${Name:0:1}":          "Ü",
	"${a:${n}:1}":          "p",
	"${path#*/}":           "usr/local/bin",
	"${path##*/}":          "bin",
	"${path%/*}":           "/usr/local",
	"${path%%/*}":          "",
	"${file%.gz}":          "app.tar",
	"${file%%.*}":          "app",
	"${file#app}":          ".tar.gz",
	"${file#none}":         "app.tar.gz",
	"${file#${key}}":       "pp.tar.gz",
	"${file#[a-c]?}":       "p.tar.gz",
	"${file#[!a-c]}":       "app.tar.gz",
	"${file#[]a]}":         "pp.tar.gz",
	"${file#[}":            "app.tar.gz",
	"${a#}":                "alpha",
	"${a%}":                "alpha",
	"${a%%*}":              "",
	"${a/a/o}":             "olpha",
	"${a//a/o}":            "olpho",
	"${a//a}":              "lph",
	"${a/#al/AL}":          "ALpha",
	"${a/#ph/PH}":          "alpha",
	"${a/%ha/HA}":          "alpHA",
	"${a/%al/AL}":          "alpha",
	"${a//p*/!}":           "alpha",
	"${a//?/.}":            "alpha",
	`${dots//\./-}`:        "a.b.c",
	`${stars//*/+}`:        "x+y+z",
	"${a:?text}":           "alpha",
	"${a:+other}":          "alpha",
	"${none:+other}":       "other",
	"${empty:+${a}}":       "alpha",
	`${path//\//-}`:        "-usr-local-bin",
	`${path/\/usr\//\/}`:   "/local/bin",
	"${dots//./-}":         "a-b-c",
	"${a/${key}/${n}}":     "2lpha",
	"${a//none/x}":         "alpha",
	"${a///x}":             "alpha",
}

func TestExpand(t *testing.T) {
	for text, want := range expansions {
		if got, err := Expand(text, variables, false); err != nil || got != want {
			t.Errorf("%s is %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestExpandRefusesWhatItDoesNotKnow(t *testing.T) {
	for text, says := range map[string]string{
		"${a":            "no closing brace",
		"${}":            "not a substitution expression",
		"${1}":           "not a substitution expression",
		"${@}":           "not a substitution expression",
		"${arr[@]}":      "not a substitution expression",
		"${!a}":          "not a substitution expression",
		"${a-b}${a.b}":   "not a substitution expression",
		"${#a:1}":        "not a substitution expression",
		"${a:x}":         "not a substitution expression",
		"${a:}":          "not a substitution expression",
		"${a:1:x}":       "not a substitution expression",
		"${none:?text}":  `variable none is not set or empty: "text"`,
		"${a?text}":      "not a substitution expression",
		"${a+other}":     "not a substitution expression",
		"${a@Q}":         "not a substitution expression",
		"${a^^x}":        "not a substitution expression",
		"${ a }":         "not a substitution expression",
		"${none:=${b}":   "no closing brace",
		"${none:=${1}}":  `"${1}" is not`,
		nested(maxDepth): "too deep",
	} {
		_, err := Expand(text, variables, false)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want an error that contains %q", text, err, says)
		}
	}
}

func nested(depth int) string {
	return strings.Repeat("${none:=", depth+1) + strings.Repeat("}", depth+1)
}

func TestStrictNamesAllThatIsMissing(t *testing.T) {
	_, err := Expand("${one} ${a} ${two^^} ${one} ${three:=x} ${four:=${five}} ${empty}", variables, true)
	var missing *Missing
	if !errors.As(err, &missing) || !slices.Equal(missing.Names, []string{"one", "two", "five"}) {
		t.Errorf("got %v", err)
	}
}

func TestWhatGrowsWithoutEndIsRefused(t *testing.T) {
	big := map[string]string{"big": strings.Repeat("a", 1<<20)}
	for text, want := range map[string]error{
		strings.Repeat("${big}", 20):      errTooLong,
		"${big//a/${big}}":                errTooLong,
		strings.Repeat("${big##*a}", 100): errTooSlow,
		"${none:=" + strings.Repeat("${big}", 6) + strings.Repeat("${big}", 6) + "}": errTooLong,
	} {
		if _, err := Expand(text, big, false); !errors.Is(err, want) {
			t.Errorf("%.20s: got %v, want %v", text, err, want)
		}
	}
	if got, err := Expand("${big%%a*}${big##*a}", big, false); err != nil || got != "" {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

func TestErrorsHoldNoValues(t *testing.T) {
	secret := map[string]string{"password": "hunter2", "position": "hunter2"}
	for _, text := range []string{"${password:${position}}", "${password[${position}]}", "${password:0:${position}}",
		"${password${position}}"} {
		if _, err := Expand(text, secret, true); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestValidName(t *testing.T) {
	for name, want := range map[string]bool{"a": true, "_A1": true, "": false, "1a": false, "a-b": false,
		"tls.crt": false, "ä": false, "a\n": false} {
		if ValidName(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"${a}", "${a:=${b}}", "$${a}", "${a//[a-c]*/x}", "${a:1:-1}", "${#a}", `${a/\//}`,
		"${a##*[!"} {
		f.Add(seed, "value", true)
	}
	f.Fuzz(func(t *testing.T, text, value string, strict bool) {
		got, err := Expand(text, map[string]string{"a": value}, strict)
		if err == nil && !hasExpressions(text) && got != text {
			t.Errorf("%q became %q", text, got)
		}
		if len(got) > 2*maxText {
			t.Errorf("grew to %d bytes", len(got))
		}
	})
}
