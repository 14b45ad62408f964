package automate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/mail"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"k8s.io/apimachinery/pkg/types"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/diff"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// Request is a release that somebody asks for: once, whatever the automation does by itself.
type Request struct {
	UID       types.UID                   // of who asks
	Name      string                      // of who asks, for a branch of its own
	By        string                      // the object that asks, as the note names it
	Author    string                      // as "Name <email>"; empty: the automation's
	Reason    string                      // for the commit and its note
	Workloads []imagev1.WorkloadContainer // empty: all
	Images    []edit.Ref                  // empty: those that the automation's policies choose
	DryRun    bool
	Admit     func(change string) error // asks the gates; its error ends the release
	// Save is called with the commit right before it is pushed. Its error ends the release.
	Save func(ctx context.Context, r Release) error
	// Pushing is the commit of the last Save of an earlier try, of which it is not known whether it was pushed.
	Pushing plumbing.Hash
}

// Release is what became of a request.
type Release struct {
	Commit      plumbing.Hash // zero: nothing was committed
	Changes     []edit.Change // none of a commit that an earlier try pushed
	PullRequest string        // the address of the change request, if the automation opens them
	Told        []string      // what is not as it should be
	Message     string        // of what was pushed; empty: nothing was to be
}

const maxDiff = 64 << 10 // bytes

