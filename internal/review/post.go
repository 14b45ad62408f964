package review

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-gitops/sluice/internal/githost"
)

// statusContext is the name of the commit status.
const statusContext = "sluice/review"

// commentKey identifies the comment, so that each pull request has one.
const commentKey = "sluice review"

// statusOf returns the status of a commit; without a detail, that it is being reviewed.
func statusOf(c *Repository, commit string, d *Detail, page string) githost.Status {
	out := githost.Status{Commit: commit, Context: statusContext, URL: page, State: githost.Success}
	switch {
	case d == nil:
		out.State, out.Description = githost.Pending, "being reviewed"
		return out
	case d.Error != "":
		out.State, out.Description = githost.Failure, "could not be reviewed: "+d.Error
		return out
	case !d.Passes:
		out.State = githost.Failure
	}
	out.Description = d.Text
	if d.Held > 0 {
		out.Description += fmt.Sprintf(" Gates would hold %d.", d.Held)
	}
	if d.MissingImages > 0 {
		out.Description += fmt.Sprintf(" Missing images: %d.", d.MissingImages)
	}
	if out.State == githost.Failure && d.Preview.Failed() == 0 {
		out.Description += fmt.Sprintf(" Fails on risk %s.", c.failOn)
	}
	return out
}

// post sets the status of a commit, and writes the comment unless it is empty. What was posted before is not sent
// again.
func (s *Service) post(ctx context.Context, t task, e *entry, status githost.Status, body string) {
	if s.Posts != nil && !s.Posts() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, postLimit)
	defer cancel()
	s.mu.Lock()
	isNewStatus, isNewBody := e.status != status, body != "" && e.posted != body
	s.mu.Unlock()
	c := t.of.config
	var errs []error
	if c.tells && isNewStatus {
		if err := t.of.host.SetStatus(ctx, status); err != nil {
			errs = append(errs, err)
			status = githost.Status{}
		}
	}
	if c.comment && isNewBody {
		if err := t.of.host.Comment(ctx, githost.Comment{Request: t.number, Key: commentKey, Body: body}); err != nil {
			errs = append(errs, err)
			body = ""
		}
	}
	s.mu.Lock()
	e.status = status
	if body != "" {
		e.posted = body
	}
	s.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		s.Log.Error(err, "cannot post a review", "repository", c.Name, "pullRequest", t.number)
	}
}
