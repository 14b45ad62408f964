package artifact

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// wrong returns what is wrong with the names of the entries of a directory, or of the directories below it. It returns
// an empty string if all names are valid. The entries must be sorted by name.
func wrong(entries []Entry) string {
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Dir != nil && e.Dir.wrong != "":
			return e.Dir.wrong
		case !utf8.ValidString(e.Name) || strings.Contains(e.Name, "\x00"):
			return fmt.Sprintf("the name %.100q is not UTF-8 text", e.Name)
		case i > 0 && entries[i-1].Name == e.Name:
			return fmt.Sprintf("the name %.100q is used twice in a directory", e.Name)
		}
	}
	return ""
}

// clash names two entries of a directory, or of a directory below it, whose names differ only in case. It returns an
// empty string if there are none.
func clash(entries []Entry) string {
	var folded map[string]string // names with upper-case letters, by their lower-case form
	for i := range entries {
		e := &entries[i]
		if e.Dir != nil && e.Dir.clash != "" {
			return e.Dir.clash
		}
		lower := strings.ToLower(e.Name)
		if lower == e.Name {
			continue
		}
		other, found := folded[lower]
		if _, plain := (&Dir{Entries: entries}).find(lower); plain {
			other, found = lower, true
		}
		if found {
			return fmt.Sprintf("the names %.100q and %.100q differ only in case", other, e.Name)
		}
		if folded == nil {
			folded = map[string]string{}
		}
		folded[lower] = e.Name
	}
	return ""
}
