package ui

import (
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
)

// hostileText is text that must never be run as HTML.
const hostileText = `<img src=x onerror=window.hacked=1>`

// hostile is what a tenant can do to whoever looks: HTML in messages and commits. The screenshots show none of it.
func (w *world) hostile() {
	w.Git.Commit("odd", map[string]string{"a.yaml": configMap("odd", "1")})
	tree := w.Git.Run("odd", "rev-parse", "main^{tree}")
	commit := w.Git.Run("odd", "commit-tree", tree, "-p", "main", "-m",
		"<script>window.hacked=1</script> Sell more\n")
	w.Git.SetRef("odd", "refs/heads/main", commit)
	w.GitRepository("odd")
	w.GitRepositoryReady("odd", commit)
	w.Kustomization("broken", "odd", "./"+hostileText)
	w.fails(&kustomizev1.Kustomization{}, "broken", hostileText)
}
