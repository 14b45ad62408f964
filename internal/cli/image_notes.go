package cli

import (
	"cmp"
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// noted is a commit that updates images, by its git note.
type noted struct {
	record.Record
	at time.Time // when the cluster saw it
}

// imageNotes are what the cluster knows of git notes, by commit: those of the commits that GitRepositories
// have now, and of those that events of the last hour tell of. Commits that were made for other namespaces
// are left out, unless it is of any.
func (a *app) imageNotes(ctx context.Context, c client.Client, everywhere bool,
	automations []imagev1.ImageUpdateAutomation) (map[string]noted, error) {
	all := map[string]noted{}
	take := func(text, revision string, at time.Time) {
		r, err := record.Parse(text)
		_, of, found := strings.Cut(r.By, " ")
		if err != nil || !found || !everywhere && !strings.HasPrefix(of, a.namespace()+"/") {
			return // of somebody else
		}
		commit := revision[strings.LastIndexByte(revision, ':')+1:]
		if before, ok := all[commit]; !ok || at.Before(before.at) {
			all[commit] = noted{r, at}
		}
	}
	namespaces := map[string]bool{a.namespace(): true}
	for i := range automations {
		namespaces[cmp.Or(automations[i].Spec.SourceRef.Namespace, automations[i].Namespace)] = true
	}
	if everywhere {
		namespaces = map[string]bool{"": true}
	}
	for namespace := range namespaces {
		sources := &sourcev1.GitRepositoryList{}
		if err := c.List(ctx, sources, client.InNamespace(namespace)); err != nil && !apierrors.IsForbidden(err) {
			return nil, explain("cannot list GitRepositories", err)
		}
		for i := range sources.Items {
			if artifact := sources.Items[i].Status.Artifact; artifact != nil {
				take(artifact.Metadata[meta.CommitNoteKey], artifact.Revision, artifact.LastUpdateTime.Time)
			}
		}
		events := &corev1.EventList{}
		if err := c.List(ctx, events, client.InNamespace(namespace),
			client.MatchingFields{"involvedObject.kind": sourcev1.GitRepositoryKind}); err != nil &&
			!apierrors.IsForbidden(err) {
			return nil, explain("cannot list events", err)
		}
		for i := range events.Items {
			e, about := &events.Items[i], sourcev1.GroupVersion.Group+"/"
			take(e.Annotations[about+event.Note], e.Annotations[about+event.Revision], e.CreationTimestamp.Time)
		}
	}
	return all, nil
}

// released is the line of a commit.
func (n noted) released(commit string) released {
	kind, name, _ := strings.Cut(n.By, " ")
	var what []string
	for _, u := range n.Updated {
		for _, p := range u.Places {
			what = append(what, p.From+" -> "+p.To)
		}
		n.More += u.More
	}
	return released{at: n.at, by: kind + "/" + name[strings.LastIndexByte(name, '/')+1:], author: n.Author,
		commit: commit, what: listed(what, n.More, n.Reason)}
}

// touches tells whether the commit changed a workload.
func (n noted) touches(kind, name string) bool {
	for _, u := range n.Updated {
		for _, p := range u.Places {
			if isOf(p.Object, kind, name) {
				return true
			}
		}
	}
	return false
}
