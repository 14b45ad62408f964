package kustomization_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestRealRepositories runs the documented pipeline on the repositories that it names.
func TestRealRepositories(t *testing.T) {
	t.Parallel()
	root := os.Getenv("SLUICE_REALWORLD")
	if root == "" {
		t.Log("SLUICE_REALWORLD is not set: set it to the directory with gitops-istio and podinfo-deploy; nothing " +
			"was checked")
		return
	}
	s := sharedHarness(t)
	commits := map[string]string{}
	for _, repo := range []string{"gitops-istio", "podinfo-deploy"} {
		files := map[string]string{}
		base := filepath.Join(root, repo)
		err := filepath.Walk(base, func(p string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			name, err := filepath.Rel(base, p)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(p)
			files[name] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		commits[repo] = s.Git.CommitTo(repo, "refs/heads/master", files)
	}
	for _, text := range strings.Split(strings.ReplaceAll(document, "https://github.com/stefanprodan", s.Git.URL),
		"---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetNamespace(s.Namespace)
		s.Create(o)
	}
	istiod := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "istiod"}}
	istiod.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "istiod"}}
	istiod.Spec.Template.Labels = istiod.Spec.Selector.MatchLabels
	istiod.Spec.Template.Spec.Containers = []corev1.Container{{Name: "d", Image: "istio"}}
	testenv.Eventually(t, "the namespace of istiod exists", func() error {
		return client.IgnoreAlreadyExists(s.Client.Create(t.Context(), istiod)) // by an earlier run
	})
	for name, repo := range map[string]string{"istio": "gitops-istio", "webapp-common": "podinfo-deploy",
		"webapp-backend": "podinfo-deploy", "webapp-frontend": "podinfo-deploy"} {
		s.Ready(name, commits[repo])
	}
}

const document = `apiVersion: source.toolkit.fluxcd.io/v1beta1
kind: GitRepository
metadata: {name: istio}
spec: {interval: 1m, url: "https://github.com/stefanprodan/gitops-istio"}
---
apiVersion: source.toolkit.fluxcd.io/v1beta1
kind: GitRepository
metadata: {name: webapp}
spec: {interval: 1m, url: "https://github.com/stefanprodan/podinfo-deploy"}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta1
kind: Kustomization
metadata: {name: istio}
spec: {interval: 10m, path: ./istio/, prune: true, sourceRef: {kind: GitRepository, name: istio},
  healthChecks: [{kind: Deployment, name: istiod, namespace: istio-system}], timeout: 2m}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta1
kind: Kustomization
metadata: {name: webapp-common}
spec: {dependsOn: [{name: istio}], interval: 5m, path: ./webapp/common/, prune: true,
  sourceRef: {kind: GitRepository, name: webapp}, validation: client}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta1
kind: Kustomization
metadata: {name: webapp-backend}
spec: {dependsOn: [{name: webapp-common}], interval: 5m, path: ./webapp/backend/, prune: true,
  sourceRef: {kind: GitRepository, name: webapp}, validation: server, healthChecks: [{kind: Deployment,
  name: backend, namespace: webapp}], timeout: 2m}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta1
kind: Kustomization
metadata: {name: webapp-frontend}
spec: {dependsOn: [{name: webapp-backend}], interval: 5m, path: ./webapp/frontend/, prune: true,
  sourceRef: {kind: GitRepository, name: webapp}, validation: server}
`
