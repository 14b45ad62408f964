// Package automate holds the controller of ImageUpdateAutomations: it commits the images that policies choose to git.
// What is to be changed is found by package survey, and set by package edit; here is only what happens in which order.
package automate

import (
	"context"
	"errors"
	"fmt"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"maps"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"strings"
	"sync"
	"time"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// GroupKind identifies the kind to the kernel.
var GroupKind = schema.GroupKind{Group: imagev1.GroupVersion.Group, Kind: imagev1.ImageUpdateAutomationKind}

var (
	policyGroupKind     = schema.GroupKind{Group: imagev1.GroupVersion.Group, Kind: imagev1.ImagePolicyKind}
	repositoryGroupKind = schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: sourcev1.GitRepositoryKind}
)

// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdateautomations,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdateautomations/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imageupdateautomations/finalizers,verbs=get;create;update;patch;delete
// +kubebuilder:rbac:groups=image.toolkit.fluxcd.io,resources=imagepolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=source.toolkit.fluxcd.io,resources=gitrepositories,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=secrets;serviceaccounts,verbs=get;list;watch

// Remotes say where the repository of a source is, and how to get in.
type Remotes interface {
	Remote(ctx context.Context, obj *sourcev1.GitRepository) (git.Remote, error)
}

// Secrets reads the Secret that a field of an object names.
type Secrets interface {
	Data(ctx context.Context, namespace string, ref *meta.LocalObjectReference, field string) (map[string][]byte, error)
}

// Automation is the domain step of the kind.
type Automation struct {
	Objects client.Reader // the cache
	Remotes Remotes
	Secrets Secrets
	Mirrors *git.Mirrors
	Clock   clock.WithDelayedExecution
	Edges   *reconcile.Edges
	// Fetch makes a source look at its remote now.
	Fetch func(ctx context.Context, repository types.NamespacedName) error

	NoCrossNamespaceRefs bool
	// KeepPushBranch builds upon what is on a push branch, which is else made anew of what is checked out.
	KeepPushBranch bool

	apps     auth.GitHubApps
	mu       sync.Mutex
	memories map[types.UID]*memory
}

// memory is what is known of an automation beside its object. All of it may be lost.
type memory struct {
	survey scan.Survey
	batch  batch
	undone undone
}

const maxTries = 5 // of a push that races

// References implements [reconcile.Step]. A policy that changes is told by the namespace's edge, since which
// are selected is not known by name.
func (a *Automation) References(obj *imagev1.ImageUpdateAutomation) []reconcile.Ref {
	refs := []reconcile.Ref{
		reconcile.RefTo(repositoryGroupKind, sourceOf(obj).Namespace, sourceOf(obj).Name),
		reconcile.RefTo(policyGroupKind, obj.Namespace, ""),
	}
	if git := obj.Spec.GitSpec; git != nil && git.Commit.SigningKey != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, obj.Namespace,
			git.Commit.SigningKey.SecretRef.Name))
	}
	if r := obj.Spec.PullRequest; r != nil && r.SecretRef != nil {
		refs = append(refs, reconcile.RefTo(schema.GroupKind{Kind: "Secret"}, obj.Namespace, r.SecretRef.Name))
	}
	return refs
}

// ObservePolicies wakes the automations of a namespace when a policy of it chooses another image, or is labelled anew.
func ObservePolicies(ctx context.Context, e *reconcile.Edges, c cache.Cache) error {
	return reconcile.ObserveAs(ctx, e, c, &imagev1.ImagePolicy{}, func(p *imagev1.ImagePolicy) reconcile.Ref {
		return reconcile.RefTo(policyGroupKind, p.Namespace, "")
	}, func(before, after *imagev1.ImagePolicy) bool {
		return refOf(before) != refOf(after) || !maps.Equal(before.Labels, after.Labels)
	})
}

func sourceOf(obj *imagev1.ImageUpdateAutomation) types.NamespacedName {
	ref := obj.Spec.SourceRef
	if ref.Namespace == "" {
		return types.NamespacedName{Namespace: obj.Namespace, Name: ref.Name}
	}
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
}

// Reconcile brings the repository to the images that policies choose.
func (a *Automation) Reconcile(ctx context.Context,
	pass *reconcile.Pass[*imagev1.ImageUpdateAutomation]) reconcile.Outcome {
	obj := pass.Object
	obj.Status.LastAutomationRunTime = &meta.Time{Time: a.Clock.Now()}
	j, err := a.prepare(ctx, obj)
	if err != nil {
		return failed(err)
	}
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	j.pass, j.fresh = pass, pass.Requested || obj.Status.ObservedGeneration != obj.Generation
	if j.fresh {
		j.memory.undone.forgive()
	}
	err = a.run(ctx, j)
	for try := 1; errors.Is(err, git.ErrRaced) && try < maxTries; try++ {
		j.fresh = true
		err = a.run(ctx, j)
	}
	if err == nil {
		obj.Status.ObservedPolicies = j.observed
	}
	return j.outcome(err)
}

