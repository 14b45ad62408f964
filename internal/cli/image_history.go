package cli

import (
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
)

// maxWhat is how many changes a line of the history names.
const maxWhat = 3

func (a *app) imageHistory() *cobra.Command {
	var everywhere bool
	c := &cobra.Command{
		Use: "history [KIND/NAME]", Short: "Show what was released, by whom and why", Args: atMostOne,
		Long: `Show the ImageUpdateJobs, and what each ImageUpdateAutomation pushed last; of a workload, the jobs that changed it. All commits, with what they
changed by which policy, are in the repository: git log --notes=sluice.`,
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
	var history []released
	for i := range jobs.Items {
		if j := &jobs.Items[i]; kind == "" || touches(j, kind, name) {
			history = append(history, ofJob(j))
		}
	}
	for i := range automations.Items {
		if u := &automations.Items[i]; kind == "" && u.Status.LastPushTime != nil {
			history = append(history, released{
				u.Status.LastPushTime.Time, imagev1.ImageUpdateAutomationKind + "/" + u.Name, u.Spec.GitSpec.Commit.Author.Email,
				u.Status.LastPushCommit, "by policy",
			})
		}
	}
	if len(history) == 0 {
		return fmt.Errorf("nothing was released in %s yet", map[bool]string{true: "any namespace", false: "namespace '" + a.namespace() + "'"}[everywhere])
	}
	slices.SortStableFunc(history, func(x, y released) int { return y.at.Compare(x.at) })
	rows := [][]cell{{{text: "TIME"}, {text: "BY"}, {text: "AUTHOR"}, {text: "COMMIT"}, {text: "WHAT"}}}
	for _, r := range history {
		rows = append(rows, []cell{{text: utc(&metav1.Time{Time: r.at})}, {text: r.by}, {text: oneLine(r.author)}, {text: r.commit[:min(len(r.commit), 8)]}, {text: printable(oneLine(r.what))}})
	}
	return (&table{out: a.out}).print(rows...)
}

// touches tells whether a job changed a workload.
func touches(j *imagev1alpha1.ImageUpdateJob, kind, name string) bool {
	return slices.ContainsFunc(j.Status.Changes, func(c imagev1alpha1.ImageChange) bool {
		return strings.HasPrefix(c.Object, kind+"/") && strings.HasSuffix(c.Object, "/"+name)
	})
}

func ofJob(j *imagev1alpha1.ImageUpdateJob) released {
	r := released{at: j.CreationTimestamp.Time, by: imagev1alpha1.ImageUpdateJobKind + "/" + j.Name, author: j.Spec.Author, commit: j.Status.Commit}
	if j.Status.CompletionTime != nil {
		r.at = j.Status.CompletionTime.Time
	}
	var what []string
	for _, c := range j.Status.Changes[:min(len(j.Status.Changes), maxWhat)] {
		what = append(what, c.Old+" -> "+c.New)
	}
	if more := len(j.Status.Changes) - maxWhat; more > 0 {
		what = append(what, fmt.Sprintf("and %d more", more))
	}
	if r.what = strings.Join(what, ", "); r.what == "" {
		r.what = state(j)
	}
	if j.Spec.DryRun {
		r.what = "dry run: " + r.what
	}
	if j.Spec.Reason != "" {
		r.what += " (" + j.Spec.Reason + ")"
	}
	return r
}
