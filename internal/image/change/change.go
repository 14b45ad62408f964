// Package change sets images in a git repository: it selects the images, checks out the repository, finds the values to
// change, commits, pushes and opens a pull request. The controllers of ImageUpdateAutomations and ImageUpdateJobs share
// it. It imports no controller.
package change

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/message"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Remotes returns the address and credentials of the repository of a GitRepository.
type Remotes interface {
	Remote(ctx context.Context, obj *sourcev1.GitRepository) (git.Remote, error)
}

// Secrets reads the Secret that a field of an object refers to. The data is nil if ref is nil.
type Secrets interface {
	Data(ctx context.Context, namespace string, ref *meta.LocalObjectReference, field string) (map[string][]byte, error)
}

// Opener opens writers. Its fields must not change after the first use.
type Opener struct {
	Objects client.Reader // the cache
	Remotes Remotes
	Secrets Secrets
	Mirrors *git.Mirrors
	Clock   clock.PassiveClock
	// Fetch requests that a GitRepository be reconciled now.
	Fetch func(ctx context.Context, repository types.NamespacedName) error

	NoCrossNamespaceRefs bool

	apps auth.GitHubApps
}

const (
	defaultTimeout = time.Minute // per operation, if the GitRepository sets none
	maxTries       = 5           // of a push that races with another
)

// RetryRaces calls run until it returns something else than [git.ErrRaced], at most 5 times. Try counts from 0.
func RetryRaces(run func(try int) error) error {
	err := run(0)
	for try := 1; errors.Is(err, git.ErrRaced) && try < maxTries; try++ {
		err = run(try)
	}
	return err
}

// SourceNotFoundError means that the GitRepository of an automation does not exist.
type SourceNotFoundError struct{ Key types.NamespacedName }

func (e *SourceNotFoundError) Error() string {
	return fmt.Sprintf("GitRepository '%s' not found. Create it, or correct spec.sourceRef", e.Key)
}

// SourceOf returns the name of the GitRepository that an automation commits to.
func SourceOf(obj *imagev1.ImageUpdateAutomation) types.NamespacedName {
	ref := obj.Spec.SourceRef
	return types.NamespacedName{Namespace: cmp.Or(ref.Namespace, obj.Namespace), Name: ref.Name}
}

// Writer commits to the repository of one automation. It must not be used concurrently.
type Writer struct {
	// Selection is the images that the automation's policies choose.
	Selection *Selection
	// Timeout bounds all operations of a run together.
	Timeout time.Duration

	opener      *Opener
	automation  *imagev1.ImageUpdateAutomation // read only
	view        *git.View
	viewOwner   string
	remote      git.Remote
	target      target
	message     *message.Template
	sign        func([]byte) (string, error) // nil: commits are not signed
	pullRequest *pullRequest                 // nil: commits are pushed, and no pull request is opened
}

// Options of a writer.
type Options struct {
	// Owner identifies the writer's view of the mirror. Writers with different owners do not share state.
	Owner string
	// ResetPushBranch allows to reset a push branch that has only commits of the automation to what is checked out, by
	// a forced push. Otherwise commits are added to it. A branch of a pull request may always be reset.
	ResetPushBranch bool
}

