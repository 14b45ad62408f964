package bucket

import (
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// checkNames refuses objects that cannot be files of one tree on every file system. Objects must be sorted by name.
func checkNames(objects []Object) error {
	files := make(map[string]bool, len(objects))
	for _, o := range objects {
		if problem := nameProblem(o.Name); problem != "" {
			return failed("the object '%s' %s", shorten(o.Name), problem).
				WithHint("Rename it, or exclude it with spec.ignore or a .sourceignore object")
		}
		if files[o.Name] {
			return failed("the object '%s' is listed twice", shorten(o.Name))
		}
		for i, r := range o.Name + "/" {
			if r != '/' {
				continue
			}
			path := o.Name[:i]
			if i < len(o.Name) && files[path] {
				return failed("the object '%s' conflicts with '%s': a file cannot be a directory as well",
					shorten(path), shorten(o.Name)).
					WithHint("Rename one of them")
			}
		}
		files[o.Name] = true
	}
	return nil
}

// nameProblem describes why a name is not valid for a file; empty if it is valid.
func nameProblem(name string) string {
	switch {
	case !utf8.ValidString(name):
		return "has a name that is not UTF-8"
	case len(name) > defaultLimits.name:
		return "has a name that is too long"
	case strings.HasPrefix(name, "/"):
		return "has an absolute path as its name"
	case strings.Contains(name, `\`):
		return "has a backslash in its name, which some systems treat as a slash"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has a control character in its name"
	case !fs.ValidPath(name) || name == ".":
		return "has a name that is not a valid path: it contains '.', '..' or empty parts"
	}
	return ""
}

// shorten makes untrusted text safe for messages: valid UTF-8, no control characters, at most 100 bytes.
func shorten(name string) string {
	name = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, name), "?")
	return excerpt.Bytes(name, 100)
}
