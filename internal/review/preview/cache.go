package preview

import (
	"encoding/json"
	"fmt"

	"github.com/go-git/go-git/v5/plumbing"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/limits/lru"
	"github.com/sluice-gitops/sluice/internal/offline/localbuild"
)

// Cache keeps what previews compute of files: directories, declarations and, without a cluster, builds of
// Kustomizations with the files that they read. The next preview builds only what its change reaches. Builds with
// something from secrets, keys or other objects are not kept. It is safe for concurrent use, and nil keeps nothing.
// Allowed authors and strangers must not share one: who finds two files with the same SHA-1 could have one taken for
// the other.
type Cache struct {
	directories  lru.Cache[plumbing.Hash, *directory]
	contents     lru.Cache[string, []byte]
	declarations lru.Cache[string, declaration]
	builds       lru.Cache[string, []*cachedBuild]
}

const (
	maxCachedFile = 64 << 10 // bytes; larger files are read again
	maxVariants   = 4        // builds of a Kustomization from different files
	entryBytes    = 200      // of an entry of a directory in memory, about
	keptBytes     = 4        // bytes in memory for each byte of JSON, about
)

var (
	directoryLimits   = lru.Limits{Size: 16 << 20}
	contentLimits     = lru.Limits{Size: 16 << 20}
	declarationLimits = lru.Limits{Size: 16 << 20}
	buildLimits       = lru.Limits{Size: 32 << 20}
)

// directory is a directory of a commit, with what is in it.
type directory struct {
	dir        *artifact.Dir
	entries    int      // in it and below
	height     int      // of the deepest directory in it
	submodules []string // paths
}

func (c *Cache) directory(hash plumbing.Hash) *directory {
	if c == nil {
		return nil
	}
	d, _ := c.directories.Get(hash)
	return d
}

func (c *Cache) addDirectory(hash plumbing.Hash, d *directory) {
	if c != nil {
		c.directories.Add(hash, d, int64(1+len(d.dir.Entries))*entryBytes, directoryLimits)
	}
}

// content returns a file; false if it is not kept. The caller must not change it.
func (c *Cache) content(id string) ([]byte, bool) {
	if c == nil {
		return nil, false
	}
	return c.contents.Get(id)
}

func (c *Cache) addContent(id string, content []byte) {
	if c != nil && len(content) <= maxCachedFile {
		c.contents.Add(id, content, int64(len(content)+len(id)), contentLimits)
	}
}

// declaration is what a file declares.
type declaration struct {
	counts         bool // a Kustomization, a ResourceSet or a provider of inputs
	kustomizations []*kustomizev1.Kustomization
}

func (c *Cache) declaration(id string) (declaration, bool) {
	if c == nil {
		return declaration{}, false
	}
	return c.declarations.Get(id)
}

func (c *Cache) addDeclaration(id string, d declaration, size int) {
	if c == nil {
		return
	}
	if len(d.kustomizations) == 0 {
		size = 0
	}
	c.declarations.Add(id, d, int64(len(id)+keptBytes*size), declarationLimits)
}

// cachedBuild is a build of a Kustomization in which nothing comes from secrets or from the cluster.
type cachedBuild struct {
	trace    *build.Trace
	objects  []*unstructured.Unstructured
	warnings []string
	size     int64
}

// buildKey identifies a Kustomization and the options of a preview.
func (r *run) buildKey(obj *kustomizev1.Kustomization) string {
	text, err := json.Marshal(obj)
	if err != nil || r.Cache == nil || r.Cluster != nil || len(variablesOf(obj)) > 0 ||
		obj.Spec.Decryption != nil && !r.Keyless {
		return ""
	}
	return fmt.Sprintf("%t %t %s", r.Keyless, r.Strict, text)
}

// build returns a kept build of the same files; nil if there is none.
func (c *Cache) build(key string, tree *artifact.Tree, obj *kustomizev1.Kustomization) *localbuild.Result {
	if key == "" {
		return nil
	}
	variants, _ := c.builds.Get(key)
	for _, v := range variants {
		if v.trace.Unchanged(tree) {
			return &localbuild.Result{Kustomization: obj, Result: &build.Result{Trace: v.trace,
				Objects: copied(v.objects), Warnings: v.warnings}}
		}
	}
	return nil
}

// addBuild keeps a build, unless something in it comes from secrets.
func (c *Cache) addBuild(key string, built *localbuild.Result) {
	if key == "" || built.Again || built.Known() != nil || len(built.Secrets) > 0 {
		return
	}
	text, err := json.Marshal(built.Objects)
	if err != nil {
		return
	}
	kept := []*cachedBuild{{trace: built.Trace, objects: copied(built.Objects), warnings: built.Warnings,
		size: keptBytes * int64(len(text))}}
	variants, _ := c.builds.Get(key)
	kept = append(kept, variants[:min(len(variants), maxVariants-1)]...)
	size := int64(len(key))
	for _, v := range kept {
		size += v.size
	}
	c.builds.Add(key, kept, size, buildLimits)
}

func copied(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, 0, len(objects))
	for _, o := range objects {
		out = append(out, o.DeepCopy())
	}
	return out
}
