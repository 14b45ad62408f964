package ui

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/workload"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/state"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// maxImageText bounds a part of an image, in bytes.
const maxImageText = 512

// workloadImage is the image of a container, with the newer one that a policy selects.
type workloadImage struct {
	Workload  string `json:"workload"` // Kind/namespace/name
	Container string `json:"container"`
	Image     string `json:"image"` // without tag and digest
	Runs      string `json:"runs"`  // tag and digest
	Selected  string `json:"selected,omitempty"`
	IsNewer   bool   `json:"isNewer"` // the policy selects another image than the one that runs
	Policy    string `json:"policy,omitempty"`
	Release   string `json:"release,omitempty"` // the image to ask for in a release
}

// imagePage is a part of the images that match a query.
type imagePage struct {
	Images      []workloadImage `json:"images"`
	Total       int             `json:"total"`
	Newer       int             `json:"newer"` // of the total
	Next        string          `json:"next,omitempty"`
	Automations []string        `json:"automations"` // IDs of what can commit a release
	Notes       []string        `json:"notes"`       // what is not included, and why
}

// images lists the images that workloads run and what policies select for them, with the rights of the user.
// Parameters: q (words), namespace, newer, limit and after.
func (s *Server) images(ctx context.Context, u *User, r *http.Request) (any, error) {
	q := r.URL.Query()
	start, limit, err := pageOf(q)
	if err != nil {
		return nil, err
	}
	may, err := s.filter(ctx, u)
	if err != nil {
		return nil, err
	}
	visible := s.Model.List(may)
	p := imagePage{Images: []workloadImage{}, Automations: []string{}, Notes: []string{}}
	for _, i := range visible {
		if i.Kind == imagev1.ImageUpdateAutomationKind {
			p.Automations = append(p.Automations, i.ID)
		}
	}
	release, err := s.heavy.take(ctx, u.Name)
	if err != nil {
		return nil, err
	}
	defer release()
	found, notes, err := state.Images(ctx, u.Client, visible, q.Get("namespace"))
	if err != nil {
		return nil, err
	}
	p.Notes = append(p.Notes, notes...)
	words, onlyNewer := strings.Fields(strings.ToLower(q.Get("q"))), q.Get("newer") == "true"
	for _, i := range imagesOf(found) {
		if !i.contains(words) || onlyNewer && !i.IsNewer {
			continue
		}
		if i.IsNewer {
			p.Newer++
		}
		if p.Total++; p.Total > start && len(p.Images) < limit {
			p.Images = append(p.Images, i)
		}
	}
	if end := start + len(p.Images); end < p.Total && len(p.Images) > 0 {
		p.Next = fmt.Sprint(end)
	}
	return p, nil
}

// imagesOf returns images in the form of the API: those that are outdated first, then by workload.
func imagesOf(found []workload.Image) []workloadImage {
	images := make([]workloadImage, 0, len(found))
	for _, f := range found {
		i := workloadImage{Workload: view.ID(f.Kind, f.Namespace, f.Name), Container: f.Container,
			Image: excerpt.Bytes(f.Ref.Name, maxImageText)}
		i.Runs = excerpt.Bytes(strings.TrimPrefix(strings.TrimPrefix(f.Ref.String(), f.Ref.Name), ":"), maxImageText)
		if f.Policy != nil {
			latest := f.Policy.Status.LatestRef
			i.Policy = view.ID(imagev1.ImagePolicyKind, f.Policy.Namespace, f.Policy.Name)
			i.Selected, i.IsNewer, i.Release = latest.Tag, !f.IsCurrent(), latest.String()
		}
		images = append(images, i)
	}
	slices.SortStableFunc(images, func(a, b workloadImage) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Container, b.Container))
	})
	return images
}

// rank orders images: outdated ones, then those with a policy, then the others.
func rank(i workloadImage) int {
	switch {
	case i.IsNewer:
		return 0
	case i.Policy != "":
		return 1
	}
	return 2
}

// contains reports whether the image contains all words, which are in lower case.
func (i workloadImage) contains(words []string) bool {
	text := strings.ToLower(strings.Join([]string{i.Workload, i.Container, i.Image + ":" + i.Runs, i.Release,
		i.Policy}, " "))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}
