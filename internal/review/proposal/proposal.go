// Package proposal opens pull requests with changes that agents propose.
package proposal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/review/preview"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// BranchPrefix begins the names of the branches of proposals.
const BranchPrefix = "sluice-mcp/"

// Host is the git host of a repository, with a login that may push branches and open pull requests.
type Host struct {
	URL    string // of the repository, by HTTPS
	Client *githost.Client
	Login  func(context.Context) (auth.GitCredentials, error)
}

// Proposal is a pull request to open.
type Proposal struct {
	Base    string // branch to merge into
	Title   string
	Message string            // of the commit and the pull request
	Files   map[string][]byte // new contents by path; nil removes a file
	User    string            // whom the agent works for
}

// Open pushes the files to a new branch, and opens a pull request for it. It returns the address of the pull request.
// The content decides the name of the branch, so no commit of others is overwritten. Nothing is pushed to a branch that
// a GitRepository follows which the reader finds.
func (h *Host) Open(ctx context.Context, reader client.Reader, p Proposal) (string, error) {
	branch := branchFor(p)
	if err := h.checkWatched(ctx, reader, branch); err != nil {
		return "", err
	}
	if err := h.push(ctx, branch, p); err != nil {
		return "", err
	}
	return h.Client.OpenRequest(ctx, githost.Request{Head: branch, Base: p.Base, Title: p.Title,
		Body: strings.TrimSpace(p.Message + "\n\nProposed by an agent for " + p.User +
			". Review it before you merge.")})
}

var notInBranch = regexp.MustCompile(`[^a-z0-9]+`)

// branchFor returns the name of the branch of a proposal.
func branchFor(p Proposal) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		fmt.Fprintf(h, "%q %t %q\n", name, p.Files[name] == nil, p.Files[name])
	}
	fmt.Fprintf(h, "%q %q %q", p.Base, p.Title, p.Message)
	slug := strings.Trim(notInBranch.ReplaceAllString(strings.ToLower(p.Title), "-"), "-")
	return BranchPrefix + strings.Trim(slug[:min(len(slug), 40)], "-") + "-" + hex.EncodeToString(h.Sum(nil)[:4])
}

// checkWatched refuses a branch that a GitRepository of the cluster may follow.
func (h *Host) checkWatched(ctx context.Context, reader client.Reader, branch string) error {
	var all sourcev1.GitRepositoryList
	if err := reader.List(ctx, &all); err != nil {
		return fmt.Errorf("cannot check which branches are followed, so nothing is pushed: %w", err)
	}
	for n := range all.Items {
		g := &all.Items[n]
		ref := g.Spec.Reference
		if ref == nil || !preview.SameRepository(g.Spec.URL, h.URL) {
			continue
		}
		if slices.Contains([]string{ref.Branch, strings.TrimPrefix(ref.Name, "refs/heads/")}, branch) {
			return fmt.Errorf("GitRepository '%s' follows branch '%s': nothing is pushed to it",
				client.ObjectKeyFromObject(g), branch)
		}
	}
	return nil
}

// push pushes the files of a proposal to a new branch, on top of the one that it is for.
func (h *Host) push(ctx context.Context, branch string, p Proposal) error {
	login, err := h.Login(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sluice-mcp-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	view := git.NewMirrors(filepath.Join(dir, "mirrors")).View(git.WriterPrefix + "mcp")
	base, err := view.Begin(ctx, git.Remote{URL: h.URL, Credentials: login}, p.Base)
	if err != nil {
		return err
	}
	if base.Tip.IsZero() {
		return fmt.Errorf("the repository has no branch '%s'", p.Base)
	}
	var edits []git.Edit
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		edits = append(edits, git.Edit{Path: name, Content: p.Files[name]})
	}
	hash, err := view.Commit(ctx, git.NewCommit{Parent: base.Commit, Edits: edits,
		Message: strings.TrimSpace(p.Title + "\n\n" + p.Message),
		Author:  git.Signature{Name: p.User + " (by an agent)", Email: "sluice-mcp@localhost"}})
	if errors.Is(err, git.ErrUnchanged) {
		return fmt.Errorf("the files are in branch '%s' already", p.Base)
	}
	if err != nil {
		return err
	}
	return view.Push(ctx, []git.RefUpdate{{Name: "refs/heads/" + branch, New: hash}}, nil)
}
