package ui

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/workload"
	"github.com/sluice-gitops/sluice/internal/lineage"
	"github.com/sluice-gitops/sluice/internal/tracing"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// maxTargets bounds the objects whose way is shown because they applied a workload.
const maxTargets = 50

// why answers where a change is. Parameter: q, which is a commit, a revision, a pull request, an image, a workload, or
// words that name objects.
func (s *Server) why(ctx context.Context, u *User, r *http.Request) (any, error) {
	q := strings.TrimSpace(r.URL.Query().Get("q"))
	may, err := s.filter(ctx, u)
	if err != nil {
		return nil, err
	}
	visible := s.Model.List(may)
	targets, notes, err := s.appliersOf(ctx, u, visible, q)
	if err != nil {
		return nil, err
	}
	a := view.Why(visible, q, targets...)
	for _, c := range a.Chains {
		for i := range c.Steps {
			if id := c.Steps[i].Trace; id != "" {
				c.Steps[i].URL = tracing.Link(s.TraceURL, id)
			}
		}
	}
	if len(a.Chains) > 0 {
		a.Note = ""
	}
	a.Note = strings.TrimSpace(strings.Join(append([]string{a.Note}, notes...), " "))
	return a, nil
}

// appliersOf returns the IDs of what applied the workloads that a query is about: one that it names as
// Kind/namespace/name, or those that run the image that it names. They are read with the rights of the user.
func (s *Server) appliersOf(ctx context.Context, u *User, visible []*view.Item, query string) (targets, notes []string,
	err error) {
	var found []workload.Image
	parts := strings.Split(query, "/")
	ref, problem := workload.ParseRef(parts[0] + "/" + parts[len(parts)-1])
	image := edit.ParseRef(query)
	switch {
	case len(parts) == 3 && problem == nil:
		found, err = workload.Images(ctx, u.Client, parts[1], ref)
		switch {
		case apierrors.IsForbidden(err):
			notes = append(notes, explain(err))
		case err != nil:
			return nil, nil, err
		case len(found) == 0:
			notes = append(notes, fmt.Sprintf("There is no %s '%s' in namespace '%s'.", ref.Kind, ref.Name, parts[1]))
		}
	case view.IsWords(query) && image.Valid() && (image.Tag != "" || image.Digest != ""):
		done, err := s.heavy.take(ctx, u.Name)
		if err != nil {
			return nil, nil, err
		}
		defer done()
		if found, notes, err = running(ctx, u, visible, ""); err != nil {
			return nil, nil, err
		}
		found = slices.DeleteFunc(found, func(i workload.Image) bool {
			return !strings.Contains(strings.ToLower(i.Ref.String()), strings.ToLower(query))
		})
	}
	hidden := 0
	for _, f := range found {
		manager := lineage.ManagerOf(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: f.Labels}})
		if manager == nil {
			hidden++
			continue
		}
		id := view.ID(manager.Kind, manager.Namespace, manager.Name)
		if !slices.Contains(targets, id) && len(targets) < maxTargets {
			targets = append(targets, id)
		}
	}
	if hidden > 0 {
		notes = append(notes, "Some containers that match are of workloads that no Kustomization or HelmRelease "+
			"applied.")
	}
	return targets, notes, nil
}
