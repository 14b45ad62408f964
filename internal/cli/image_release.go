package cli

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/image/edit"
)

// releaseOptions of `image release`.
type releaseOptions struct {
	images                        []string
	latest, all, dryRun           bool
	automation, container, within string
	author, reason                string
}

func (a *app) imageRelease() *cobra.Command {
	var o releaseOptions
	c := &cobra.Command{
		Use: "release [KIND/NAME...]", Short: "Commit images for workloads now, and wait until that is done",
		Args: workloads,
		Long: `Commit images for workloads to git, once: those that are named, or those that the policies of an automation choose now.

It makes an ImageUpdateJob, which commits as the ImageUpdateAutomation does that it names: to its repository and branch, with its message and
signature, and held by its gates. Workloads are those of the files in git.`,
		Example: `  sluice image release Deployment/web --image ghcr.io/org/web:1.4.2 --reason "fixes the login"
  sluice image release Deployment/web StatefulSet/db --latest --author "Ada <ada@example.com>"
  sluice image release --all --latest --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			job, err := o.job(args)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return a.release(ctx, job, o)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&o.images, "image", nil,
		"image to release, as name:tag, name@digest or name:tag@digest; may be repeated")
	f.BoolVar(&o.latest, "latest", false, "release the images that the automation's policies choose now")
	f.BoolVar(&o.all, "all", false, "in all workloads that use the images")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what would change, and commit nothing")
	f.StringVar(&o.automation, "automation", "",
		"ImageUpdateAutomation that says where and how to commit (default: the only one of the namespace)")
	f.StringVar(&o.container, "container", "", "only this container of the workloads")
	f.StringVar(&o.within, "workload-namespace", "", "namespace of the workloads as the files have it (default: any)")
	f.StringVar(&o.author, "author", "", "who releases, as \"Name <email>\": the commit's author (default: the "+
		"automation's)")
	f.StringVar(&o.reason, "reason", "", "why, for the commit and its note")
	return c
}

func workloads(_ *cobra.Command, args []string) error {
	for _, arg := range args {
		if _, _, err := workloadOf(arg); err != nil {
			return err
		}
	}
	return nil
}

// job makes the object of the flags.
func (o *releaseOptions) job(args []string) (*imagev1alpha1.ImageUpdateJob, error) {
	switch {
	case o.latest == (len(o.images) > 0):
		return nil, usagef("give either --image or --latest")
	case o.all == (len(args) > 0):
		return nil, usagef("name workloads, or say --all")
	case o.container != "" && o.all:
		return nil, usagef("--container is of the workloads that are named")
	}
	for _, image := range o.images {
		if ref := edit.ParseRef(image); !ref.Valid() || ref.Tag == "" && ref.Digest == "" {
			return nil, usagef("--image %q: write it as name:tag, name@digest or name:tag@digest", image)
		}
	}
	if o.author != "" {
		if _, err := mail.ParseAddress(o.author); err != nil {
			return nil, usagef("--author %q: write it as \"Name <email>\"", o.author)
		}
	}
	job := &imagev1alpha1.ImageUpdateJob{Spec: imagev1alpha1.ImageUpdateJobSpec{
		Images: o.images, Latest: o.latest, Author: o.author, Reason: o.reason, DryRun: o.dryRun,
	}}
	for _, arg := range args {
		kind, name, err := workloadOf(arg)
		if err != nil {
			return nil, err
		}
		job.Spec.Workloads = append(job.Spec.Workloads,
			imagev1.WorkloadContainer{Kind: kind, Name: name, Namespace: o.within, Container: o.container})
	}
	job.GenerateName = "release-"
	if len(args) == 1 {
		job.GenerateName += job.Spec.Workloads[0].Name[:min(len(job.Spec.Workloads[0].Name), 40)] + "-"
	}
	return job, nil
}

func (a *app) release(ctx context.Context, job *imagev1alpha1.ImageUpdateJob, o releaseOptions) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	job.Namespace = a.namespace()
	if job.Spec.AutomationRef.Name = o.automation; o.automation == "" {
		if job.Spec.AutomationRef, err = a.onlyAutomation(ctx, c); err != nil {
			return err
		}
	}
	k := byTitle(imagev1alpha1.ImageUpdateJobKind)
	if err := c.Create(ctx, job, client.FieldOwner("sluice-image")); err != nil {
		return explain("cannot create the ImageUpdateJob", err)
	}
	key := client.ObjectKeyFromObject(job)
	a.done("%s '%s' created", k.title(), key)
	obj, err := a.await(ctx, c, k, key, settled)
	if err != nil {
		return err
	}
	a.showJob(obj.(*imagev1alpha1.ImageUpdateJob))
	if job.Spec.DryRun { // which leaves nothing behind
		if err := client.IgnoreNotFound(c.Delete(ctx, job)); err != nil {
			a.step("%s '%s' stays, as it cannot be deleted: %v", k.title(), key, err)
		}
	}
	return a.verdict(k, obj)
}

// onlyAutomation is the automation of the namespace, if there is no choice.
func (a *app) onlyAutomation(ctx context.Context, c client.Client) (meta.LocalObjectReference, error) {
	var ref meta.LocalObjectReference
	list := &imagev1.ImageUpdateAutomationList{}
	if err := c.List(ctx, list, client.InNamespace(a.namespace())); err != nil {
		return ref, explain("cannot list ImageUpdateAutomations", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	switch len(names) {
	case 0:
		return ref, fmt.Errorf("there is no ImageUpdateAutomation in '%s' that says where to commit. Make one with "+
			"sluice create image update", a.namespace())
	case 1:
		ref.Name = names[0]
		return ref, nil
	}
	return ref, errors.New("there are several ImageUpdateAutomations: choose with --automation from " +
		strings.Join(names, ", "))
}

// showJob prints what a job changed, or would change.
func (a *app) showJob(job *imagev1alpha1.ImageUpdateJob) {
	for _, c := range job.Status.Changes {
		where := fmt.Sprintf("%s:%d", c.File, c.Line)
		if c.Object != "" {
			where += " " + c.Object
		}
		if c.Container != "" {
			where += " (" + c.Container + ")"
		}
		fmt.Fprintf(a.out, "%s: %s -> %s\n", oneLine(where), oneLine(c.Old), oneLine(c.New))
	}
	if job.Spec.DryRun && job.Status.Diff != "" {
		for line := range strings.Lines(job.Status.Diff) {
			fmt.Fprintln(a.out, printable(line))
		}
	}
	if job.Status.Commit != "" {
		fmt.Fprintf(a.out, "commit: %s\n", job.Status.Commit)
	}
	if job.Status.PullRequest != "" {
		fmt.Fprintf(a.out, "pull request: %s\n", oneLine(job.Status.PullRequest))
	}
}