// Open checks the configuration of an automation and reads everything that a writer needs. It makes no request to the
// repository. The error is a fault or a [SourceNotFoundError].
func (o *Opener) Open(ctx context.Context, automation *imagev1.ImageUpdateAutomation, options Options) (*Writer,
	error) {
	w := &Writer{opener: o, automation: automation, viewOwner: git.WriterPrefix + options.Owner}
	var err error
	if w.message, err = checkSpec(automation); err != nil {
		return nil, err
	}
	if w.Selection, err = selectImages(ctx, o.Objects, automation); err != nil {
		return nil, err
	}
	repository, err := o.repository(ctx, automation)
	if err != nil {
		return nil, err
	}
	if w.target, err = targetOf(automation, repository); err != nil {
		return nil, err
	}
	w.target.mayReset = options.ResetPushBranch
	w.Timeout = maxTries * defaultTimeout
	if t := repository.Spec.Timeout; t != nil && t.Duration > 0 {
		w.Timeout = maxTries * t.Duration
	}
	if w.remote, err = o.Remotes.Remote(ctx, repository); err != nil {
		return nil, err
	}
	if w.pullRequest, err = o.pullRequestOf(ctx, automation, w.target, w.remote); err != nil {
		return nil, err
	}
	if w.sign, err = o.signer(ctx, automation); err != nil {
		return nil, err
	}
	w.view = o.Mirrors.View(w.viewOwner)
	return w, nil
}

// Release deletes the state that writers of an owner have on disk, unless others use it.
func (o *Opener) Release(owner string) error { return o.Mirrors.Forget(git.WriterPrefix + owner) }

// OpensPullRequests reports whether the automation commits to a branch of its own and opens a pull request.
func (w *Writer) OpensPullRequests() bool { return w.pullRequest != nil }

// checkSpec checks the fields that need no other object, and returns the template of commit messages.
func checkSpec(obj *imagev1.ImageUpdateAutomation) (*message.Template, error) {
	if obj.Spec.GitSpec == nil {
		return nil, fault.New(imagev1.InvalidSourceConfigurationReason, "spec.git is not set").
			WithHint("Set spec.git.commit.author to the author of the commits").Final()
	}
	if u := obj.Spec.Update; u != nil && u.Strategy != "" && u.Strategy != imagev1.UpdateSetters {
		return nil, fault.New(imagev1.InvalidUpdateStrategyReason, "spec.update.strategy '%s' is not supported",
			u.Strategy).
			WithHint("Set it to %s", imagev1.UpdateSetters).Final()
	}
	template, err := message.Parse(cmp.Or(obj.Spec.GitSpec.Commit.MessageTemplate, message.Default))
	return template, templateFault("spec.git.commit.messageTemplate", err)
}

func templateFault(field string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, message.ErrRemoved):
		return fault.New(imagev1.RemovedTemplateFieldReason, "%s is invalid", field).Because(err).Final()
	}
	return fault.New(imagev1.UpdateFailedReason, "%s is invalid", field).Because(err).
		WithHint("Correct the template").Final()
}

func (o *Opener) repository(ctx context.Context, obj *imagev1.ImageUpdateAutomation) (*sourcev1.GitRepository, error) {
	key := SourceOf(obj)
	if o.NoCrossNamespaceRefs && key.Namespace != obj.Namespace {
		return nil, fault.New(meta.AccessDeniedReason,
			"spec.sourceRef refers to GitRepository '%s' in another namespace", key).
			WithHint("Cross-namespace references are disabled (--no-cross-namespace-refs): use a GitRepository in "+
				"namespace '%s'", obj.Namespace).Final()
	}
	repository := &sourcev1.GitRepository{}
	if err := o.Objects.Get(ctx, key, repository); apierrors.IsNotFound(err) {
		return nil, &SourceNotFoundError{key}
	} else if err != nil {
		return nil, fault.New(imagev1.SourceManagerFailedReason, "cannot read GitRepository '%s'", key).Because(err)
	}
	return repository, nil
}

// signer returns the function that signs commits, nil if the automation has no signing key.
func (o *Opener) signer(ctx context.Context, obj *imagev1.ImageUpdateAutomation) (func([]byte) (string, error), error) {
	key := obj.Spec.GitSpec.Commit.SigningKey
	if key == nil {
		return nil, nil
	}
	data, err := o.Secrets.Data(ctx, obj.Namespace, &key.SecretRef, "spec.git.commit.signingKey.secretRef")
	if err != nil {
		return nil, err
	}
	return git.ReadSigningKey(key.Type, data, o.Clock.Now)
}
