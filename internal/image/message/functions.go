package message

import (
	"errors"
	"fmt"
	"reflect"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

const (
	maxText  = maxOutput // bytes that a function may return
	maxItems = 10_000    // of lists and maps
	maxCount = 10_000    // absolute value of integer arguments
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
		"print": bound(fmt.Sprint), "println": bound(fmt.Sprintln), "printf": bound(fmt.Sprintf),
		"html": bound(template.HTMLEscaper), "js": bound(template.JSEscaper),
		"urlquery": bound(template.URLQueryEscaper),
	}
	for _, name := range allowed {
		funcs[name] = bound(library[name])
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

// bound wraps a function so that it returns an error if an argument or the result is too large.
func bound(function any) any {
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
