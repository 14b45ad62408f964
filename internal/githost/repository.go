package githost

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Repository identifies a repository on a git host.
type Repository struct {
	Kind Kind
	// Base has scheme, host and the path before the repository: the path of the installation, or an Azure DevOps
	// organization.
	Base url.URL
	// Owner is the organization or user, the groups, the workspace, the project key or ~user, or the Azure DevOps
	// project. It is empty for a GitLab project ID.
	Owner string
	Name  string
}

const (
	maxAddress = 2048 // bytes, as in the API of Providers
	maxSegment = 255  // bytes
)

// sshHosts maps SSH host names to API host names where they differ.
var sshHosts = map[string]string{"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com",
	"altssh.bitbucket.org": "bitbucket.org", "ssh.dev.azure.com": "dev.azure.com",
	"vs-ssh.visualstudio.com": "dev.azure.com"}

// scp matches the short form of SSH addresses: git@host:path.
var scp = regexp.MustCompile(`^(?:[^@/:]+@)?([A-Za-z0-9._-]+):([^/].*|/[^/].*)$`)

// Parse parses the address of a repository in a browser or of a git remote: http, https, ssh, or git@host:path. The
// error is a fault that does not contain the address.
func Parse(kind Kind, address string) (Repository, error) {
	format, ok := addressFormats[kind]
	if !ok {
		return Repository{}, unknownKind(kind)
	}
	u, err := locate(address, format)
	if err != nil {
		return Repository{}, err
	}
	parts, err := pathSegments(u, format)
	if err != nil {
		return Repository{}, err
	}
	prefix, owner, name, ok := format.split(u.Host, parts)
	name = strings.TrimSuffix(name, ".git")
	if !ok || name == "" {
		return Repository{}, format.invalid("the address is not a %s repository", kind)
	}
	r := Repository{Kind: kind, Owner: owner, Name: name, Base: url.URL{Scheme: u.Scheme, Host: u.Host}}
	if len(prefix) > 0 {
		r.Base = *r.Base.JoinPath(escaped(prefix)...)
	}
	return r, nil
}

// locate returns the address as a URL with scheme and host of the API.
func locate(address string, format addressFormat) (*url.URL, error) {
	if len(address) > maxAddress {
		return nil, format.invalid("the address of the repository is longer than %d bytes", maxAddress)
	}
	if !strings.Contains(address, "://") {
		m := scp.FindStringSubmatch(address)
		if m == nil {
			return nil, format.invalid("the address is not a URL")
		}
		address = "ssh://" + m[1] + "/" + strings.TrimPrefix(m[2], "/")
	}
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return nil, format.invalid("the address is not a URL")
	}
	switch u.Scheme {
	case "ssh": // the API has another port and sometimes another host
		u.Scheme, u.Host = "https", u.Hostname()
		if strings.Contains(u.Host, ":") {
			u.Host = "[" + u.Host + "]"
		}
		if host, ok := sshHosts[strings.ToLower(u.Host)]; ok {
			u.Host = host
			// v3 is the prefix of Azure DevOps
			u.Path, u.RawPath = strings.TrimPrefix(u.Path, "/v3"), strings.TrimPrefix(u.RawPath, "/v3")
		}
	case "http", "https":
	default:
		return nil, format.invalid("the address has the scheme %s", excerpt.Chars(singleLine(u.Scheme), 20))
	}
	u.Host = strings.ToLower(u.Host)
	return u, nil
}

