package ui

import (
	"context"
	"net/http"
	"net/mail"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	imagev1alpha1 "github.com/sluice-gitops/sluice/api/image/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/workload"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// Bounds of a release.
const (
	maxReleased = 500 // workloads and images, as of the definition of ImageUpdateJob
	maxJobName  = 40  // bytes of the name of a workload in the name of its job
)

// requestedBy is the annotation of an ImageUpdateJob that says who asked for it by the UI.
const requestedBy = "ui.sluice.dev/requested-by"

// releaseOrder is the body of a request for a release.
type releaseOrder struct {
	Automation string   `json:"automation"` // ID of what commits
	Workloads  []string `json:"workloads"`  // IDs; their namespaces are not those of the files in git
	Container  string   `json:"container"`
	Images     []string `json:"images"`
	Author     string   `json:"author"` // a claim; default: the user, if the name is an email address
	Reason     string   `json:"reason"`
	DryRun     bool     `json:"dryRun"`
}

// release asks for a release: it creates an ImageUpdateJob in the name of the user.
func (s *Server) release(ctx context.Context, u *User, r *http.Request) (any, error) {
	var body releaseOrder
	if err := readBody(r, &body); err != nil {
		return nil, err
	}
	job, err := body.job(u.Name)
	if err != nil {
		return nil, err
	}
	s.Log.Info("write by the UI", "user", u.Name, "action", "release", "kind", imagev1alpha1.ImageUpdateJobKind,
		"namespace", job.Namespace, "name", job.GenerateName, "images", job.Spec.Images, "dryRun", job.Spec.DryRun,
		"reason", job.Spec.Reason)
	if err := u.Client.Create(ctx, job, fieldOwner); err != nil {
		return nil, err
	}
	return map[string]string{"id": view.ID(imagev1alpha1.ImageUpdateJobKind, job.Namespace, job.Name)}, nil
}

// job returns the job that a user asks for.
func (o releaseOrder) job(user string) (*imagev1alpha1.ImageUpdateJob, error) {
	automation := strings.Split(o.Automation, "/")
	if len(automation) != 3 || automation[0] != imagev1.ImageUpdateAutomationKind {
		return nil, badRequest("choose the ImageUpdateAutomation that commits the release")
	}
	if len(o.Images) == 0 || len(o.Images) > maxReleased || len(o.Workloads) > maxReleased {
		return nil, badRequest("a release needs between 1 and %d images, and at most as many workloads", maxReleased)
	}
	job := &imagev1alpha1.ImageUpdateJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: automation[1], GenerateName: "release-",
			Annotations: map[string]string{requestedBy: user}},
		Spec: imagev1alpha1.ImageUpdateJobSpec{AutomationRef: meta.LocalObjectReference{Name: automation[2]},
			Images: o.Images, DryRun: o.DryRun, Author: strings.TrimSpace(o.Author),
			Reason: strings.TrimSpace(o.Reason)},
	}
	for _, image := range o.Images {
		if ref := edit.ParseRef(image); !ref.Valid() || ref.Tag == "" && ref.Digest == "" {
			return nil, badRequest("%q is not an image as name:tag, name@digest or name:tag@digest",
				excerpt.Bytes(image, 200))
		}
	}
	for _, id := range o.Workloads {
		parts := strings.Split(id, "/")
		ref, err := workload.ParseRef(parts[0] + "/" + parts[len(parts)-1])
		if len(parts) != 3 || err != nil {
			return nil, badRequest("%q does not name a workload", excerpt.Bytes(id, 200))
		}
		job.Spec.Workloads = append(job.Spec.Workloads, imagev1.WorkloadContainer{Kind: ref.Kind, Name: ref.Name,
			Container: o.Container})
	}
	if len(o.Workloads) == 1 {
		name := job.Spec.Workloads[0].Name
		job.GenerateName += strings.TrimRight(name[:min(len(name), maxJobName)], "-.") + "-"
	}
	if _, err := mail.ParseAddress(user); err == nil && job.Spec.Author == "" && !strings.ContainsAny(user, "<> ") {
		name, _, _ := strings.Cut(user, "@")
		job.Spec.Author = name + " <" + user + ">"
	}
	if _, err := mail.ParseAddress(job.Spec.Author); job.Spec.Author != "" && err != nil {
		return nil, badRequest("%q is not an author as Name <email>", excerpt.Bytes(job.Spec.Author, 200))
	}
	if len(job.Spec.Reason) > maxReason {
		return nil, badRequest("the reason has more than %d bytes", maxReason)
	}
	return job, nil
}
