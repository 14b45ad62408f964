package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path"

	"sigs.k8s.io/kustomize/api/types"

	"github.com/sluice-gitops/sluice/internal/fault"
)

// remotes are the manifests that kustomizations refer to by URL.
type remotes struct {
	fetch   func(ctx context.Context, url string) ([]byte, error)
	brought map[string][]byte // by URL
	failed  bool
}

// maxRemotes is the maximum number of manifests that one build fetches.
const maxRemotes = 50

// bring fetches the remote manifests among the resources of a kustomization and replaces their URLs by local names.
// Kustomize would fetch them itself, without limits. It reports whether there were any.
func (f *filesystem) bring(file string, k *types.Kustomization) (brought bool, err error) {
	if f.remote.fetch == nil {
		return false, nil
	}
	for i, named := range k.Resources {
		u, err := url.Parse(named)
		if err != nil || u.Scheme != "https" || !isManifest(u.Path) || u.User != nil {
			continue // check reports it if it is not allowed
		}
		content, err := f.fetch(file, named)
		if err != nil {
			return false, err
		}
		sum := sha256.Sum256([]byte(named))
		local := "remote-" + hex.EncodeToString(sum[:8]) + "-" + path.Base(u.Path)
		f.generated[path.Join(mount, path.Dir(file), local)] = content
		k.Resources[i], brought = local, true
	}
	return brought, nil
}

func (f *filesystem) fetch(file, named string) ([]byte, error) {
	if content, ok := f.remote.brought[named]; ok {
		return content, nil
	}
	if len(f.remote.brought) == maxRemotes {
		return nil, refusal("%s and its bases refer to more than %d remote manifests", file, maxRemotes).
			WithHint("Copy them into the repository")
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
