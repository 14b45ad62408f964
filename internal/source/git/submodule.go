package git

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/source/git/wire"
)

const (
	modulesFile = ".gitmodules"
	maxModules  = 1 << 20 // bytes of a .gitmodules file
	maxFetched  = 100     // submodules of one tree
	maxNesting  = 8       // of submodules in submodules; it also ends repositories that hold each other
)

// checkout is a repository at a commit while its tree is built: that of the source, or of a submodule.
type checkout struct {
	origin
	remote  Remote
	root    plumbing.Hash     // its top directory
	at      int               // how deep in the tree that is
	nesting int               // how many submodules lead to it
	modules map[string]string // the URLs of its own submodules by path; nil before they were read
}

// submodule fetches the commit that a directory of a checkout stands for, and makes its tree. Nothing is
// configured, checked out or run: of .gitmodules, only the paths and URLs count.
func (b *builder) submodule(c *checkout, p place, before *directory) (*directory, error) {
	if b.fetched++; b.fetched > maxFetched {
		return nil, fmt.Errorf("there are more than %d submodules", maxFetched)
	}
	if c.nesting == maxNesting {
		return nil, fmt.Errorf("submodules are nested deeper than %d", maxNesting)
	}
	raw, err := c.module(p)
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
	sub := &checkout{origin: origin{m, r}, remote: remote, root: root, at: len(p.path), nesting: c.nesting + 1}
	p.hash = root
	d, err := b.build(sub, p, before)
	if err != nil || d == before {
		return d, err
	}
	d.origins = append(d.origins, sub.origin)
	return d, nil
}

// module returns the URL of the submodule at a place.
func (c *checkout) module(p place) (string, error) {
	if c.modules == nil {
		text, err := c.file(modulesFile)
		if err != nil {
			return "", err
		}
		if c.modules, err = parseModules(text); err != nil {
			return "", err
		}
	}
	name := strings.Join(p.path[c.at:], "/")
	raw, ok := c.modules[name]
	if !ok {
		return "", fmt.Errorf("%s has no URL for it", modulesFile)
	}
	return raw, nil
}

// file reads a file in the top directory, empty when there is none.
func (c *checkout) file(name string) ([]byte, error) {
	_, data, err := c.from.objects.Read(c.root)
	if err != nil {
		return nil, err
	}
	listing, err := parseTree(data)
	if err != nil {
		return nil, err
	}
	for _, e := range listing {
		if e.name == name && e.mode.IsRegular() {
			_, data, err := c.from.objects.Read(e.hash)
			return data, err
		}
	}
	return nil, nil
}

// parseModules reads the URLs in a .gitmodules file by path.
func parseModules(text []byte) (map[string]string, error) {
	if len(text) > maxModules {
		return nil, fmt.Errorf("%s is larger than %d bytes", modulesFile, maxModules)
	}
	modules := config.NewModules()
	if err := modules.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %s", modulesFile, wire.Printable(err.Error()))
	}
	urls := map[string]string{}
	for _, m := range modules.Submodules {
		name := path.Clean(m.Path)
		if _, ok := urls[name]; ok {
			return nil, fmt.Errorf("%s has two URLs for '%s'", modulesFile, wire.Printable(name))
		}
		urls[name] = m.URL
	}
	return urls, nil
}

// submoduleRemote resolves the URL of a submodule. The parent's credentials go to the host that they are for,
// and to no other.
func submoduleRemote(parent Remote, raw string) (Remote, error) {
	at, err := url.Parse(parent.URL)
	if err != nil {
		return Remote{}, err
	}
	u, err := submoduleURL(at, raw)
	if err != nil {
		return Remote{}, err
	}
	remote := parent
	remote.URL = u.String()
	if u.Scheme != at.Scheme || !strings.EqualFold(u.Host, at.Host) {
		remote.Credentials, remote.Identity = Credentials{}, ""
	}
	return remote, nil
}

// submoduleURL reads a URL as git does: relative to that of the parent, in full, or as user@host:path.
func submoduleURL(parent *url.URL, raw string) (*url.URL, error) {
	if strings.HasPrefix(raw, "./") || strings.HasPrefix(raw, "../") {
		return relativeURL(parent, raw)
	}
	if at, path, ok := wire.SCP(raw); ok {
		raw = "ssh://" + at + "/" + path
	}
	u, err := wire.ParseURL(raw)
	if err != nil {
		return nil, fault.New(fault.Reason(err, ""), "%s has the URL '%s'", modulesFile,
			wire.Printable(fault.RedactURL(raw))).
			WithHint("Only http, https and ssh are fetched, and URLs that are relative to the repository's own")
	}
	return u, nil
}

func relativeURL(parent *url.URL, raw string) (*url.URL, error) {
	if strings.ContainsAny(raw, "?#\\\x00") {
		return nil, errors.New("its URL is not a path")
	}
	name := path.Join(strings.TrimPrefix(parent.Path, "/"), raw) // without the slash, too many .. show
	if name == "." || name == ".." || strings.HasPrefix(name, "../") {
		return nil, errors.New("its URL leads out of the host")
	}
	u := *parent
	u.Path, u.RawPath, u.RawQuery, u.Fragment = "/"+name, "", "", ""
	return &u, nil
}

// inSubmodule says which submodule an error is about.
func inSubmodule(p place, err error) error {
	f := gitFault("submodule '%s'", wire.Printable(p.String())).Because(err)
	if cause := fault.As(err); cause != nil {
		f.Reason, f.RetryAfter, f.Terminal = cause.Reason, cause.RetryAfter, false
	}
	return f
}
