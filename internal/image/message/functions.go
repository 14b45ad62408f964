package message

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

const (
	maxText  = maxOutput // bytes that a function may return
	maxItems = 10_000    // of lists and maps
	maxCount = 10_000    // absolute value of integer arguments
	maxWork  = 8 << 20   // bytes that a function may write before its result is checked
)

// allowed lists the functions of the sprig library that templates may use: those for strings, numbers, lists
// and times. None of them reads the environment, opens connections or generates keys. None nests lists, so
// that the work stays bounded.
var allowed = []string{
	"abbrev", "abbrevboth", "camelcase", "cat", "contains", "hasPrefix", "hasSuffix", "indent", "initials", "kebabcase",
	"lower", "nindent", "nospace", "plural", "quote",
	"repeat", "replace", "snakecase", "squote", "substr", "swapcase", "title", "trim", "trimAll", "trimPrefix",
	"trimSuffix", "trimall", "trunc", "untitle", "upper", "wrap", "wrapWith",
	"regexFind", "regexFindAll", "regexMatch", "regexQuoteMeta", "regexReplaceAll", "regexReplaceAllLiteral",
	"regexSplit",
	"adler32sum", "b32dec", "b32enc", "b64dec", "b64enc", "sha1sum", "sha256sum", "sha512sum",
	"add", "add1", "atoi", "ceil", "div", "float64", "floor", "int", "int64", "max", "min", "mod", "mul",
	"round", "sub",
	"compact", "first", "has", "initial", "join", "keys", "last", "rest", "reverse", "sortAlpha", "split", "splitList",
	"splitn", "toStrings", "uniq", "values", "without",
	"all", "any", "coalesce", "default", "empty", "fail", "get", "hasKey", "ternary", "toJson", "toPrettyJson",
	"toString", "kindIs", "kindOf", "typeOf",
	"base", "clean", "dir", "ext", "isAbs", "semver", "semverCompare", "urlParse",
	"ago", "date", "dateInZone", "date_in_zone", "duration", "durationRound", "htmlDate", "now", "toDate", "unixEpoch",
}

// functions returns the functions for one execution. Their arguments and results are bounded. Rounds counts the loop
// iterations.
func functions(rounds *int) template.FuncMap {
	library := sprig.TxtFuncMap()
	funcs := template.FuncMap{
		tick: func() (string, error) {
			if *rounds++; *rounds > maxRounds {
				return "", fmt.Errorf("the template runs more than %d loop iterations", maxRounds)
			}
			return "", nil
		},
		"list": flat, "tuple": flat,
		"print": bound("print", fmt.Sprint), "println": bound("println", fmt.Sprintln),
		"printf": bound("printf", fmt.Sprintf), "html": bound("html", template.HTMLEscaper),
		"js": bound("js", template.JSEscaper), "urlquery": bound("urlquery", template.URLQueryEscaper),
	}
	for _, name := range allowed {
		funcs[name] = bound(name, library[name])
	}
	return funcs
}

// flat returns a list of its arguments, which must not be lists themselves.
func flat(items ...any) ([]any, error) {
	for _, i := range items {
		switch reflect.ValueOf(i).Kind() {
		case reflect.Slice, reflect.Map, reflect.Array, reflect.Pointer:
			return nil, errors.New("lists may contain only strings and numbers")
		}
	}
	return items, nil
}

var errorType = reflect.TypeFor[error]()

// longWidth matches what lets printf write many bytes for one verb.
var longWidth = regexp.MustCompile(`%[^a-zA-Z%]*([0-9]{4,}|\*)`)

// writes returns an upper bound of the bytes that a function writes for its arguments, for functions that repeat them.
func writes(name string, args []reflect.Value) int {
	var texts []string
	count, items, all := 1, 0, 0
	var visit func(v reflect.Value, depth int)
	visit = func(v reflect.Value, depth int) {
		for v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		switch {
		case v.Kind() == reflect.String:
			texts, all = append(texts, v.String()), all+v.Len()
		case v.Kind() == reflect.Int:
			count = max(count, int(v.Int()))
		case v.Kind() == reflect.Slice && depth < 2: // variadic arguments, and a list
			items = max(items, v.Len())
			for i := range v.Len() {
				visit(v.Index(i), depth+1)
			}
		}
	}
	for _, a := range args {
		visit(a, 0)
	}
	last := func(n int) int { // length of a text, counted from the end
		if n > len(texts) {
			return 0
		}
		return len(texts[len(texts)-n])
	}
	switch name {
	case "repeat":
		return count * all
	case "indent", "nindent":
		return all + count*(1+strings.Count(strings.Join(texts, ""), "\n"))
	case "replace":
		if len(texts) == 3 {
			return all + strings.Count(texts[2], texts[0])*len(texts[1])
		}
	case "regexReplaceAll", "regexReplaceAllLiteral":
		return all + (1+last(2))*last(1)
	case "wrapWith":
		return all + (1+last(1))*last(2)
	case "join":
		if len(texts) > 0 {
			return all + items*len(texts[0])
		}
	case "printf":
		if len(texts) > 0 && longWidth.MatchString(texts[0]) {
			return maxWork + 1
		}
		if len(texts) > 0 {
			return (1 + strings.Count(texts[0], "%")) * (all + 1000)
		}
	}
	return all
}

// bound wraps a function so that it returns an error if an argument or the result is too large.
func bound(name string, function any) any {
	f := reflect.ValueOf(function)
	t := f.Type()
	in := make([]reflect.Type, t.NumIn())
	for i := range in {
		in[i] = t.In(i)
	}
	result := func(out reflect.Value, err error) []reflect.Value {
		failure := reflect.Zero(errorType)
		if err != nil {
			out, failure = reflect.Zero(t.Out(0)), reflect.ValueOf(&err).Elem()
		}
		return []reflect.Value{out, failure}
	}
	return reflect.MakeFunc(reflect.FuncOf(in, []reflect.Type{t.Out(0), errorType}, t.IsVariadic()),
		func(args []reflect.Value) []reflect.Value {
			for _, a := range args {
				if a.Kind() == reflect.Int && (a.Int() > maxCount || a.Int() < -maxCount) {
					return result(a, fmt.Errorf("%d is too large for a template", a.Int()))
				}
			}
			if writes(name, args) > maxWork {
				return result(args[0], fmt.Errorf("the arguments of '%s' are too large for a template", name))
			}
			var results []reflect.Value
			if t.IsVariadic() {
				results = f.CallSlice(args)
			} else {
				results = f.Call(args)
			}
			if len(results) > 1 && !results[1].IsNil() {
				err, _ := results[1].Interface().(error)
				return result(results[0], err)
			}
			return result(results[0], checkSize(results[0]))
		}).Interface()
}

func checkSize(v reflect.Value) error {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		if v.Len() > maxText {
			return fmt.Errorf("a string is longer than %d bytes", maxText)
		}
	case reflect.Slice, reflect.Map:
		if v.Len() > maxItems {
			return fmt.Errorf("a list has more than %d items", maxItems)
		}
	}
	return nil
}
