package githost

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// repositoryPath returns the path of the web page of a repository.
func (r Repository) repositoryPath() []string {
	switch r.Kind {
	case AzureDevOps:
		return []string{r.Owner, "_git", r.Name}
	case BitbucketServer:
		if user, ok := strings.CutPrefix(r.Owner, "~"); ok {
			return []string{"users", user, "repos", r.Name}
		}
		return []string{"projects", r.Owner, "repos", r.Name}
	}
	return append(strings.Split(r.Owner, "/"), r.Name)
}

// RequestURL returns the web page of a change request.
func (r Repository) RequestURL(number int) string {
	path := r.repositoryPath()
	for _, f := range pullFormats {
		if f.kind == r.Kind {
			path = append(path, f.middle...)
		}
	}
	return r.Base.JoinPath(escaped(append(path, strconv.Itoa(number)))...).String()
}

// FileURL returns the web page of a file of a commit, at a line; 0 for none.
func (r Repository) FileURL(commit, file string, line int) string {
	parts := strings.Split(file, "/")
	query, fragment := url.Values{}, ""
	middle := map[Kind][]string{GitHub: {"blob", commit}, GitLab: {"-", "blob", commit},
		Gitea: {"src", "commit", commit}, Bitbucket: {"src", commit}, BitbucketServer: {"browse"}}[r.Kind]
	switch {
	case r.Kind == AzureDevOps:
		parts = nil
		query.Set("path", "/"+file)
		query.Set("version", "GC"+commit)
		if line > 0 {
			query.Set("line", strconv.Itoa(line))
			query.Set("lineEnd", strconv.Itoa(line+1))
			query.Set("lineStartColumn", "1")
			query.Set("lineEndColumn", "1")
		}
	case line <= 0:
	case r.Kind == Bitbucket:
		fragment = fmt.Sprintf("lines-%d", line)
	case r.Kind == BitbucketServer:
		fragment = strconv.Itoa(line)
	default:
		fragment = fmt.Sprintf("L%d", line)
	}
	if r.Kind == BitbucketServer {
		query.Set("at", commit)
	}
	u := r.Base.JoinPath(escaped(append(append(r.repositoryPath(), middle...), parts...))...)
	u.RawQuery, u.Fragment = query.Encode(), fragment
	return u.String()
}
