package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// remotes are the manifests and directories that kustomizations refer to by URL.
type remotes struct {
	fetch     func(ctx context.Context, url string) ([]byte, error)
	fetchBase func(ctx context.Context, base remotebase.Base) (*artifact.Tree, error)
	brought   map[string][]byte                  // by URL
	trees     map[remotebase.Base]*artifact.Tree // of repositories, by base without a path
	failed    bool
}

func (r *remotes) any() bool { return len(r.brought)+len(r.trees) > 0 || r.failed }

// maxRemotes is the maximum number of manifests, and of directories, that one build fetches.
const maxRemotes = 50

// mounts is the directory of the tree of a build in which repositories are that it fetched.
const mounts = ".remote-bases"

// bring fetches what a kustomization refers to by URL, and replaces the URLs by local names. Kustomize would fetch them
// itself, without limits. It reports whether there were any.
func (f *filesystem) bring(file string, k *types.Kustomization) (brought bool, err error) {
	if f.remote.fetch == nil {
		return false, nil
	}
	for _, list := range [][]string{k.Resources, k.Bases, k.Components} { //nolint:staticcheck // deprecated but in use
		for i, named := range list {
			local, err := f.bringOne(file, named)
			if err != nil {
				return false, err
			}
			if local != "" {
				list[i], brought = local, true
			}
		}
	}
	return brought, nil
}

// bringOne returns the local name of what a URL names, or "" for other names and for URLs that check refuses.
func (f *filesystem) bringOne(file, named string) (string, error) {
	if !isRemote(named) {
		return "", nil
	}
	if remotebase.IsManifest(named) {
		content, err := f.fetch(file, named)
		if err != nil {
			return "", err
		}
		u, _ := url.Parse(named) // it is valid: IsManifest has parsed it
		sum := sha256.Sum256([]byte(named))
		local := "remote-" + hex.EncodeToString(sum[:8]) + "-" + path.Base(u.Path)
		f.generated[path.Join(mount, path.Dir(file), local)] = content
		return local, nil
	}
	base, ok := remotebase.Parse(named)
	if !ok || f.remote.fetchBase == nil {
		return "", nil
	}
	dir, err := f.mount(file, named, base)
	if err != nil {
		return "", err
	}
	// the root has a slash, so that both names are absolute
	local, err := filepath.Rel("/"+path.Dir(file), "/"+path.Join(dir, base.Path))
	return filepath.ToSlash(local), err
}

// mount fetches the repository of a base, and adds its files to the tree of the build. It returns their directory.
func (f *filesystem) mount(file, named string, base remotebase.Base) (string, error) {
	base.Path = ""
	sum := sha256.Sum256([]byte(strings.Join([]string{base.Repository, base.Ref}, "\x00")))
	dir := path.Join(mounts, hex.EncodeToString(sum[:8]))
	if f.mountedBases[base] {
		return dir, nil
	}
	tree, ok := f.remote.trees[base]
	if !ok {
		if len(f.remote.trees) == maxRemotes {
			return "", tooManyRemotes(file, "directories")
		}
		var err error
		if tree, err = f.remote.fetchBase(f.ctx, base); err != nil {
			f.remote.failed = true
			return "", refusal("%s names %q, which cannot be fetched", file, fault.RedactURL(named)).Because(err)
		}
		if f.remote.trees == nil {
			f.remote.trees = map[remotebase.Base]*artifact.Tree{}
		}
		f.remote.trees[base] = tree
	}
	whole, err := artifact.Compose(artifact.Layer{Tree: f.tree, From: ".", To: "."},
		artifact.Layer{Tree: tree.WithoutLinks(), From: ".", To: dir})
	if err != nil {
		return "", refusal("%s names %q, which cannot be read", file, fault.RedactURL(named)).Because(err)
	}
	if f.mountedBases == nil {
		f.mountedBases = map[remotebase.Base]bool{}
	}
	f.tree, f.mountedBases[base] = whole, true
	return dir, nil
}

// leavesBase reports whether a name in the tree is outside of the fetched repository that dir is in. Kustomize gives a
// repository no access to the files of others either.
func leavesBase(dir, name string) bool {
	rest, ok := strings.CutPrefix(dir, mounts+"/")
	if !ok {
		return false
	}
	repository, _, _ := strings.Cut(rest, "/")
	root := path.Join(mounts, repository)
	return name != root && !strings.HasPrefix(name, root+"/")
}

func tooManyRemotes(file, what string) error {
	return refusal("%s and its bases refer to more than %d remote %s", file, maxRemotes, what).
		WithHint("Copy them into the repository")
}

func (f *filesystem) fetch(file, named string) ([]byte, error) {
	if content, ok := f.remote.brought[named]; ok {
		return content, nil
	}
	if len(f.remote.brought) == maxRemotes {
		return nil, tooManyRemotes(file, "manifests")
	}
	content, err := f.remote.fetch(f.ctx, named)
	if err != nil {
		f.remote.failed = true
		return nil, refusal("%s names %q, which cannot be fetched", file, fault.RedactURL(named)).Because(err)
	}
	if err := f.weighText(fault.RedactURL(named), content); err != nil {
		return nil, err
	}
	if f.remote.brought == nil {
		f.remote.brought = map[string][]byte{}
	}
	f.remote.brought[named] = content
	return content, nil
}

// RemoteBases lists what the kustomization files of a tree refer to by URL: the file and the URL without credentials,
// in order. Files that cannot be read are left out.
func RemoteBases(tree *artifact.Tree) (found []string) {
	_ = tree.Walk(func(name string, _ *artifact.Entry) error { // no call returns an error
		if !IsKustomization(path.Base(name)) {
			return nil
		}
		content, err := tree.ReadFile(name)
		if err != nil || len(content) > maxFile || yamlsize.Check(content) != nil {
			return nil
		}
		k, err := parseEntry(name, content)
		if err != nil {
			return nil
		}
		k.FixKustomization()
		for _, named := range namedBy(k) {
			if isRemote(named) {
				if strings.Contains(named, "://") {
					named = fault.RedactURL(named)
				}
				found = append(found, name+": "+named)
			}
		}
		return nil
	})
	return found
}
