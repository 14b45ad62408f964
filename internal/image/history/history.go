// Package history lists which images were released, when, by whom and why: by ImageUpdateJobs, and by commits of
// ImageUpdateAutomations as far as the cluster knows them.
package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/image/record"
	"github.com/sluice-gitops/sluice/internal/image/workload"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// maxChanges is how many changes a description names.
const maxChanges = 3

// Entry is one release.
type Entry struct {
	At          time.Time
	By          string // the object that committed, as Kind/name
	Author      string
	Commit      string
	Description string // the changed images and the reason
}

// List returns the releases in a namespace, or in all if it is "", newest first. If a workload is given, only releases
// that changed it are listed.
func List(ctx context.Context, c client.Reader, namespace string, of workload.Ref) ([]Entry, error) {
	jobs, automations := &imagev1alpha1.ImageUpdateJobList{}, &imagev1.ImageUpdateAutomationList{}
	if err := c.List(ctx, jobs, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("cannot list ImageUpdateJob objects: %w", err)
	}
	if err := c.List(ctx, automations, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("cannot list ImageUpdateAutomation objects: %w", err)
	}
	notes, err := readNotes(ctx, c, namespace, automations.Items)
	if err != nil {
		return nil, err
	}
	entries := merge(jobs.Items, automations.Items, notes, of)
	slices.SortStableFunc(entries, func(x, y Entry) int { return y.At.Compare(x.At) })
	return entries, nil
}

// merge returns one entry for each job and each commit.
func merge(jobs []imagev1alpha1.ImageUpdateJob, automations []imagev1.ImageUpdateAutomation, notes map[string]note,
	of workload.Ref) []Entry {
	var entries []Entry
	for i := range jobs {
		j := &jobs[i]
		delete(notes, j.Status.Commit) // the job has more details
		if changedByJob(j, of) {
			entries = append(entries, jobEntry(j))
		}
	}
	authors := map[string]string{}
	for i := range automations {
		u := &automations[i]
		if u.Spec.GitSpec == nil {
			continue
		}
		author := u.Spec.GitSpec.Commit.Author.Email
		authors[record.By(imagev1.ImageUpdateAutomationKind, u.Namespace, u.Name)] = author
		_, hasNote := notes[u.Status.LastPushCommit]
		if !hasNote && of == (workload.Ref{}) && u.Status.LastPushTime != nil {
			entries = append(entries, Entry{
				At: u.Status.LastPushTime.Time, By: imagev1.ImageUpdateAutomationKind + "/" + u.Name, Author: author,
				Commit: u.Status.LastPushCommit, Description: "by policy",
			})
		}
	}
	for commit, n := range notes {
		if n.changed(of) {
			n.Author = cmp.Or(n.Author, authors[n.By])
			entries = append(entries, n.entry(commit))
		}
	}
	return entries
}

func changedByJob(j *imagev1alpha1.ImageUpdateJob, of workload.Ref) bool {
	return of == (workload.Ref{}) || slices.ContainsFunc(j.Status.Changes,
		func(c imagev1alpha1.ImageChange) bool { return of.Matches(c.Object) })
}

func jobEntry(j *imagev1alpha1.ImageUpdateJob) Entry {
	e := Entry{At: j.CreationTimestamp.Time, By: imagev1alpha1.ImageUpdateJobKind + "/" + j.Name,
		Author: j.Spec.Author, Commit: j.Status.Commit}
	if j.Status.CompletionTime != nil {
		e.At = j.Status.CompletionTime.Time
	}
	var changes []string
	for _, c := range j.Status.Changes {
		changes = append(changes, c.Old+" -> "+c.New)
	}
	if len(changes) == 0 {
		changes = []string{"not reconciled yet"}
		if c := apimeta.FindStatusCondition(j.Status.Conditions, reconcile.TypeReady); c != nil {
			changes = []string{c.Message}
		}
	}
	e.Description = describe(changes, 0, j.Spec.Reason)
	if j.Spec.DryRun {
		e.Description = "dry run: " + e.Description
	}
	return e
}

// describe names the first changes and the reason; more is the number of changes that are not in the list.
func describe(changes []string, more int, reason string) string {
	if n := len(changes) - maxChanges; n > 0 {
		changes, more = changes[:maxChanges:maxChanges], more+n
	}
	if more > 0 {
		changes = append(changes, fmt.Sprintf("and %d more", more))
	}
	text := strings.Join(changes, ", ")
	if reason != "" {
		text += " (" + reason + ")"
	}
	return text
}
