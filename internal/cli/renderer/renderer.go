package renderer

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/offline/lookup"
)

const (
	watchDelay    = 2 * time.Second  // before a watch that ended begins again
	firstRetry    = 10 * time.Second // after a failure; each further one waits twice as long
	lastRetry     = 10 * time.Minute
	checkInterval = time.Minute     // between checks that the artifact is still served
	uploadTimeout = 5 * time.Minute // of an upload with its retries
)

// Output receives progress.
type Output interface {
	Step(format string, args ...any)
	Done(format string, args ...any)
	Warn(format string, args ...any)
}

// Renderer renders the revisions of a source.
type Renderer struct {
	Kind       *kind.Kind // of the source
	Source, As types.NamespacedName
	Command    *Command
	Cluster    client.WithWatch
	Artifacts  *artifact.Fetcher
	Publisher  *artifact.Publisher
	Output     Output
}

// Once renders the current revision of the source, and waits for one if there is none yet.
func (r *Renderer) Once(ctx context.Context) error {
	revisions := make(chan meta.Artifact, 1)
	stopped, stop := context.WithCancel(ctx)
	defer stop()
	follow, following := guard.GroupWithContext(stopped, "following a source")
	follow.Go(func() error { return r.follow(following, revisions) })
	select {
	case a := <-revisions:
		stop()
		return errors.Join(r.render(ctx, a), follow.Wait())
	case <-following.Done():
	}
	if err := follow.Wait(); err != nil {
		return err
	}
	return fmt.Errorf("%s '%s' has no artifact: %w", r.Kind.Name(), r.Source, context.Cause(ctx))
}

// Run renders each revision of the source until ctx ends. What fails is tried again. An artifact that the server has
// lost, such as with the disk of its pod, is rendered again.
func (r *Renderer) Run(ctx context.Context) error {
	revisions := make(chan meta.Artifact, 1)
	follow, following := guard.GroupWithContext(ctx, "following a source")
	follow.Go(func() error { return r.follow(following, revisions) })
	var current meta.Artifact
	next, retry, isPublished := time.NewTimer(time.Hour), firstRetry, false
	next.Stop()
	for {
		select {
		case <-following.Done():
			return follow.Wait()
		case a := <-revisions:
			if a.Revision == current.Revision && a.Digest == current.Digest {
				continue
			}
			current, retry = a, firstRetry
		case <-next.C:
			if isPublished && r.isServed(ctx) {
				next.Reset(checkInterval)
				continue
			}
		}
		err := r.render(ctx, current)
		isPublished = err == nil
		switch {
		case ctx.Err() != nil:
		case err == nil:
			retry = firstRetry
			next.Reset(checkInterval)
		default:
			r.Output.Warn("%v. It is tried again in %s", err, retry)
			next.Reset(retry)
			retry = min(2*retry, lastRetry)
		}
	}
}

// follow sends each artifact of the source. The receiver gets the newest one if it is slow. The error is nil when ctx
// ends.
func (r *Renderer) follow(ctx context.Context, revisions chan meta.Artifact) error {
	for isFirst := true; ctx.Err() == nil; isFirst = false {
		w, err := r.Cluster.Watch(ctx, r.Kind.NewList(), client.InNamespace(r.Source.Namespace),
			client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", r.Source.Name)})
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil && isFirst:
			return lookup.Explain(fmt.Sprintf("cannot watch %s '%s'", r.Kind.Name(), r.Source), err)
		case err != nil:
			r.Output.Warn("cannot watch %s '%s': %v. It is tried again", r.Kind.Name(), r.Source, err)
		default:
			receive(w, revisions)
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchDelay):
		}
	}
	return nil
}

// receive sends artifacts until the watch ends.
func receive(w watch.Interface, revisions chan meta.Artifact) {
	defer w.Stop()
	for event := range w.ResultChan() {
		source, ok := event.Object.(sourcev1.Source)
		if !ok || event.Type == watch.Deleted || source.GetArtifact() == nil {
			continue
		}
		select {
		case <-revisions: // an older one
		default:
		}
		revisions <- *source.GetArtifact()
	}
}

// render renders an artifact of the source and publishes the result.
func (r *Renderer) render(ctx context.Context, a meta.Artifact) error {
	if err := r.ensure(ctx); err != nil {
		return err
	}
	r.Output.Step("rendering revision %s of %s '%s'", a.Revision, r.Kind.Name(), r.Source)
	from := artifact.Key{Kind: r.Kind.Name(), Namespace: r.Source.Namespace, Name: r.Source.Name}
	files, err := r.Artifacts.Fetch(ctx, from, a)
	if err != nil {
		return err
	}
	upload := artifact.Upload{Key: r.key(), Revision: a.Revision}
	made, err := r.Command.Run(ctx, files, a.Revision)
	var failed *Failure
	if errors.As(err, &failed) {
		upload.Failure = failed.text
		return errors.Join(err, r.publish(ctx, upload))
	}
	if err != nil {
		return err
	}
	upload.Tree = made
	if err := r.publish(ctx, upload); err != nil {
		return err
	}
	r.Output.Done("published ExternalArtifact '%s' of revision %s", r.As, a.Revision)
	return nil
}

func (r *Renderer) publish(ctx context.Context, u artifact.Upload) error {
	ctx, cancel := context.WithTimeout(ctx, uploadTimeout)
	defer cancel()
	if err := r.Publisher.Publish(ctx, u); err != nil {
		return fmt.Errorf("cannot publish ExternalArtifact '%s': %w", r.As, err)
	}
	return nil
}

func (r *Renderer) key() artifact.Key {
	return artifact.Key{Kind: sourcev1.ExternalArtifactKind, Namespace: r.As.Namespace, Name: r.As.Name}
}

// ensure creates the ExternalArtifact if it does not exist.
func (r *Renderer) ensure(ctx context.Context) error {
	o := &sourcev1.ExternalArtifact{}
	err := r.Cluster.Get(ctx, r.As, o)
	if apierrors.IsNotFound(err) {
		o = &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: r.As.Namespace, Name: r.As.Name}}
		o.Spec.SourceRef = &meta.ObjectReference{APIVersion: sourcev1.GroupVersion.String(), Kind: r.Kind.Name(),
			Namespace: r.Source.Namespace, Name: r.Source.Name}
		if err = r.Cluster.Create(ctx, o); apierrors.IsAlreadyExists(err) {
			err = nil
		}
	}
	if err != nil {
		return lookup.Explain(fmt.Sprintf("cannot create ExternalArtifact '%s'", r.As), err)
	}
	return nil
}

// isServed reports whether the server has the published artifact. It is true if that cannot be found out.
func (r *Renderer) isServed(ctx context.Context) bool {
	o := &sourcev1.ExternalArtifact{}
	if err := r.Cluster.Get(ctx, r.As, o); err != nil {
		return !apierrors.IsNotFound(err)
	}
	if o.Status.Artifact == nil {
		return false
	}
	served, err := r.Publisher.Serves(ctx, o.Status.Artifact.Path)
	return served || err != nil
}
