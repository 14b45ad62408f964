package githost

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/excerpt"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Repository is a repository of a host.
type Repository struct {
	Kind Kind
	// scheme, host and the path that is before the repository: that of an installation below a path, or an
	// Azure DevOps organization
	Base url.URL
	// organization or user, groups, workspace, key of a project or ~user, Azure DevOps project; empty for a
	// GitLab project by ID
	Owner string
	Name  string
}

const (
	maxAddress = 2048 // bytes, as in the API of Providers
	maxSegment = 255  // bytes
)

// sshHosts are the hosts for SSH that are not those of the API.
var sshHosts = map[string]string{"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com",
	"altssh.bitbucket.org": "bitbucket.org",
	"ssh.dev.azure.com":    "dev.azure.com", "vs-ssh.visualstudio.com": "dev.azure.com"}

// scp is the short form of SSH: git@host:path.
var scp = regexp.MustCompile(`^(?:[^@/:]+@)?([A-Za-z0-9._-]+):([^/].*|/[^/].*)$`)

// Parse reads the address of a repository as it is in browsers and in git's remotes: http, https, ssh, and
// git@host:path. The error is a fault that does not hold the address.
func Parse(kind Kind, address string) (Repository, error) {
	u, err := locate(address)
	if err != nil {
		return Repository{}, err
	}
	parts, err := segments(u)
	if err != nil {
		return Repository{}, err
	}
	split, ok := splits[kind]
	if !ok {
		return Repository{}, unknown(kind)
	}
	prefix, owner, name, ok := split.of(u.Host, parts)
	name = strings.TrimSuffix(name, ".git")
	if !ok || name == "" {
		return Repository{}, invalid("the address is not that of a repository of %s", kind).
			WithHint("Write it as %s", split.form)
	}
	r := Repository{Kind: kind, Owner: owner, Name: name, Base: url.URL{Scheme: u.Scheme, Host: u.Host}}
	if len(prefix) > 0 {
		r.Base = *r.Base.JoinPath(escaped(prefix)...)
	}
	return r, nil
}

// locate reads an address as a URL at which the host's API may be asked.
func locate(address string) (*url.URL, error) {
	if len(address) > maxAddress {
		return nil, invalid("the address of the repository is longer than %d bytes", maxAddress)
	}
	if !strings.Contains(address, "://") {
		m := scp.FindStringSubmatch(address)
		if m == nil {
			return nil, invalid("the address is not a URL").WithHint("Write it as https://HOST/OWNER/REPOSITORY")
		}
		address = "ssh://" + m[1] + "/" + strings.TrimPrefix(m[2], "/")
	}
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return nil, invalid("the address is not a URL").WithHint("Write it as https://HOST/OWNER/REPOSITORY")
	}
	switch u.Scheme {
	case "ssh": // the API has neither its port nor, with some, its host
		u.Scheme, u.Host = "https", u.Hostname()
		if strings.Contains(u.Host, ":") {
			u.Host = "[" + u.Host + "]"
		}
		if host, ok := sshHosts[strings.ToLower(u.Host)]; ok {
			u.Host = host
			// of Azure DevOps
			u.Path, u.RawPath = strings.TrimPrefix(u.Path, "/v3"), strings.TrimPrefix(u.RawPath, "/v3")
		}
	case "http", "https":
	default:
		return nil, invalid("the address has the scheme %s", excerpt.Chars(line(u.Scheme), 20)).
			WithHint("Use https or ssh")
	}
	u.Host = strings.ToLower(u.Host)
	return u, nil
}

// segments are the parts of a path, of which none can lead out of it.
func segments(u *url.URL) ([]string, error) {
	var parts []string
	for _, part := range strings.Split(strings.Trim(u.EscapedPath(), "/"), "/") {
		plain, err := url.PathUnescape(part)
		if err != nil || plain == "" || plain == "." || plain == ".." || len(plain) > maxSegment ||
			strings.ContainsFunc(plain, func(r rune) bool { return r == '/' || r == '\\' || !unicode.IsPrint(r) }) {
			return nil, invalid("the address has no path of a repository").
				WithHint("Write it as https://HOST/OWNER/REPOSITORY")
		}
		parts = append(parts, plain)
	}
	return parts, nil
}