// Release commits what was asked for as the automation would: to its repository, with its message, signature
// and note, and by a change request of its own if the automation opens them. The error is a fault, or that of
// Admit or Save; what was done before stands in the release.
func (a *Automation) Release(ctx context.Context, automation *imagev1.ImageUpdateAutomation, r Request) (Release,
	error) {
	obj := automation.DeepCopy()
	obj.UID = r.UID // so that it has a view of its own, which the automation's passes do not share
	obj.Status = imagev1.ImageUpdateAutomationStatus{}
	defer func() { _ = a.Finalize(ctx, obj) }()
	j, err := a.prepare(ctx, obj)
	if err != nil {
		return Release{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	j.asked, j.fresh = &r, true
	j.target.keep = j.request == nil // beside what is on a push branch already
	j.pass = &reconcile.Pass[*imagev1.ImageUpdateAutomation]{Object: obj}
	out, err := a.release(ctx, j)
	for try := 1; errors.Is(err, git.ErrRaced) && try < maxTries; try++ {
		out, err = a.release(ctx, j)
	}
	return out, err
}

func (a *Automation) release(ctx context.Context, j *job) (Release, error) {
	b, err := j.checkout(ctx)
	if err != nil {
		return Release{}, err
	}
	result, err := a.lookFor(ctx, j, b)
	if err != nil {
		return Release{}, err
	}
	out := Release{Changes: result.Changes, Told: j.told}
	if j.asked.DryRun {
		return out, nil
	}
	obj := j.pass.Object
	if err := j.aim(ctx, b, obj, result.Changes); err != nil {
		return out, err
	}
	pushed := j.pushedBefore(b)
	if pushed || len(result.Edits) == 0 || b.counts(ctx, j) {
		if err := j.earlier(ctx, pushed, &out); err != nil {
			return out, err
		}
		if j.request == nil || len(result.Edits) == 0 {
			out.Changes = nil // what others did since is no part of the release
			return out, nil
		}
		return j.asks(ctx, out)
	}
	if j.request != nil && !b.tip.IsZero() {
		return out, fault.New(imagev1.UpdateFailedReason, "the branch '%s' is there already, with other changes",
			j.target.name()).
			WithHint("Merge it or remove it, or give the release another name").Final()
	}
	if err := j.asked.Admit(named(result.Changes)); err != nil {
		return out, err
	}
	out.Commit, err = a.commit(ctx, j, b, result)
	if errors.Is(err, git.ErrUnchanged) {
		return Release{Told: j.told}, nil
	}
	if err != nil {
		out.Commit = plumbing.ZeroHash
		return out, err
	}
	out.Told = j.told
	return j.asks(ctx, out)
}

// asks opens the change request of a release, if the automation opens them.
func (j *job) asks(ctx context.Context, out Release) (Release, error) {
	err := j.ask(ctx, j.pass.Object, out.Changes)
	out.PullRequest = j.pass.Object.Status.PullRequest
	if n := len(j.pushed); n > 0 {
		out.Message = j.pushed[n-1].message
	} else {
		out.Message = cmp.Or(out.Message, fmt.Sprintf("the branch '%s' has the changes", j.target.name())) +
			"\nchange request: " + out.PullRequest
	}
	return out, err
}

// save notes a commit before it is pushed: the process may end in between.
func (r *Request) save(ctx context.Context, commit plumbing.Hash, changes []edit.Change) error {
	r.Pushing = commit
	return r.Save(ctx, Release{Commit: commit, Changes: changes})
}

// pushedBefore tells whether the branch has the commit that an earlier try was about to push.
func (j *job) pushedBefore(b *base) bool {
	return !j.asked.Pushing.IsZero() && follows(j.view, b.tip, j.asked.Pushing)
}

// earlier finds the commit that an earlier try was about to push: as the branch has it, or by its note if too
// many others pushed since.
func (j *job) earlier(ctx context.Context, pushed bool, out *Release) error {
	commit := j.asked.Pushing
	if commit.IsZero() {
		return nil
	}
	if !pushed {
		text, err := j.view.Note(ctx, commit)
		if err != nil {
			return err
		}
		if note, err := record.Parse(text); err != nil || note.By != j.asked.By {
			return nil //nolint:nilerr // a note that others wrote
		}
	}
	out.Commit = commit
	out.Message = fmt.Sprintf("pushed commit '%.7s' to branch '%s'", commit, j.target.name())
	return nil
}

// lookFor finds what is to be changed for a request.
func (a *Automation) lookFor(ctx context.Context, j *job, b *base) (scan.Result, error) {
	r := j.asked
	if len(r.Workloads)+len(r.Images) == 0 {
		result, err := a.look(ctx, j, b)
		if err == nil {
			j.problems(result)
		}
		return result, err
	}
	j.plan = r.plan(j.images())
	j.memory.survey = scan.Survey{}
	result, err := a.look(ctx, j, b)
	if err != nil {
		return result, err
	}
	if err := r.found(j.plan, result); err != nil {
		return result, err
	}
	chosen := slices.ContainsFunc(r.Workloads, func(w imagev1.WorkloadContainer) bool { return w.Container != "" })
	if !chosen {
		return result, nil
	}
	// Again for the containers that were asked for, now that it is known which images they have.
	j.plan.Bindings = r.narrow(j.plan.Bindings, result.Changes)
	if len(j.plan.Bindings) == 0 {
		return scan.Result{}, nil
	}
	return a.look(ctx, j, b)
}

// plan binds the images to the workloads, in all containers that have them.
func (r *Request) plan(chosen map[string]edit.Ref) scan.Plan {
	images := chosen
	if len(r.Images) > 0 {
		images = map[string]edit.Ref{}
		for _, image := range r.Images {
			images[image.Name] = image
		}
	}
	workloads := r.Workloads
	if len(workloads) == 0 {
		workloads = []imagev1.WorkloadContainer{{}}
	}
	plan := scan.Plan{Images: map[string]edit.Ref{}} // markers are not followed: they know no workload
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

// found tells which workloads, or which images, are nowhere.
func (r *Request) found(plan scan.Plan, result scan.Result) error {
	seen := map[string]bool{}
	for i, b := range plan.Bindings {
		if !slices.Contains(result.Missing, i) {
			seen[b.Workload.Kind+"/"+b.Workload.Name], seen[b.Policy] = true, true
		}
	}
	fail := func(format string, args ...any) error {
		return fault.New(imagev1.UpdateFailedReason, format, args...).
			WithHint("Check the names, and that the files are below spec.update.path of the automation").Final()
	}
	for _, w := range r.Workloads {
		if !seen[w.Kind+"/"+w.Name] {
			return fail("no file has the %s '%s' with one of the images", w.Kind, w.Name)
		}
	}
	for _, image := range r.Images {
		if !seen[image.Name] {
			return fail("no workload that was asked for has the image '%s'", image.Name)
		}
	}
	return nil
}

// narrow leaves the bindings of containers that are to be changed, each with its container.
func (r *Request) narrow(bindings []edit.Binding, changes []edit.Change) []edit.Binding {
	var narrow []edit.Binding
	for _, b := range bindings {
		for _, w := range r.Workloads {
			if w.Kind != b.Workload.Kind || w.Name != b.Workload.Name || w.Namespace != b.Workload.Namespace {
				continue
			}
			has := slices.ContainsFunc(changes, func(c edit.Change) bool {
				return c.Policy == b.Policy && c.Object.Kind == w.Kind && c.Object.Name == w.Name &&
					(w.Container == "" || c.Container == w.Container)
			})
			if has {
				with := *b.Workload
				with.Container = w.Container
				b.Workload = &with
				narrow = append(narrow, b)
			}
		}
	}
	return narrow
}

// author of the commit: who asks for the release, else the committer.
func (r *Request) author(committer git.Signature) git.Signature {
	author := committer
	if r.Author == "" {
		return author
	}
	if who, err := mail.ParseAddress(r.Author); err == nil {
		author.Name, author.Email = cmp.Or(who.Name, who.Address), who.Address
	} else {
		author.Name = r.Author // and the automation's address: git takes no commit without one
	}
	return author
}

// record completes what the note says.
func (r *Request) record(what *record.Record) {
	what.By, what.Author, what.Reason = r.By, r.Author, r.Reason
	for i := range what.Updated {
		if len(r.Images) > 0 {
			what.Updated[i].Policy = "" // nobody's choice but the author's
		}
	}
}

// Diff shows changes as text, and nothing of the files but the values that change, as others may be secret.
func Diff(changes []edit.Change) string {
	var b strings.Builder
	file := ""
	for _, c := range changes {
		if c.File != file {
			file = c.File
			fmt.Fprintf(&b, "--- a/%s\n+++ b/%s\n", file, file)
		}
		fmt.Fprintf(&b, "@@ -%d +%d @@ %s\n-%s\n+%s\n", c.Line, c.Line,
			strings.TrimSpace(c.Object.String()+" "+c.Container), c.Old, c.New)
	}
	return diff.Cut(b.String(), maxDiff)
}
