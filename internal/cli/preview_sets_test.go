package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// previewSets are files with a ResourceSet, its providers, and a Kustomization that it renders.
func previewSets(namespace, source, size string) map[string]string {
	replace := strings.NewReplacer("NS", namespace, "SOURCE", source, "SIZE", size).Replace
	return map[string]string{
		"clusters/root.yaml": replace(`apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: root, namespace: NS}
spec: {interval: 1h, path: ./clusters, prune: true, sourceRef: {kind: GitRepository, name: SOURCE}}
`),
		"clusters/sizes.yaml": replace(`apiVersion: fluxcd.controlplane.io/v1
kind: ResourceSetInputProvider
metadata: {name: sizes, namespace: NS, labels: {of: tenants}}
spec: {type: Static, defaultValues: {tenant: a, size: SIZE}}
`),
		"clusters/tenants.yaml": replace(`apiVersion: fluxcd.controlplane.io/v1
kind: ResourceSet
metadata: {name: tenants, namespace: NS}
spec:
  inputsFrom: [{selector: {matchLabels: {of: tenants}}}]
  resources:
  - apiVersion: v1
    kind: ConfigMap
    metadata: {name: "app-<< inputs.tenant >>", namespace: NS}
    data: {size: << inputs.size | quote >>}
  - apiVersion: kustomize.toolkit.fluxcd.io/v1
    kind: Kustomization
    metadata: {name: web, namespace: NS}
    spec:
      interval: 1h
      path: ./web
      prune: true
      targetNamespace: NS
      sourceRef: {kind: GitRepository, name: SOURCE}
      postBuild: {substitute: {size: << inputs.size | quote >>}}
`),
		"web/web.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {size: \"${size}\"}\n",
	}
}

// checkSets checks the preview of changed inputs.
func checkSets(t *testing.T, namespace, text string) {
	t.Helper()
	for _, want := range []string{"ResourceSet/" + namespace + "/tenants", "~ ConfigMap/" + namespace + "/app-a",
		"data.size: small → large", "Kustomization/" + namespace + "/web", "~ ConfigMap/" + namespace + "/web"} {
		if !strings.Contains(text, want) {
			t.Errorf("the preview lacks %q:\n%s", want, text)
		}
	}
}

func TestPreviewOfResourceSetsOffline(t *testing.T) {
	t.Parallel()
	from, to := previewSets("flux-system", "fleet", "small"), previewSets("flux-system", "fleet", "large")
	args := []string{"preview", "--offline", "--from-dir", write(t, from), "--to-dir"}
	checkSets(t, "flux-system", run(t, append(args, write(t, to))...).wants(t, 1, "4 configured").out)
	to["clusters/tenants.yaml"] = strings.Replace(to["clusters/tenants.yaml"], "inputs.tenant", "inputs.none", 1)
	run(t, append(args, write(t, to))...).wants(t, exitUsage, "1 preview failed")
	to["clusters/tenants.yaml"] = strings.Replace(from["clusters/tenants.yaml"],
		"selector: {matchLabels: {of: tenants}}", "name: elsewhere", 1)
	r := run(t, append(args, write(t, to))...).wants(t, 1)
	if !strings.Contains(r.out, "its objects are not compared, as --offline reads no inputs") {
		t.Errorf("no note:\n%s", r.out)
	}
}

// TestPreviewOfResourceSets previews a change of inputs in a cluster, lands it, and compares.
func TestPreviewOfResourceSets(t *testing.T) {
	c, namespace := withControllers(t)
	git := testenv.NewGit(t)
	git.Commit("fleet", previewSets(namespace, "fleet", "small"))
	at(t, "create", "source", "git", "fleet", "--url", git.URL+"/fleet.git", "--branch", "main", "-n", namespace).
		wants(t, exitOK)
	at(t, "create", "ks", "root", "--source", "GitRepository/fleet", "--path", "./clusters", "--prune", "--interval",
		"1h", "-n", namespace).wants(t, exitOK)
	size := func(name, want string) {
		t.Helper()
		testenv.Eventually(t, name+" has size "+want, func() error {
			cm := &corev1.ConfigMap{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, cm); err != nil {
				return err
			}
			if cm.Data["size"] != want {
				return fmt.Errorf("%v", cm.Data)
			}
			return nil
		})
	}
	size("web", "small")
	git.SetRef("fleet", "refs/heads/next", strings.TrimSpace(git.Run("fleet", "rev-parse", "refs/heads/main")))
	git.CommitTo("fleet", "refs/heads/next", previewSets(namespace, "fleet", "large"))
	args := []string{"preview", "--clone", filepath.Join(git.Root, "fleet.git"), "--from", "main", "--to", "next",
		"--source", "GitRepository/" + namespace + "/fleet"}
	checkSets(t, namespace, at(t, args...).wants(t, 1, "4 configured").out)
	size("web", "small") // a preview changes nothing

	t.Log("without the ResourceSet, its objects are deleted")
	git.CommitTo("fleet", "refs/heads/next", map[string]string{"clusters/tenants.yaml": testenv.Delete})
	r := at(t, args...).wants(t, 1)
	for _, want := range []string{"- ConfigMap/" + namespace + "/app-a deleted", "- ConfigMap/" + namespace +
		"/web deleted"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the preview lacks %q:\n%s", want, r.out)
		}
	}
	at(t, "delete", "ks", "root", "--silent", "-n", namespace).wants(t, exitOK)
	at(t, "delete", "source", "git", "fleet", "--silent", "-n", namespace).wants(t, exitOK)
}
