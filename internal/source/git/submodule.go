package git

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/source/git/wire"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	modulesFile = ".gitmodules"
	maxModules  = 1 << 20 // bytes of a .gitmodules file
	maxFetched  = 100     // submodules of a tree
	maxNesting  = 8       // levels of submodules in submodules
)

// checkout is a repository at a commit whose tree is built: that of the source, or of a submodule.
type checkout struct {
	origin
	remote  Remote
	root    plumbing.Hash     // its root tree
	depth   int               // of its root in the tree
	nesting int               // number of parent submodules
	modules map[string]string // URLs of its submodules by path; nil until they are read
}

// submodule fetches the commit of a submodule, and builds its tree. It uses only the paths and URLs of .gitmodules, and
// never runs a command.
func (b *builder) submodule(c *checkout, p place, before *directory) (*directory, error) {
	if b.fetched++; b.fetched > maxFetched {
		return nil, fmt.Errorf("the repository has more than %d submodules", maxFetched)
	}
	if c.nesting == maxNesting {
		return nil, fmt.Errorf("submodules are nested more than %d levels deep", maxNesting)
	}
	raw, err := b.moduleURL(c, p)
	if err != nil {
		return nil, err
	}
	remote, err := submoduleRemote(c.remote, raw)
	if err != nil {
		return nil, err
	}
	m, err := b.view.mirrors.acquire(b.view.owner, remote)
	if err != nil {
		return nil, err
	}
	if _, err := m.update(b.ctx, remote, Reference{Commit: p.hash.String()}, b.view.owner, false); err != nil {
		return nil, err
	}
	r := m.current.Load()
	root, err := r.rootTree(p.hash)
	if err != nil {
		return nil, err
	}
	sub := &checkout{origin: origin{m, r}, remote: remote, root: root, depth: len(p.path), nesting: c.nesting + 1}
	p.hash = root
	d, err := b.build(sub, p, before)
	if err != nil || d == before {
		return d, err
	}
	d.origins = append(d.origins, sub.origin)
	return d, nil
}

// moduleURL returns the URL of the submodule at a place.
func (b *builder) moduleURL(c *checkout, p place) (string, error) {
	if c.modules == nil {
		text, err := b.file(c, modulesFile)
		if err != nil {
			return "", err
		}
		if c.modules, err = parseModules(text); err != nil {
			return "", err
		}
	}
	name := strings.Join(p.path[c.depth:], "/")
	raw, ok := c.modules[name]
	if !ok {
		return "", fmt.Errorf("%s contains no URL for it", modulesFile)
	}
	return raw, nil
}

// file returns the content of a file in the root directory of a checkout; empty if there is none.
func (b *builder) file(c *checkout, name string) ([]byte, error) {
	held := b.lease.Bytes()
	defer b.lease.Shrink(held)
	listing, err := b.parse(c, c.root, MaxEntries())
	if err != nil {
		return nil, err
	}
	for _, e := range listing {
		if e.name == name && e.mode.IsRegular() {
			return b.read(c, e.hash)
		}
	}
	return nil, nil
}

// parseModules returns the URLs in a .gitmodules file by path.
func parseModules(text []byte) (map[string]string, error) {
	if len(text) > maxModules {
		return nil, fmt.Errorf("%s is larger than %d bytes", modulesFile, maxModules)
	}
	modules := config.NewModules()
	if err := modules.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("cannot parse %s: %s", modulesFile, wire.Printable(err.Error()))
	}
	urls := map[string]string{}
	for _, m := range modules.Submodules {
		name := path.Clean(m.Path)
		if _, ok := urls[name]; ok {
			return nil, fmt.Errorf("%s contains two URLs for '%s'", modulesFile, wire.Printable(name))
		}
		urls[name] = m.URL
	}
	return urls, nil
}

// submoduleRemote returns the remote of a submodule. The file .gitmodules names it, so whoever may push to the parent
// chooses it: the credentials of the parent are used for the same host and owner of repositories only.
func submoduleRemote(parent Remote, raw string) (Remote, error) {
	parentURL, err := url.Parse(parent.URL)
	if err != nil {
		return Remote{}, err
	}
	u, err := submoduleURL(parentURL, raw)
	if err != nil {
		return Remote{}, err
	}
	remote := parent
	remote.URL = u.String()
	if !sharesLogin(parentURL, u) {
		remote.Credentials, remote.Identity = Credentials{}, ""
	}
	return remote, nil
}

func sharesLogin(parent, u *url.URL) bool {
	user, owner := u.User.Username(), ownerOf(parent)
	return u.Scheme == parent.Scheme && strings.EqualFold(u.Host, parent.Host) &&
		(owner == "" || owner == ownerOf(u)) && (user == "" || user == parent.User.Username())
}

// ownerOf returns the first element of the path of a repository, which is its owner, organization or group at git
// hosts; empty for a repository in the root, as of hosts without owners.
func ownerOf(u *url.URL) string {
	owner, _, ok := strings.Cut(strings.TrimPrefix(path.Clean("/"+u.Path), "/"), "/")
	if !ok {
		return ""
	}
	return owner
}

// submoduleURL parses a URL as git does: relative to the parent, absolute, or as user@host:path.
func submoduleURL(parent *url.URL, raw string) (*url.URL, error) {
	if strings.HasPrefix(raw, "./") || strings.HasPrefix(raw, "../") {
		return relativeURL(parent, raw)
	}
	if at, path, ok := wire.SCP(raw); ok {
		raw = "ssh://" + at + "/" + path
	}
	u, err := wire.ParseURL(raw)
	if err != nil {
		return nil, fault.New(fault.Reason(err, ""), "%s contains the unsupported URL '%s'", modulesFile,
			wire.Printable(fault.RedactURL(raw))).
			WithHint("Use http, https, ssh, or a URL relative to that of the repository")
	}
	return u, nil
}

func relativeURL(parent *url.URL, raw string) (*url.URL, error) {
	if strings.ContainsAny(raw, "?#\\\x00") {
		return nil, errors.New("its relative URL is not a path")
	}
	name := path.Join(strings.TrimPrefix(parent.Path, "/"), raw) // without the slash, excess .. remain
	if name == "." || name == ".." || strings.HasPrefix(name, "../") {
		return nil, errors.New("its relative URL leads out of the host")
	}
	u := *parent
	u.Path, u.RawPath, u.RawQuery, u.Fragment = "/"+name, "", "", ""
	return &u, nil
}

// inSubmodule returns the fault for an error in a submodule.
func inSubmodule(p place, err error) error {
	f := gitFault("submodule '%s' failed", wire.Printable(p.String())).Because(err)
	if cause := fault.As(err); cause != nil {
		f.Reason, f.RetryAfter, f.Terminal = cause.Reason, cause.RetryAfter, false
	}
	return f
}
