package remotebase

import (
	"net/url"
	"path"
	"strconv"
	"strings"
)

// Base is a directory of a git repository that a kustomization refers to.
type Base struct {
	Repository string // https or http
	Path       string // of the directory in the repository; the root when empty
	Ref        string // a branch, a tag, a commit or a full name; the default branch when empty
	Submodules bool
}

// orgAndName is the number of elements of the path of a repository whose URL does not say where it ends.
const orgAndName = 2

// Parse parses the URL of a base as kustomize does: REPOSITORY//PATH?ref=REF, or a path with .git or _git/. It returns
// false for URLs of other protocols than HTTP, with credentials, or of a path out of the repository.
func Parse(text string) (Base, bool) {
	if len(text) >= len("git::") && strings.EqualFold(text[:len("git::")], "git::") {
		text = text[len("git::"):]
	}
	if rest, ok := strings.CutPrefix(text, "github.com/"); ok {
		text = "https://github.com/" + rest
	}
	address, query, _ := strings.Cut(text, "?")
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		return Base{}, false
	}
	repository, dir, ok := split(strings.TrimPrefix(u.Path, "/"))
	dir = path.Clean("./" + dir)
	if !ok || repository == "" || dir == ".." || strings.HasPrefix(dir, "../") {
		return Base{}, false
	}
	b := Base{Repository: u.Scheme + "://" + u.Host + "/" + repository, Path: dir, Submodules: true}
	if values, err := url.ParseQuery(query); err == nil {
		if b.Ref = values.Get("ref"); b.Ref == "" {
			b.Ref = values.Get("version")
		}
		if on, err := strconv.ParseBool(values.Get("submodules")); err == nil {
			b.Submodules = on
		}
	}
	return b, true
}

// split splits a path into that of a repository and that of a directory in it.
func split(full string) (repository, dir string, ok bool) {
	if before, after, found := strings.Cut(full, "_git/"); found {
		name, dir, _ := strings.Cut(after, "/")
		return before + "_git/" + name, dir, name != ""
	}
	if before, after, found := strings.Cut(full, "//"); found {
		return before, after, true
	}
	if before, after, found := strings.Cut(full, ".git"); found {
		return before + ".git", strings.TrimPrefix(after, "/"), true
	}
	parts := strings.Split(full, "/")
	if len(parts) < orgAndName {
		return "", "", false
	}
	return strings.Join(parts[:orgAndName], "/"), strings.Join(parts[orgAndName:], "/"), true
}

// IsManifest reports whether a URL names a manifest, and not a directory of a git repository.
func IsManifest(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return false
	}
	ext := path.Ext(u.Path)
	isGit := strings.Contains(u.Path, "//") || strings.Contains(u.Path, ".git/") || strings.Contains(u.Path, "_git/") ||
		u.Query().Has("ref")
	return (ext == ".yaml" || ext == ".yml") && !isGit
}
