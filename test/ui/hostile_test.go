package ui

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
)

// hostileText is text that must never be run as HTML.
const hostileText = `<img src=x onerror=window.hacked=1>`

// hostile is what a tenant can do to whoever looks: HTML in messages and commits, addresses that a browser would run,
// and objects that are as large as the API server accepts. The screenshots show none of it.
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
	w.ImageUpdateAutomation("evil", "app", func(a *imagev1.ImageUpdateAutomation) { a.Spec.Suspend = true })
	w.setStatus(&imagev1.ImageUpdateAutomation{}, "evil", map[string]any{
		"lastPushCommit": strings.Repeat("e", 40), "pullRequest": "javascript:window.hacked=1//pull/666"})
	w.huge()
	w.atGitHost()
}

// setStatus sets fields of a status that no controller writes, as the object is suspended.
func (w *world) setStatus(o client.Object, name string, status map[string]any) {
	w.Helper()
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		w.Fatal(err)
	}
	o.SetNamespace(w.Namespace)
	o.SetName(name)
	if err := w.Client.Status().Patch(w.Context(), o, client.RawPatch(types.MergePatchType, patch)); err != nil {
		w.Fatal(err)
	}
}

// huge is a Kustomization with 5,000 conditions, strange entries in its inventory, and labels and annotations that are
// as long as they may be.
func (w *world) huge() {
	w.Kustomization("huge", "odd", "./", func(k *kustomizev1.Kustomization) {
		k.Spec.Suspend = true
		k.Labels = map[string]string{strings.Repeat("l", 63): strings.Repeat("v", 63)}
		k.Annotations = map[string]string{"ui.sluice.dev/suspended-by": strings.Repeat(hostileText, 3000)}
	})
	var conditions []metav1.Condition
	for n := range 5000 {
		c := metav1.Condition{Type: fmt.Sprintf("Hostile%d", n), Status: metav1.ConditionTrue, Reason: "Hostile",
			LastTransitionTime: metav1.Now()}
		if n == 0 {
			c.Type, c.Status, c.Message = "Ready", metav1.ConditionFalse, strings.Repeat("W", 20000)+hostileText
		}
		conditions = append(conditions, c)
	}
	var entries []meta.ResourceRef
	for _, id := range []string{"", "_____", "a/b_../.._x_y", "<b>_" + hostileText + "_<i>_<s>",
		"shop_huge_kustomize.toolkit.fluxcd.io_Kustomization",
		"shop_" + strings.Repeat("n", 2000) + "_apps_Deployment"} {
		entries = append(entries, meta.ResourceRef{ID: id, Version: "v1"})
	}
	w.setStatus(&kustomizev1.Kustomization{}, "huge", map[string]any{"conditions": conditions,
		"inventory": map[string]any{"entries": entries}})
}

// atGitHost is an application from a git host whose pages have known addresses.
func (w *world) atGitHost() {
	w.GitRepository("public", func(g *sourcev1.GitRepository) {
		g.Spec.URL, g.Spec.Suspend = "https://user:secret@github.com/example/app", true
	})
	w.Kustomization("documented", "public", "./", func(k *kustomizev1.Kustomization) { k.Spec.Suspend = true })
	var history []kustomizev1.Snapshot
	for _, digit := range []string{"b", "a"} {
		history = append(history, kustomizev1.Snapshot{Reconciliation: meta.Reconciliation{
			Digest: "sha256:" + strings.Repeat(digit, 64), FirstReconciled: meta.TimeOf(time.Now()),
			LastReconciled: meta.TimeOf(time.Now()), TotalReconciliations: 1,
			LastReconciledStatus: meta.ReconciliationSucceededReason,
			Metadata:             map[string]string{"revision": "main@sha1:" + strings.Repeat(digit, 40)}}})
	}
	w.setStatus(&kustomizev1.Kustomization{}, "documented", map[string]any{"history": history})
}

// startWithoutRights runs another `sluice ui`, of a user who may do nothing, and returns its first address.
func (b *bench) startWithoutRights() (string, error) {
	cfg, err := clientcmd.LoadFromFile(b.kubeconfig)
	if err != nil {
		return "", err
	}
	for _, user := range cfg.AuthInfos {
		user.Impersonate = "without-rights"
	}
	kubeconfig := filepath.Join(b.TempDir(), "without-rights")
	if err := clientcmd.WriteToFile(*cfg, kubeconfig); err != nil {
		return "", err
	}
	p, err := b.serveUI(kubeconfig, "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	b.Cleanup(func() { _ = p.stop() })
	return p.address, nil
}
