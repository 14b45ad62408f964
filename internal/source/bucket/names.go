package bucket

import (
	"io/fs"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-gitops/sluice/internal/excerpt"
)

// checkNames refuses objects that cannot stand beside each other in a tree of files, on any file system.
// Objects are sorted by name.
func checkNames(objects []Object) error {
	spelled := map[string]string{} // paths of directories and files, by how they read without case
	files := make(map[string]bool, len(objects))
	for _, o := range objects {
		if why := wrong(o.Name); why != "" {
			return failed("the object '%s' %s", shorten(o.Name), why).
				WithHint("Rename it, or leave it out by spec.ignore or a .sourceignore object")
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
				return failed("the object '%s' is in the way of '%s': a file cannot be a directory as well",
					shorten(path), shorten(o.Name)).
					WithHint("Rename one of them")
			}
			folded := strings.ToLower(path)
			if other, ok := spelled[folded]; ok && other != path {
				return failed("the names '%s' and '%s' differ in case only", shorten(other), shorten(path)).
					WithHint("Rename one of them")
			}
			spelled[folded] = path
		}
		files[o.Name] = true
	}
	return nil
}

// wrong says why a name cannot be that of a file in a tree; nothing if it can.
func wrong(name string) string {
	switch {
	case !utf8.ValidString(name):
		return "has a name that is not UTF-8"
	case len(name) > defaultLimits.name:
		return "has too long a name"
	case strings.HasPrefix(name, "/"):
		return "has an absolute path as its name"
	case strings.Contains(name, `\`):
		return "has a backslash in its name, which some read as a slash"
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has a control character in its name"
	case !fs.ValidPath(name) || name == ".":
		return "has a name that is not a path of a file: it leads out or has empty parts"
	}
	return ""
}

// shorten makes a name that a stranger chose fit for a message.
func shorten(name string) string {
	name = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, name), "?")
	return excerpt.Bytes(name, 100)
}
