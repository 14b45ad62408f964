// Package kind lists the kinds of Sluice with what the commands need to work with their objects. All commands that work
// with any kind read this table, so a new kind is one more entry.
package kind

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// Kind describes a kind.
type Kind struct {
	Words  []string // names on the command line; the first is the main one
	Plural string   // name in `sluice get`
	Parent string   // command that groups it, such as "source"; "" if none

	New     func() reconcile.Object
	NewList func() client.ObjectList

	Columns []Column // of `sluice get`, between NAME and READY
	// StatusCondition is the condition whose message `sluice get` shows for Ready objects; "" for Ready itself.
	StatusCondition string

	RunsOnce     bool // it cannot be reconciled again
	ReadOnly     bool // controllers create and delete it, so users neither reconcile nor delete it
	NoInterval   bool // only changes cause a reconcile
	HasSource    bool // it is built from one source
	HasInventory bool // its status lists the objects that it made

	// SetSuspended suspends or resumes an object; nil if the kind cannot be suspended.
	SetSuspended func(o reconcile.Object, suspended bool)
	// AlsoDeleted names what is deleted with an object, for confirmations.
	AlsoDeleted string
}

// Column is a column of `sluice get`.
type Column struct {
	Header string
	Value  func(o reconcile.Object, wide bool) string
	// Optional is the value that says nothing: tables of several kinds omit the column if all objects have it.
	Optional string
	// Detail is set for columns that tables of several kinds omit.
	Detail bool
}

// parents are the commands that group kinds, with their aliases.
var parents = map[string][]string{"source": {"sources", "src"}, "artifact": {"artifacts"}, "image": {"images"}}

// ParentAliases returns the aliases of a command that groups kinds, or nil if there is no such command.
func ParentAliases(parent string) []string { return parents[parent] }

// All returns all kinds. The caller must not change the slice.
func All() []*Kind { return kinds }

// Under returns the kinds that a parent groups.
func Under(parent string) []*Kind {
	return slices.DeleteFunc(slices.Clone(kinds), func(k *Kind) bool { return k.Parent != parent })
}

// Name returns the name of the kind in the API.
func (k *Kind) Name() string {
	name := fmt.Sprintf("%T", k.New())
	return name[strings.LastIndex(name, ".")+1:]
}

// WithArticle returns the name of the kind with its indefinite article.
func (k *Kind) WithArticle() string {
	if strings.ContainsRune("AEIO", rune(k.Name()[0])) {
		return "an " + k.Name()
	}
	return "a " + k.Name()
}

// Path returns the words that name the kind on the command line.
func (k *Kind) Path() string { return strings.TrimSpace(k.Parent + " " + k.Words[0]) }

// GetCommand returns the command that lists the objects of the kind.
func (k *Kind) GetCommand() string { return "sluice get " + strings.TrimSpace(k.Parent+" "+k.Plural) }

// ByName returns the kind with the given name in the API, or nil.
func ByName(name string) *Kind {
	return find(func(k *Kind) bool { return k.Name() == name })
}

// ByWord returns the kind with the given name in the API or on the command line, or nil. Case is ignored.
func ByWord(word string) *Kind {
	return find(func(k *Kind) bool {
		word := strings.ToLower(word)
		return strings.EqualFold(k.Name(), word) || word == k.Plural || slices.Contains(k.Words, word) ||
			slices.Contains(k.Words, strings.TrimSuffix(word, "s"))
	})
}

func find(matches func(*Kind) bool) *Kind {
	i := slices.IndexFunc(kinds, matches)
	if i < 0 {
		return nil
	}
	return kinds[i]
}