// pathSegments returns the unescaped segments of the path. Segments such as ".." are rejected.
func pathSegments(u *url.URL, format addressFormat) ([]string, error) {
	var parts []string
	for _, part := range strings.Split(strings.Trim(u.EscapedPath(), "/"), "/") {
		plain, err := url.PathUnescape(part)
		if err != nil || plain == "" || plain == "." || plain == ".." || len(plain) > maxSegment ||
			strings.ContainsFunc(plain, func(r rune) bool { return r == '/' || r == '\\' || !unicode.IsPrint(r) }) {
			return nil, format.invalid("the address has no valid repository path")
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

// addressFormat is how the addresses of a kind of host look.
type addressFormat struct {
	example string // for hints
	split   func(host string, parts []string) (prefix []string, owner, name string, ok bool)
}

// addressFormats are the address formats by kind.
var addressFormats = map[Kind]addressFormat{
	GitHub: {example: "https://github.com/OWNER/REPOSITORY",
		split: func(_ string, p []string) ([]string, string, string, bool) {
			if len(p) != 2 {
				return nil, "", "", false
			}
			return nil, p[0], p[1], true
		}},
	GitLab: {example: "https://gitlab.com/GROUP/PROJECT, or https://gitlab.com/ID",
		split: func(_ string, p []string) ([]string, string, string, bool) {
			last := len(p) - 1
			return nil, strings.Join(p[:last], "/"), p[last], last > 0 || isNumber(p[last])
		}},
	Gitea: {example: "https://HOST/OWNER/REPOSITORY",
		split: func(_ string, p []string) ([]string, string, string, bool) {
			if len(p) < 2 {
				return nil, "", "", false
			}
			last := len(p) - 1
			return p[:last-1], p[last-1], p[last], true
		}},
	Bitbucket: {example: "https://bitbucket.org/WORKSPACE/REPOSITORY",
		split: func(host string, p []string) ([]string, string, string, bool) {
			if len(p) != 2 || host != "bitbucket.org" {
				return nil, "", "", false
			}
			return nil, p[0], p[1], true
		}},
	BitbucketServer: {example: "https://HOST/scm/PROJECT/REPOSITORY.git, as it is cloned by HTTP",
		split: splitBitbucketServer},
	AzureDevOps: {example: "https://dev.azure.com/ORGANIZATION/PROJECT/_git/REPOSITORY", split: splitAzureDevOps},
}

// splitBitbucketServer accepts the format for cloning, with scm before project or ~user (SSH has no scm), and the
// formats in browsers.
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

// splitAzureDevOps accepts the format in browsers, where the project may be omitted if the repository has the same
// name, and the SSH format.
func splitAzureDevOps(host string, p []string) (prefix []string, project, name string, ok bool) {
	i := slices.Index(p, "_git")
	if i < 0 && len(p) == 3 && host == "dev.azure.com" { // SSH: organization, project, repository
		return p[:1], p[1], p[2], true
	}
	if i < 0 || len(p) != i+2 {
		return nil, "", "", false
	}
	before := p[:i]
	required := 1 // the organization or, on a server, the collection
	if strings.HasSuffix(host, ".visualstudio.com") {
		required = 0
		if len(before) > 0 && strings.EqualFold(before[0], "DefaultCollection") {
			required = 1
		}
	}
	switch {
	case len(before) < required:
		return nil, "", "", false
	case len(before) == required:
		return before, p[i+1], p[i+1], true
	}
	return before[:len(before)-1], before[len(before)-1], p[i+1], true
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// commitURL returns the web page of a commit on Bitbucket.
func (r Repository) commitURL(commit string) string {
	path := escaped([]string{r.Owner, r.Name, "commits", commit}) // Bitbucket Cloud
	if r.Kind == BitbucketServer {
		path = escaped([]string{"projects", r.Owner, "repos", r.Name, "commits", commit})
	}
	return r.Base.JoinPath(path...).String()
}

// invalid returns the fault for an address that does not have the format.
func (f addressFormat) invalid(format string, args ...any) error {
	return fault.New(meta.URLInvalidReason, format, args...).
		WithHint("Use an address such as %s", f.example).Final()
}

func unknownKind(kind Kind) error {
	return failed("unknown git host type '%s'", excerpt.Chars(singleLine(string(kind)), 40)).
		WithHint("Use github, gitlab, gitea, bitbucket, bitbucketserver or azuredevops").Final()
}
