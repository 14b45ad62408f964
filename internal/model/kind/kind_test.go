package kind

import (
	"slices"
	"strings"
	"testing"
)

func TestShortRevision(t *testing.T) {
	for revision, want := range map[string]string{
		"": "",
		"main@sha1:4f170ec83a5c2cd3b3a27b4ef0b2ed4f33e7b5f3": "main@sha1:4f170ec8",
		"sha1:4f170ec83a5c2cd3b3a27b4ef0b2ed4f33e7b5f3":      "sha1:4f170ec8",
		"1.2.3":            "1.2.3",
		"main@sha1:4f170e": "main@sha1:4f170e",
	} {
		if got := ShortRevision(revision); got != want {
			t.Errorf("%q is shortened to %q, want %q", revision, got, want)
		}
	}
}

func TestShortRevisions(t *testing.T) {
	text := "a@sha1:4f170ec83a5c2cd3b3a27b4ef0b2ed4f33e7b5f3; b@sha256:" + strings.Repeat("4f17", 16) + ", sha1:4f17"
	if got, want := ShortRevisions(text), "a@sha1:4f170ec8; b@sha256:4f174f17, sha1:4f17"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTableIsComplete checks each entry, and that no word names two kinds.
func TestTableIsComplete(t *testing.T) {
	var words []string
	for _, k := range All() {
		if k.Plural == "" || k.New == nil || k.NewList == nil || len(k.Columns) == 0 {
			t.Errorf("the entry of %s is incomplete", k.Name())
		}
		if k.AlsoDeleted == "" && !k.ReadOnly {
			t.Errorf("the entry of %s does not name what a deletion removes", k.Name())
		}
		if k.Parent != "" && ParentAliases(k.Parent) == nil {
			t.Errorf("%s is grouped under %q, which has no aliases", k.Name(), k.Parent)
		}
		for _, word := range k.Words {
			if slices.Contains(words, word) {
				t.Errorf("the word %q names two kinds", word)
			}
			if ByWord(word) != k {
				t.Errorf("the word %q does not lead to %s", word, k.Name())
			}
			words = append(words, word)
		}
		if ByName(k.Name()) != k {
			t.Errorf("%s is not found by its name", k.Name())
		}
	}
}
