package preview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// findSources finds the sources that hold the repository.
func (r *run) findSources(ctx context.Context) error {
	r.sources = map[string]*source{}
	for _, key := range r.Sources {
		parts := strings.Split(key, "/")
		if len(parts) != 3 || sourcev1.NewSource(parts[0]) == nil {
			return fmt.Errorf("--source %q: use KIND/NAMESPACE/NAME, such as GitRepository/flux-system/flux-system",
				key)
		}
		obj := sourcev1.NewSource(parts[0]).(client.Object)
		err := r.Cluster.Client.Get(ctx, types.NamespacedName{Namespace: parts[1], Name: parts[2]}, obj)
		if err != nil {
			return cluster.Explain("cannot get "+key, err)
		}
		r.sources[key] = newSource(key, obj)
	}
	if len(r.sources) > 0 {
		return nil
	}
	var list sourcev1.GitRepositoryList
	if err := r.list(ctx, "GitRepositories", &list); err != nil {
		return fmt.Errorf("%w. Or name the source of the repository with --source", err)
	}
	var others []string
	for n := range list.Items {
		g := &list.Items[n]
		key := "GitRepository/" + g.Namespace + "/" + g.Name
		matches := slices.ContainsFunc(r.URLs, func(u string) bool { return sameRepository(u, g.Spec.URL) })
		if matches && follows(g, r.Branch) {
			r.sources[key] = newSource(key, g)
		} else {
			others = append(others, key)
		}
	}
	if len(r.sources) == 0 {
		return fmt.Errorf("no GitRepository in the cluster follows branch '%s' of this repository. Name its source "+
			"with --source; the cluster has %s", r.Branch,
			cmp.Or(strings.Join(others[:min(len(others), 5)], ", "), "none"))
	}
	return nil
}

// follows reports whether a GitRepository follows a branch.
func follows(g *sourcev1.GitRepository, branch string) bool {
	ref := g.Spec.Reference
	switch {
	case branch == "":
		return true
	case ref == nil:
		return branch == "master" || branch == "main"
	case ref.Name != "":
		return ref.Name == "refs/heads/"+branch
	case ref.Commit != "" || ref.Tag != "" || ref.SemVer != "":
		return false
	}
	return ref.Branch == branch
}

func newSource(key string, obj client.Object) *source {
	gated, _ := obj.(reconcile.Gated)
	kind, _, _ := strings.Cut(key, "/")
	return &source{key: key, kind: kind, ignore: ignoreOf(obj), object: gated}
}

func ignoreOf(obj client.Object) *string {
	switch obj := obj.(type) {
	case *sourcev1.GitRepository:
		return obj.Spec.Ignore
	case *sourcev1.OCIRepository:
		return obj.Spec.Ignore
	case *sourcev1.Bucket:
		return obj.Spec.Ignore
	}
	return nil
}
