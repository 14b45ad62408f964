package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sluice-gitops/sluice/internal/ui"
)

// done is the schema of the answer of a tool that writes.
func done() *jsonschema.Schema {
	return fields(map[string]*jsonschema.Schema{"done": text("what was done"), "object": text("Kind/namespace/name"),
		"url": text("of the pull request")})
}

func doneWith(what string, o ui.Object) found {
	return found{value: map[string]string{"done": what, "object": o.Kind + "/" + o.Namespace + "/" + o.Name}}
}

// addWrites adds the tools that write. There is none to approve, open or override a gate, to apply or to delete.
func (s *Server) addWrites() {
	add(s, tool{name: "reconcile", title: "Reconcile an object", output: done(), writes: true,
		text: "Request a reconcile of an object now, in the name of the user. It does not wait for the result."},
		func(ctx context.Context, u *ui.User, in reference) (found, error) {
			return doneWith("reconcile", in.object()), s.UI.Reconcile(ctx, u, in.object())
		})
	add(s, tool{name: "suspend", title: "Suspend an object", output: done(), writes: true,
		text: "Suspend an object: its controller stops reconciling it until it is resumed. Others see the reason."},
		func(ctx context.Context, u *ui.User, in struct {
			reference
			Reason string `json:"reason" jsonschema:"why, for others"`
		}) (found, error) {
			return doneWith("suspend", in.object()), s.UI.Suspend(ctx, u, in.object(), in.Reason)
		})
	add(s, tool{name: "resume", title: "Resume an object", output: done(), writes: true,
		text: "Resume a suspended object."},
		func(ctx context.Context, u *ui.User, in reference) (found, error) {
			return doneWith("resume", in.object()), s.UI.Resume(ctx, u, in.object())
		})
	s.addCompatibleWrites()
	if s.Changes == nil {
		return
	}
	add(s, tool{name: "propose_change", title: "Propose a change", output: done(), writes: true, isOpen: true,
		text: "Open a pull request with files on top of a branch, for people to review and to merge. The commit is " +
			"pushed to a new branch, never to one that a cluster follows.", timeout: previewTimeout}, s.proposeChange)
}

func (s *Server) proposeChange(ctx context.Context, u *ui.User, in struct {
	Repository string `json:"repository,omitempty" jsonschema:"name, if the server reviews several repositories"`

	Base    string `json:"base,omitempty" jsonschema:"branch to merge into; main by default"`
	Title   string `json:"title" jsonschema:"one line: what the change does"`
	Message string `json:"message,omitempty" jsonschema:"why, for those who review it"`
	Files   []File `json:"files" jsonschema:"files that change"`
}) (found, error) {
	p := Proposal{Repository: in.Repository, Base: in.Base, Title: strings.TrimSpace(in.Title),
		Message: strings.TrimSpace(in.Message), Files: in.Files}
	if p.Base == "" {
		p.Base = defaultBase
	}
	switch {
	case p.Title == "" || strings.ContainsAny(p.Title, "\n\r") || len(p.Title) > maxTitle:
		return found{}, fmt.Errorf("'title' must be one line of at most %d bytes", maxTitle)
	case len(p.Message) > maxMessage:
		return found{}, fmt.Errorf("'message' has more than %d bytes", maxMessage)
	case len(p.Files) == 0:
		return found{}, errors.New("'files' must not be empty")
	}
	if err := checkFiles(p.Files); err != nil {
		return found{}, err
	}
	s.Log.Info("write by the MCP server", "user", u.Name, "action", "propose", "repository", p.Repository,
		"base", p.Base, "title", p.Title)
	address, err := s.Changes.Propose(ctx, u, p)
	return found{value: map[string]string{"done": "propose", "url": address}}, err
}
