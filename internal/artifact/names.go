package artifact

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// wrong returns what is wrong with the names of the entries of a directory, or of the directories below it. It returns
// an empty string if all names are valid. The entries must be sorted by name.
func wrong(entries []Entry) string {
	var folded map[string]string // names with upper-case letters, by their lower-case form
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
		lower := strings.ToLower(e.Name)
		if lower == e.Name {
			continue
		}
		other, clash := folded[lower]
		if _, plain := (&Dir{Entries: entries}).find(lower); plain {
			other, clash = lower, true
		}
		if clash {
			return fmt.Sprintf("the names %.100q and %.100q differ in case only", other, e.Name)
		}
		if folded == nil {
			folded = map[string]string{}
		}
		folded[lower] = e.Name
	}
	return ""
}
