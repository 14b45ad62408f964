package githost

import "testing"

func TestCommitPage(t *testing.T) {
	const hash = "0123456789abcdef0123456789abcdef01234567"
	for origin, want := range map[string]string{
		"https://github.com/acme/fleet":                "https://github.com/acme/fleet/commit/" + hash,
		"https://me:secret@github.com/acme/fleet.git":  "https://github.com/acme/fleet/commit/" + hash,
		"ssh://git@github.com:22/acme/fleet.git":       "https://github.com/acme/fleet/commit/" + hash,
		"git@github.com:acme/fleet.git":                "https://github.com/acme/fleet/commit/" + hash,
		"https://gitlab.example:8443/a/b/c.git":        "https://gitlab.example:8443/a/b/c/-/commit/" + hash,
		"https://bitbucket.org/acme/fleet":             "https://bitbucket.org/acme/fleet/commits/" + hash,
		"https://dev.azure.com/acme/p/_git/fleet":      "https://dev.azure.com/acme/p/_git/fleet/commit/" + hash,
		"https://bitbucket.example/scm/acme/fleet.git": "",
		"ssh://git@ssh.dev.azure.com/v3/acme/p/fleet":  "",
		"https://git-codecommit.eu.amazonaws.com/v1/x": "",
		"https://host":                          "",
		"not a URL\x7f":                         "",
		"":                                      "",
		"/srv/git/fleet":                        "",
		"https://github.com/a\"><script>/fleet": "https://github.com/a%22%3E%3Cscript%3E/fleet/commit/" + hash,
	} {
		if got := CommitPage(origin, hash); got != want {
			t.Errorf("CommitPage(%q) = %q, want %q", origin, got, want)
		}
	}
}

func TestComparePage(t *testing.T) {
	for repository, want := range map[string]string{
		"https://me:secret@github.com/acme/fleet.git": "https://github.com/acme/fleet/compare/aaa...bbb",
		"git@gitlab.example:acme/fleet.git":           "https://gitlab.example/acme/fleet/-/compare/aaa...bbb",
		"https://bitbucket.org/acme/fleet":            "https://bitbucket.org/acme/fleet/branches/compare/bbb%0Daaa",
		"https://dev.azure.com/acme/p/_git/fleet":     "",
		"/srv/git/fleet":                              "",
	} {
		if got := ComparePage(repository, "aaa", "bbb"); got != want {
			t.Errorf("ComparePage(%q) = %q, want %q", repository, got, want)
		}
	}
}

func TestFilePage(t *testing.T) {
	for repository, want := range map[string]string{
		"https://github.com/acme/fleet.git":    "https://github.com/acme/fleet/blob/c0ffee/apps/a%20b.yaml",
		"ssh://git@gitlab.com/acme/team/fleet": "https://gitlab.com/acme/team/fleet/-/blob/c0ffee/apps/a%20b.yaml",
		"https://bitbucket.org/acme/fleet":     "https://bitbucket.org/acme/fleet/src/c0ffee/apps/a%20b.yaml",
		"https://codeberg.org/acme/fleet":      "https://codeberg.org/acme/fleet/src/commit/c0ffee/apps/a%20b.yaml",
		"https://dev.azure.com/o/p/_git/r":     "",
		"not a repository":                     "",
	} {
		if got := FilePage(repository, "c0ffee", "apps/a b.yaml"); got != want {
			t.Errorf("FilePage(%s) = %s, want %s", repository, got, want)
		}
	}
}