func escaped(parts []string) []string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = url.PathEscape(p)
	}
	return out
}

// splits tell, by kind, what the parts of a path are.
var splits = map[Kind]struct {
	form string // for people
	of   func(host string, parts []string) (prefix []string, owner, name string, ok bool)
}{
	GitHub: {"https://github.com/OWNER/REPOSITORY", func(_ string, p []string) ([]string, string, string, bool) {
		if len(p) != 2 {
			return nil, "", "", false
		}
		return nil, p[0], p[1], true
	}},
	GitLab: {"https://gitlab.com/GROUP/PROJECT, or https://gitlab.com/ID",
		func(_ string, p []string) ([]string, string, string, bool) {
			last := len(p) - 1
			return nil, strings.Join(p[:last], "/"), p[last], last > 0 || isNumber(p[last])
		}},
	Gitea: {"https://HOST/OWNER/REPOSITORY", func(_ string, p []string) ([]string, string, string, bool) {
		if len(p) < 2 {
			return nil, "", "", false
		}
		last := len(p) - 1
		return p[:last-1], p[last-1], p[last], true
	}},
	Bitbucket: {"https://bitbucket.org/WORKSPACE/REPOSITORY",
		func(host string, p []string) ([]string, string, string, bool) {
			if len(p) != 2 || host != "bitbucket.org" {
				return nil, "", "", false
			}
			return nil, p[0], p[1], true
		}},
	BitbucketServer: {"https://HOST/scm/PROJECT/REPOSITORY.git, as it is cloned by HTTP", splitBitbucketServer},
	AzureDevOps:     {"https://dev.azure.com/ORGANIZATION/PROJECT/_git/REPOSITORY", splitAzureDevOps},
}

// splitBitbucketServer knows the form for cloning, with scm before project or ~user, and those of browsers;
// by SSH there is no scm.
func splitBitbucketServer(_ string, p []string) (prefix []string, owner, name string, ok bool) {
	for i, part := range p {
		switch {
		case part == "scm" && len(p) == i+3:
			return p[:i], p[i+1], p[i+2], true
		case part == "projects" && len(p) >= i+4 && p[i+2] == "repos":
			return p[:i], p[i+1], p[i+3], true
		case part == "users" && len(p) >= i+4 && p[i+2] == "repos":
			return p[:i], "~" + p[i+1], p[i+3], true
		}
	}
	if len(p) != 2 {
		return nil, "", "", false
	}
	return nil, p[0], p[1], true
}

// splitAzureDevOps knows the form of browsers, in which a repository with the name of its project stands
// alone, and that of SSH.
func splitAzureDevOps(host string, p []string) (prefix []string, project, name string, ok bool) {
	i := slices.Index(p, "_git")
	if i < 0 && len(p) == 3 && host == "dev.azure.com" { // by SSH: organization, project, repository
		return p[:1], p[1], p[2], true
	}
	if i < 0 || len(p) != i+2 {
		return nil, "", "", false
	}
	before := p[:i]
	least := 1 // the organization or, in an installation of one's own, the collection
	if strings.HasSuffix(host, ".visualstudio.com") {
		least = 0
		if len(before) > 0 && strings.EqualFold(before[0], "DefaultCollection") {
			least = 1
		}
	}
	switch {
	case len(before) < least:
		return nil, "", "", false
	case len(before) == least:
		return before, p[i+1], p[i+1], true
	}
	return before[:len(before)-1], before[len(before)-1], p[i+1], true
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// commitURL is the page of a commit, for people.
func (r Repository) commitURL(commit string) string {
	path := escaped([]string{r.Owner, r.Name, "commits", commit}) // Bitbucket
	if r.Kind == BitbucketServer {
		path = escaped([]string{"projects", r.Owner, "repos", r.Name, "commits", commit})
	}
	return r.Base.JoinPath(path...).String()
}

func invalid(format string, args ...any) *fault.Fault {
	return fault.New(meta.URLInvalidReason, format, args...).Final()
}

func unknown(kind Kind) error {
	return failed("there is no git host of type '%s'", excerpt.Chars(line(string(kind)), 40)).
		WithHint("Use github, gitlab, gitea, bitbucket, bitbucketserver or azuredevops").Final()
}
