package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/image/record"
)

// maxWhat is how many changes a line of the history names.
const maxWhat = 3

func (a *app) imageHistory() *cobra.Command {
	var everywhere bool
	c := &cobra.Command{
		Use: "history [KIND/NAME]", Short: "Show what was released, by whom and why", Args: atMostOne,
		Long: `Show the ImageUpdateJobs and the commits of ImageUpdateAutomations; of a workload, those that changed it. Of commits are shown the last one of each
automation, those that GitRepositories have now, and what the cluster remembers of the last hour, with what their git notes say. All of them are in the
repository: git fetch origin refs/notes/sluice:refs/notes/sluice, then git log --notes=sluice.`,
		Example: "  sluice image history\n  sluice image history Deployment/web\n  sluice image history -A",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return a.showHistory(ctx, args, everywhere)
		},
	}
	c.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "in all namespaces")
	return c
}

// released is a line of the history.
type released struct {
	at                       time.Time
	by, author, commit, what string
}

func (a *app) showHistory(ctx context.Context, args []string, everywhere bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var kind, name string
	if len(args) > 0 {
		if kind, name, err = workloadOf(args[0]); err != nil {
			return err
		}
	}
	namespace := client.InNamespace(a.namespace())
	if everywhere {
		namespace = ""
	}
	jobs, automations := &imagev1alpha1.ImageUpdateJobList{}, &imagev1.ImageUpdateAutomationList{}
	if err := c.List(ctx, jobs, namespace); err != nil {
		return explain("cannot list ImageUpdateJobs", err)
	}
	if err := c.List(ctx, automations, namespace); err != nil {
		return explain("cannot list ImageUpdateAutomations", err)
	}
	notes, err := a.imageNotes(ctx, c, everywhere, automations.Items)
	if err != nil {
		return err
	}
	history := historyOf(jobs.Items, automations.Items, notes, kind, name)
	if len(history) == 0 {
		return fmt.Errorf("nothing was released in %s yet",
			map[bool]string{true: "any namespace", false: "namespace '" + a.namespace() + "'"}[everywhere])
	}
	slices.SortStableFunc(history, func(x, y released) int { return y.at.Compare(x.at) })
	rows := [][]cell{{{text: "TIME"}, {text: "BY"}, {text: "AUTHOR"}, {text: "COMMIT"}, {text: "WHAT"}}}
	for _, r := range history {
		rows = append(rows, []cell{{text: utc(&metav1.Time{Time: r.at})}, {text: printable(oneLine(r.by))},
			{text: printable(oneLine(r.author))}, {text: r.commit[:min(len(r.commit), 8)]},
			{text: printable(oneLine(r.what))}})
	}
	return (&table{out: a.out}).print(rows...)
}

// historyOf is a line for each job and each commit; of a workload, if it has a kind, of those that changed it.
func historyOf(jobs []imagev1alpha1.ImageUpdateJob, automations []imagev1.ImageUpdateAutomation, notes map[string]noted,
	kind, name string) (history []released) {
	for i := range jobs {
		j := &jobs[i]
		delete(notes, j.Status.Commit) // of which the job says more
		if kind == "" || touches(j, kind, name) {
			history = append(history, ofJob(j))
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
		if _, known := notes[u.Status.LastPushCommit]; !known && kind == "" && u.Status.LastPushTime != nil {
			history = append(history, released{
				u.Status.LastPushTime.Time, imagev1.ImageUpdateAutomationKind + "/" + u.Name, author,
				u.Status.LastPushCommit, "by policy",
			})
		}
	}
	for commit, n := range notes {
		if kind == "" || n.touches(kind, name) {
			n.Author = cmp.Or(n.Author, authors[n.By])
			history = append(history, n.released(commit))
		}
	}
	return history
}

// touches tells whether a job changed a workload.
func touches(j *imagev1alpha1.ImageUpdateJob, kind, name string) bool {
	return slices.ContainsFunc(j.Status.Changes,
		func(c imagev1alpha1.ImageChange) bool { return isOf(c.Object, kind, name) })
}

// isOf tells whether an object, as <kind>/<namespace>/<name> or <kind>/<name>, is the workload.
func isOf(object, kind, name string) bool {
	return strings.HasPrefix(object, kind+"/") && strings.HasSuffix(object, "/"+name)
}

func ofJob(j *imagev1alpha1.ImageUpdateJob) released {
	r := released{at: j.CreationTimestamp.Time, by: imagev1alpha1.ImageUpdateJobKind + "/" + j.Name,
		author: j.Spec.Author, commit: j.Status.Commit}
	if j.Status.CompletionTime != nil {
		r.at = j.Status.CompletionTime.Time
	}
	var what []string
	for _, c := range j.Status.Changes {
		what = append(what, c.Old+" -> "+c.New)
	}
	if len(what) == 0 {
		what = []string{state(j)}
	}
	r.what = listed(what, 0, j.Spec.Reason)
	if j.Spec.DryRun {
		r.what = "dry run: " + r.what
	}
	return r
}

// listed names the first changes, and why they were made; more is how many there are beside those that are known.
func listed(what []string, more int, reason string) string {
	if n := len(what) - maxWhat; n > 0 {
		what, more = what[:maxWhat:maxWhat], more+n
	}
	if more > 0 {
		what = append(what, fmt.Sprintf("and %d more", more))
	}
	text := strings.Join(what, ", ")
	if reason != "" {
		text += " (" + reason + ")"
	}
	return text
}
