package mcp

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sluice-gitops/sluice/internal/review/proposal"
	"github.com/sluice-gitops/sluice/internal/ui"
)

// Changes computes and proposes changes of repositories: that of a clone, or those that the server reviews.
type Changes interface {
	// Preview returns what a change would do.
	Preview(ctx context.Context, u *ui.User, c Change) (any, error)
	// SimulateGates returns what gates would decide about a change.
	SimulateGates(ctx context.Context, u *ui.User, c Change) (any, error)
	// Propose opens a pull request, and returns its address.
	Propose(ctx context.Context, u *ui.User, p Proposal) (string, error)
}

// Change is a branch, or files on top of the branch that it lands on.
type Change struct {
	Repository string `json:"repository,omitempty" jsonschema:"name, if the server reviews several repositories"`
	Namespace  string `json:"namespace,omitempty" jsonschema:"that the user may read, if not all"`

	Base   string `json:"base,omitempty" jsonschema:"branch that the change lands on; main by default"`
	Branch string `json:"branch,omitempty" jsonschema:"branch, tag or commit of the clone with the change"`
	Files  []File `json:"files,omitempty" jsonschema:"instead of a branch: files that change"`
}

// File is a file of a change.
type File struct {
	Path    string `json:"path" jsonschema:"from the root of the repository, with /"`
	Content string `json:"content,omitempty" jsonschema:"the whole new content"`
	Delete  bool   `json:"delete,omitempty" jsonschema:"remove the file"`
}

// Proposal is a pull request to open.
type Proposal struct {
	Repository string // name; empty for the only one

	Base    string
	Title   string
	Message string // of the commit and the pull request
	Files   []File
}

// For returns the pull request that opens a proposal for a user.
func (p Proposal) For(u *ui.User) proposal.Proposal {
	return proposal.Proposal{Base: p.Base, Title: p.Title, Message: p.Message, Files: ContentsOf(p.Files), User: u.Name}
}

// ContentsOf returns the new contents of files by path; nil for one that is removed.
func ContentsOf(files []File) map[string][]byte {
	all := map[string][]byte{}
	for _, f := range files {
		if all[f.Path] = nil; !f.Delete {
			all[f.Path] = append([]byte{}, f.Content...)
		}
	}
	return all
}

const (
	maxFiles    = 100
	maxContents = 1 << 20 // bytes of all files
	maxTitle    = 200     // bytes
	maxMessage  = 10_000  // bytes
	defaultBase = "main"
)

// errNoClone is the error for a change if the server has no clone to compute it in.
var errNoClone = errors.New("changes are computed in a clone of the repository: start 'sluice mcp' in one, or with " +
	"--clone; a server in the cluster needs --review-config")

func (c Change) isGiven() bool { return c.Branch != "" || len(c.Files) > 0 }

// check returns a change with its defaults.
func (c Change) check() (Change, error) {
	if (c.Branch == "") == (len(c.Files) == 0) {
		return c, errors.New("give either 'branch' or 'files'")
	}
	if c.Base == "" {
		c.Base = defaultBase
	}
	return c, checkFiles(c.Files)
}

func checkFiles(files []File) error {
	if len(files) > maxFiles {
		return fmt.Errorf("the change has %d files, at most %d are allowed", len(files), maxFiles)
	}
	size := 0
	for _, f := range files {
		size += len(f.Content)
		clean := path.Clean("/" + f.Path)[1:]
		first, _, _ := strings.Cut(clean, "/")
		switch {
		case f.Path == "" || clean != f.Path || strings.ContainsAny(f.Path, "\\\x00\n"):
			return fmt.Errorf("%q is not a path from the root of the repository", f.Path)
		case strings.EqualFold(first, ".git"):
			return fmt.Errorf("%q is within .git", f.Path)
		case f.Delete && f.Content != "":
			return fmt.Errorf("%q has both a content and delete", f.Path)
		}
	}
	if size > maxContents {
		return fmt.Errorf("the files have %d bytes, at most %d are allowed", size, maxContents)
	}
	return nil
}

func (s *Server) addChanges() {
	add(s, tool{name: "preview_change", title: "What a change would do",
		text: "Build what a branch, or files on top of a branch, would change in the cluster, by dry-run: objects, " +
			"differences and risk, with secrets masked. Nothing is changed.",
		output: fields(map[string]*jsonschema.Schema{"owners": list("Kustomizations and HelmReleases with the objects "+
			"that would change", fields(nil)), "risk": text("none, low, medium or high"),
			"files": list("that change", text("")), "notes": list("what the preview does not cover", text(""))}),
		timeout: previewTimeout}, s.previewChange)
}

func (s *Server) previewChange(ctx context.Context, u *ui.User, in Change) (found, error) {
	c, err := in.check()
	if err != nil {
		return found{}, err
	}
	result, err := s.Changes.Preview(ctx, u, c)
	return found{value: result}, err
}
