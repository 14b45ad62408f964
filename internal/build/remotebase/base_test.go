package remotebase

import "testing"

func TestParseSplitsURLsAsKustomizeDoes(t *testing.T) {
	for text, want := range map[string]Base{
		"https://github.com/org/repo//base?ref=main":       {"https://github.com/org/repo", "base", "main", true},
		"https://github.com/org/repo?ref=v1.0.0":           {"https://github.com/org/repo", ".", "v1.0.0", true},
		"https://github.com/org/repo/deep/path?version=v1": {"https://github.com/org/repo", "deep/path", "v1", true},
		"https://example.com/a/b/c.git/deep?ref=x":         {"https://example.com/a/b/c.git", "deep", "x", true},
		"https://example.com/a/b/c.git//deep/er":           {"https://example.com/a/b/c.git", "deep/er", "", true},
		"http://example.com/a/b//c?submodules=false&ref=1": {"http://example.com/a/b", "c", "1", false},
		"https://dev.azure.com/org/project/_git/repo/p?ref=": {"https://dev.azure.com/org/project/_git/repo",
			"p", "", true},
		"github.com/org/repo/p":                          {"https://github.com/org/repo", "p", "", true},
		"git::https://example.com/a/b?ref=c&timeout=90s": {"https://example.com/a/b", ".", "c", true},
	} {
		if got, ok := Parse(text); !ok || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{"ssh://git@example.com/a/b", "git@github.com:a/b", "file:///a/b",
		"https://u:p@example.com/a/b",
		"https://example.com/a", "https://example.com/a/b//../../c", "base"} {
		if got, ok := Parse(text); ok {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestManifestsAreToldFromRepositories(t *testing.T) {
	for text, want := range map[string]bool{
		"https://example.com/a.yaml": true, "http://example.com/a/b.yml?token=x": true, "https://example.com/a": false,
		"https://github.com/a/b//c.yaml?ref=v1": false, "https://u@example.com/a.yaml": false, "ssh://x/a.yaml": false,
	} {
		if IsManifest(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}
