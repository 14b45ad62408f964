package release

import (
	"context"
	"maps"
	"slices"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/change"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// request is the images that a job sets, and where.
type request struct {
	workloads []imagev1.WorkloadContainer // empty: all
	images    []edit.Ref                  // empty: those that the policies of the automation choose
}

// find returns the changes that the job requests, with the set of images that causes them.
func (r *run) find(ctx context.Context, c *change.Checkout) (change.Set, scan.Result, []string, error) {
	selection := r.writer.Selection
	if len(r.request.workloads)+len(r.request.images) == 0 {
		found, err := r.scan(ctx, c, selection.Plan)
		return selection.Set, found, selection.Problems(found), err
	}
	set := change.Set{Plan: r.request.plan(selection.Images()), Reasons: selection.Reasons}
	found, err := r.scan(ctx, c, set.Plan)
	if err != nil {
		return set, found, nil, err
	}
	if err := r.request.check(set.Plan, found); err != nil {
		return set, found, nil, err
	}
	if !slices.ContainsFunc(r.request.workloads, func(w imagev1.WorkloadContainer) bool { return w.Container != "" }) {
		return set, found, nil, nil
	}
	// The first scan found which containers have which image. The second one changes only the requested containers.
	set.Plan.Bindings = r.request.narrow(set.Plan.Bindings, found.Changes)
	if len(set.Plan.Bindings) == 0 {
		return set, scan.Result{}, nil, nil
	}
	found.Release()
	found, err = r.scan(ctx, c, set.Plan)
	return set, found, nil, err
}

// scan finds the values that a plan changes. A job makes one commit, so too many values are an error.
func (r *run) scan(ctx context.Context, c *change.Checkout, plan scan.Plan) (scan.Result, error) {
	found, err := r.writer.Scan(ctx, r.scanner, c, plan)
	if err == nil && found.Incomplete {
		found.Release()
		err = tooMany(found)
	}
	return found, err
}

func tooMany(found scan.Result) error {
	return fault.New(imagev1.UpdateFailedReason, "more than the first %d values in %d files would change, which are "+
		"too many for one commit", len(found.Changes), len(found.Edits)).
		WithHint("Create several jobs, for some of the workloads or images each").Final()
}

// plan binds the images to all containers of the workloads that have them. Markers are not used, as they do not name a
// workload.
func (r request) plan(chosen map[string]edit.Ref) scan.Plan {
	images := chosen
	if len(r.images) > 0 {
		images = map[string]edit.Ref{}
		for _, image := range r.images {
			images[image.Name] = image
		}
	}
	workloads := r.workloads
	if len(workloads) == 0 {
		workloads = []imagev1.WorkloadContainer{{}}
	}
	plan := scan.Plan{Images: map[string]edit.Ref{}}
	for _, policy := range slices.Sorted(maps.Keys(images)) {
		for _, w := range workloads {
			plan.Bindings = append(plan.Bindings, edit.Binding{
				Policy: policy, Image: images[policy],
				Workload: &edit.Workload{Kind: w.Kind, Name: w.Name, Namespace: w.Namespace},
			})
		}
	}
	return plan
}

// check returns an error if no file has one of the workloads or images.
func (r request) check(plan scan.Plan, found scan.Result) error {
	seen := map[string]bool{}
	for i, b := range plan.Bindings {
		if !slices.Contains(found.Missing, i) {
			seen[b.Workload.Kind+"/"+b.Workload.Name], seen[b.Policy] = true, true
		}
	}
	fail := func(format string, args ...any) error {
		return fault.New(imagev1.UpdateFailedReason, format, args...).
			WithHint("Check the names, and that the files are below spec.update.path of the automation").Final()
	}
	for _, w := range r.workloads {
		if !seen[w.Kind+"/"+w.Name] {
			return fail("no file has %s '%s' with one of the images", w.Kind, w.Name)
		}
	}
	for _, image := range r.images {
		if !seen[image.Name] {
			return fail("none of the workloads has image '%s'", image.Name)
		}
	}
	return nil
}

// narrow returns the bindings that cause changes in the requested containers, limited to those containers.
func (r request) narrow(bindings []edit.Binding, changes []edit.Change) []edit.Binding {
	var narrow []edit.Binding
	for _, b := range bindings {
		for _, w := range r.workloads {
			if w.Kind != b.Workload.Kind || w.Name != b.Workload.Name || w.Namespace != b.Workload.Namespace {
				continue
			}
			changed := slices.ContainsFunc(changes, func(c edit.Change) bool {
				return c.Policy == b.Policy && c.Object.Kind == w.Kind && c.Object.Name == w.Name &&
					(w.Container == "" || c.Container == w.Container)
			})
			if changed {
				workload := *b.Workload
				workload.Container = w.Container
				b.Workload = &workload
				narrow = append(narrow, b)
			}
		}
	}
	return narrow
}
