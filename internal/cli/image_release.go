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
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/workload"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

const (
	releaseFieldOwner = client.FieldOwner("sluice-image")
	// maxJobName bounds how much of a workload's name the name of its job contains.
	maxJobName = 40
)

// imageRelease is `sluice image release`.
type imageRelease struct {
	*env
	images                                   []string
	latest, all, dryRun                      bool
	automation, container, workloadNamespace string
	author, reason                           string
}

func newImageReleaseCommand(e *env) *cobra.Command {
	r := &imageRelease{env: e}
	c := &cobra.Command{
		Use: "release [KIND/NAME...]", Short: "Commit images for workloads now, and wait for the result",
		Args: workloadArgs,
		Long: `Commit images for workloads to git once: the images in --image, or those that
the policies of an automation select now.

The command creates an ImageUpdateJob, which commits like its
ImageUpdateAutomation: to the same repository and branch, with the same message
and signature, and held by the same gates. Workloads are looked up in the files
in git.`,
		Example: `  sluice image release Deployment/web --image ghcr.io/org/web:1.4.2 \
    --reason "fixes the login"
  sluice image release Deployment/web StatefulSet/db --latest \
    --author "Ada <ada@example.com>"
  sluice image release --all --latest --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.validate(args); err != nil {
				return err
			}
			ctx, cancel := e.WithTimeout(cmd.Context())
			defer cancel()
			return r.run(ctx, args)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&r.images, "image", nil,
		"image to release, as name:tag, name@digest or name:tag@digest; can be repeated")
	f.BoolVar(&r.latest, "latest", false, "release the images that the policies of the automation select now")
	f.BoolVar(&r.all, "all", false, "update all workloads that use the images")
	f.BoolVar(&r.dryRun, "dry-run", false, "show what would change, and commit nothing")
	f.StringVar(&r.automation, "automation", "",
		"ImageUpdateAutomation to commit with (default: the only one in the namespace)")
	f.StringVar(&r.container, "container", "", "only this container of the workloads")
	f.StringVar(&r.workloadNamespace, "workload-namespace", "",
		"namespace of the workloads in the files (default: any)")
	f.StringVar(&r.author, "author", "",
		"requester of the release, as \"Name <email>\"; the commit message names them")
	f.StringVar(&r.reason, "reason", "", "reason to record in the commit and its git note")
	return c
}

func (r *imageRelease) validate(args []string) error {
	switch {
	case r.latest == (len(r.images) > 0):
		return usagef("set either --image or --latest")
	case r.all == (len(args) > 0):
		return usagef("expected either workloads or --all")
	case r.container != "" && r.all:
		return usagef("--container cannot be used with --all")
	}
	for _, image := range r.images {
		if ref := edit.ParseRef(image); !ref.Valid() || ref.Tag == "" && ref.Digest == "" {
			return usagef("invalid --image %q: use name:tag, name@digest or name:tag@digest", image)
		}
	}
	if r.author != "" {
		if _, err := mail.ParseAddress(r.author); err != nil {
			return usagef("invalid --author %q: use \"Name <email>\"", r.author)
		}
	}
	return nil
}

// job returns the job to create. Its automation is not set.
func (r *imageRelease) job(args []string) (*imagev1alpha1.ImageUpdateJob, error) {
	job := &imagev1alpha1.ImageUpdateJob{Spec: imagev1alpha1.ImageUpdateJobSpec{
		Images: r.images, Latest: r.latest, Author: r.author, Reason: r.reason, DryRun: r.dryRun,
	}}
	for _, arg := range args {
		ref, err := workload.ParseRef(arg)
		if err != nil {
			return nil, usageError{err}
		}
		job.Spec.Workloads = append(job.Spec.Workloads, imagev1.WorkloadContainer{Kind: ref.Kind, Name: ref.Name,
			Namespace: r.workloadNamespace, Container: r.container})
	}
	job.Namespace, job.GenerateName = r.Namespace(), "release-"
	if len(args) == 1 {
		name := job.Spec.Workloads[0].Name
		job.GenerateName += name[:min(len(name), maxJobName)] + "-"
	}
	return job, nil
}

func (r *imageRelease) run(ctx context.Context, args []string) error {
	job, err := r.job(args)
	if err != nil {
		return err
	}
	c, err := r.Client()
	if err != nil {
		return err
	}
	if job.Spec.AutomationRef.Name = r.automation; r.automation == "" {
		if job.Spec.AutomationRef, err = r.onlyAutomation(ctx, c); err != nil {
			return err
		}
	}
	k := kind.ByName(imagev1alpha1.ImageUpdateJobKind)
	if err := c.Create(ctx, job, releaseFieldOwner); err != nil {
		return cluster.Explain("cannot create an ImageUpdateJob", err)
	}
	key := client.ObjectKeyFromObject(job)
	r.Done("%s '%s' created", k.Name(), key)
	obj, err := r.await(ctx, c, k, key, cluster.IsSettled)
	if err != nil {
		return err
	}
	r.print(obj.(*imagev1alpha1.ImageUpdateJob))
	if r.dryRun {
		if err := client.IgnoreNotFound(c.Delete(ctx, job)); err != nil {
			r.Step("%s '%s' was not deleted: %v", k.Name(), key, err)
		}
	}
	return r.reportReady(k, obj)
}

// onlyAutomation returns the automation of the namespace, or an error unless there is exactly one.
func (r *imageRelease) onlyAutomation(ctx context.Context, c client.Client) (meta.LocalObjectReference, error) {
	var ref meta.LocalObjectReference
	objects, err := cluster.List(ctx, c, kind.ByName(imagev1.ImageUpdateAutomationKind),
		client.InNamespace(r.Namespace()))
	if err != nil {
		return ref, err
	}
	var names []string
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	switch len(names) {
	case 0:
		return ref, fmt.Errorf("no ImageUpdateAutomation found in namespace '%s', which is needed to commit. "+
			"Create one "+
			"with sluice create image update", r.Namespace())
	case 1:
		ref.Name = names[0]
		return ref, nil
	}
	return ref, errors.New("found several ImageUpdateAutomations: choose with --automation from " +
		strings.Join(names, ", "))
}

// print prints what a job changed, or would change.
func (r *imageRelease) print(job *imagev1alpha1.ImageUpdateJob) {
	for _, c := range job.Status.Changes {
		place := fmt.Sprintf("%s:%d", c.File, c.Line)
		if c.Object != "" {
			place += " " + c.Object
		}
		if c.Container != "" {
			place += " (" + c.Container + ")"
		}
		fmt.Fprintf(r.Out, "%s: %s -> %s\n", term.OneLine(place), term.OneLine(c.Old), term.OneLine(c.New))
	}
	if job.Spec.DryRun && job.Status.Diff != "" {
		for line := range strings.Lines(job.Status.Diff) {
			fmt.Fprintln(r.Out, term.Printable(line))
		}
	}
	if job.Status.Commit != "" {
		fmt.Fprintf(r.Out, "commit: %s\n", job.Status.Commit)
	}
	if job.Status.PullRequest != "" {
		fmt.Fprintf(r.Out, "pull request: %s\n", term.OneLine(job.Status.PullRequest))
	}
}
