package history

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/image/workload"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// note is the git note of a commit that updates images.
type note struct {
	record.Record
	at time.Time // when the cluster first saw the commit
}

// noteReader collects git notes from objects of the cluster.
type noteReader struct {
	client    client.Reader
	namespace string          // of the objects that committed; "" for all
	notes     map[string]note // by commit
}

// readNotes returns the git notes that the cluster has, by commit: of the current commits of GitRepositories, and of
// commits in events, which are usually kept for one hour. Only commits by objects in the namespace are returned.
func readNotes(ctx context.Context, c client.Reader, namespace string,
	automations []imagev1.ImageUpdateAutomation) (map[string]note, error) {
	r := &noteReader{client: c, namespace: namespace, notes: map[string]note{}}
	namespaces := map[string]bool{namespace: true}
	if namespace != "" {
		for i := range automations {
			namespaces[cmp.Or(automations[i].Spec.SourceRef.Namespace, automations[i].Namespace)] = true
		}
	}
	for n := range namespaces {
		if err := r.read(ctx, n); err != nil {
			return nil, err
		}
	}
	return r.notes, nil
}

// read collects the notes of a namespace. What the caller may not read is skipped.
func (r *noteReader) read(ctx context.Context, namespace string) error {
	sources := &sourcev1.GitRepositoryList{}
	err := r.client.List(ctx, sources, client.InNamespace(namespace))
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot list GitRepository objects: %w", err)
	}
	for i := range sources.Items {
		if a := sources.Items[i].Status.Artifact; a != nil {
			r.add(a.Metadata[meta.CommitNoteKey], a.Revision, a.LastUpdateTime.Time)
		}
	}
	events := &corev1.EventList{}
	err = r.client.List(ctx, events, client.InNamespace(namespace),
		client.MatchingFields{"involvedObject.kind": sourcev1.GitRepositoryKind})
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("cannot list events: %w", err)
	}
	for i := range events.Items {
		e, prefix := &events.Items[i], sourcev1.GroupVersion.Group+"/"
		r.add(e.Annotations[prefix+event.Note], e.Annotations[prefix+event.Revision], e.CreationTimestamp.Time)
	}
	return nil
}

// add records a note, if it is valid and of the namespace.
func (r *noteReader) add(text, revision string, at time.Time) {
	parsed, err := record.Parse(text)
	_, by, found := strings.Cut(parsed.By, " ")
	if err != nil || !found || r.namespace != "" && !strings.HasPrefix(by, r.namespace+"/") {
		return
	}
	commit := revision[strings.LastIndexByte(revision, ':')+1:]
	if before, ok := r.notes[commit]; !ok || at.Before(before.at) {
		r.notes[commit] = note{parsed, at}
	}
}

func (n note) entry(commit string) Entry {
	kind, name, _ := strings.Cut(n.By, " ")
	var changes []string
	more := n.More
	for _, u := range n.Updated {
		for _, p := range u.Places {
			changes = append(changes, p.From+" -> "+p.To)
		}
		more += u.More
	}
	return Entry{At: n.at, By: kind + "/" + name[strings.LastIndexByte(name, '/')+1:], Author: n.Author,
		Commit: commit, Description: describe(changes, more, n.Reason)}
}

// changed reports whether the commit changed a workload, or any workload for the zero Ref.
func (n note) changed(of workload.Ref) bool {
	if of == (workload.Ref{}) {
		return true
	}
	for _, u := range n.Updated {
		for _, p := range u.Places {
			if of.Matches(p.Object) {
				return true
			}
		}
	}
	return false
}