// run looks at the repository once, and commits what is to be changed.
func (a *Automation) run(ctx context.Context, j *job) error {
	base, err := j.checkout(ctx)
	if err != nil {
		return err
	}
	result, err := a.look(ctx, j, base)
	if err != nil {
		return err
	}
	j.problems(result)
	obj := j.pass.Object
	if err := j.aim(ctx, base, obj, result.Changes); err != nil {
		return err
	}
	if len(result.Edits) == 0 || base.counts(ctx, j) {
		j.memory.batch.done()
		obj.Status.ObservedSourceRevision = base.revision.String()
		if len(result.Edits) == 0 {
			return nil
		}
		return j.ask(ctx, obj, result.Changes) // which failed after the push, if it is owed
	}
	if err := j.memory.undone.check(result.Changes); err != nil {
		return err
	}
	if left := j.memory.batch.wait(obj.Spec.Batch, result.Changes, a.Clock.Now()); left > 0 {
		j.waits = left
		a.wakeAfter(j, left)
		return nil
	}
	if err := j.pass.Admit(named(result.Changes)); err != nil {
		return err
	}
	if err := a.commitAll(ctx, j, base, result); err != nil {
		return err
	}
	j.memory.batch.done()
	return j.ask(ctx, obj, result.Changes)
}

func (a *Automation) look(ctx context.Context, j *job, base *base) (scan.Result, error) {
	result, err := j.memory.survey.Look(ctx, base.files, base.files.Root, j.path, j.plan)
	if err != nil {
		return result, fault.New(imagev1.UpdateFailedReason, "cannot update the files of '%s'", base.revision).
			Because(err).
			WithHint("Check spec.update.path")
	}
	return result, nil
}

// outcome tells what became of a pass.
func (j *job) outcome(err error) reconcile.Outcome {
	var o reconcile.Outcome
	switch {
	case err != nil:
		o = failed(err)
	case j.waits > 0:
		o = reconcile.Progressing(j.waits, "waits %s for further images that belong to the same commit",
			j.waits.Round(time.Second))
	default:
		o = reconcile.Ready(meta.SucceededReason, "%s",
			strings.Join(append([]string{"repository up-to-date"}, j.told...), "; "))
		if len(j.pushed) == 0 {
			o = o.Unchanged()
		}
	}
	for _, p := range j.pushed {
		o = o.Note(meta.SucceededReason, "%s", p.message).WithMetadata("revision", p.revision)
	}
	return o
}

// failed tells of an error; what is waited for is no failure.
func failed(err error) reconcile.Outcome {
	if w := new(waitsFor); errors.As(err, &w) {
		return reconcile.Waiting(w.reason, "%s", w.message)
	}
	return reconcile.Failed(err)
}

// waitsFor is the error of something that is not there yet, and whose edge wakes the automation.
type waitsFor struct{ reason, message string }

func (w *waitsFor) Error() string { return w.message }

// Finalize implements [reconcile.Step]: the mirror goes with the object, if nobody else uses it.
func (a *Automation) Finalize(_ context.Context, obj *imagev1.ImageUpdateAutomation) error {
	a.mu.Lock()
	if m := a.memories[obj.UID]; m != nil {
		m.batch.done()
	}
	delete(a.memories, obj.UID)
	a.mu.Unlock()
	return a.Mirrors.Forget(owner(obj.UID))
}

// owner is how the automation goes by with the mirrors.
func owner(uid types.UID) string { return git.WriterPrefix + string(uid) }

func (a *Automation) remember(uid types.UID) *memory {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.memories == nil {
		a.memories = map[types.UID]*memory{}
	}
	if a.memories[uid] == nil {
		a.memories[uid] = &memory{}
	}
	return a.memories[uid]
}

// wakeAfter wakes the automation when a batch is complete.
func (a *Automation) wakeAfter(j *job, left time.Duration) {
	ref := reconcile.RefTo(GroupKind, j.pass.Object.Namespace, j.pass.Object.Name)
	j.memory.batch.alarm = a.Clock.AfterFunc(left, func() { a.Edges.Enqueue(ref) })
}

func refOf(p *imagev1.ImagePolicy) imagev1.ImageRef {
	if p.Status.LatestRef == nil {
		return imagev1.ImageRef{}
	}
	return *p.Status.LatestRef
}

// named is a change as people approve it: the images that come with it, or their number and a digest.
func named(changes []edit.Change) string {
	var all []string
	for _, policy := range scan.Policies(changes) {
		for _, c := range changes {
			if c.Policy == policy {
				all = append(all, strings.Replace(policy, ":", "/", 1)+"="+c.New)
				break
			}
		}
	}
	if text := strings.Join(all, ","); len(text) <= 200 {
		return text
	}
	return fmt.Sprintf("%d images@%s", len(all), digestOf(changes))
}
