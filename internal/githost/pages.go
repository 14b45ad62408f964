package githost

import (
	"net/url"
	"strings"
)

// website is the web pages of a repository.
type website struct {
	base string // URL
	host string
}

// websiteOf returns the web pages of a repository, with the path that the git host documents; nil if it is unknown.
func websiteOf(repository string) *website {
	if at := scp.FindStringSubmatch(repository); at != nil && !strings.Contains(repository, "://") {
		repository = "ssh://" + at[1] + "/" + at[2]
	}
	u, err := url.Parse(repository)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	path := strings.TrimSuffix(strings.Trim(u.EscapedPath(), "/"), ".git")
	scheme, host := u.Scheme, u.Host
	if scheme != "https" && scheme != "http" {
		scheme, host = "https", u.Hostname() // without the SSH port
	}
	if path == "" || strings.HasPrefix(path, "scm/") || host == "ssh.dev.azure.com" ||
		strings.Contains(host, "amazonaws.com") {
		return nil
	}
	return &website{base: (&url.URL{Scheme: scheme, Host: host}).String() + "/" + path, host: host}
}

func (w *website) isGitLab() bool { return strings.Contains(w.host, "gitlab") }

// CommitPage returns the web page of a commit; empty if it is unknown.
func CommitPage(repository, commit string) string {
	w := websiteOf(repository)
	switch {
	case w == nil:
		return ""
	case w.host == "bitbucket.org":
		return w.base + "/commits/" + commit
	case w.isGitLab():
		return w.base + "/-/commit/" + commit
	}
	return w.base + "/commit/" + commit
}

// ComparePage returns the web page with what changed between two commits; empty if it is unknown.
func ComparePage(repository, from, to string) string {
	w := websiteOf(repository)
	switch {
	case w == nil, w.host == "dev.azure.com":
		return ""
	case w.host == "bitbucket.org":
		return w.base + "/branches/compare/" + to + "%0D" + from
	case w.isGitLab():
		return w.base + "/-/compare/" + from + "..." + to
	}
	return w.base + "/compare/" + from + "..." + to
}

// FilePage returns the web page of a file at a commit; empty if it is unknown.
func FilePage(repository, commit, file string) string {
	w := websiteOf(repository)
	path := commit + "/" + (&url.URL{Path: file}).EscapedPath()
	switch {
	case w == nil, w.host == "dev.azure.com":
		return ""
	case w.host == "bitbucket.org":
		return w.base + "/src/" + path
	case w.isGitLab():
		return w.base + "/-/blob/" + path
	case strings.Contains(w.host, "gitea") || strings.Contains(w.host, "forgejo") || w.host == "codeberg.org":
		return w.base + "/src/commit/" + path
	}
	return w.base + "/blob/" + path
}
