package build

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build/remotebase"
)

// remoteRepository is a repository whose base has a base and a component of its own.
var remoteRepository = artifact.FromMap(map[string]string{
	"base/kustomization.yaml": "resources: [a.yaml, ../other]\nnamePrefix: r-\n", "base/a.yaml": cm("a"),
	"other/b.yaml": cm("b"), "other/kustomization.yaml": "resources: [b.yaml]\n",
	"part/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnameSuffix: -c\n",
	"out/kustomization.yaml":  "resources: [../../../a.yaml]\n", "link.yaml": "symlink:base/a.yaml",
	"linked/kustomization.yaml": "resources: [../link.yaml]\n",
})

func withBases(t *testing.T, files map[string]string, asked *[]remotebase.Base) Request {
	t.Helper()
	return Request{Tree: artifact.FromMap(files),
		Fetch: func(context.Context, string) ([]byte, error) { return nil, errors.New("no manifest") },
		FetchBase: func(_ context.Context, b remotebase.Base) (*artifact.Tree, error) {
			*asked = append(*asked, b)
			if strings.Contains(b.Repository, "missing") {
				return nil, errors.New("no route")
			}
			return remoteRepository, nil
		}}
}

func TestBasesOfGitRepositoriesAreBuilt(t *testing.T) {
	var asked []remotebase.Base
	result, err := Build(t.Context(), withBases(t, map[string]string{
		"app/kustomization.yaml": "resources: ['https://example.com/o/r//base?ref=v1', mine]\n" +
			"components: ['https://example.com/o/r//part?ref=v1']\n",
		"app/mine/kustomization.yaml": "resources: ['https://example.com/o/r//other?ref=v2']\nnamePrefix: m-\n",
	}, &asked).at("app"))
	if err != nil || !result.Again {
		t.Fatalf("%v, again %v", err, result.Again)
	}
	var names []string
	for _, o := range result.Objects {
		names = append(names, o.GetName())
	}
	if got := strings.Join(names, " "); got != "r-a-c r-b-c m-b-c" {
		t.Errorf("got %s", got)
	}
	want := "[{https://example.com/o/r  v1 true} {https://example.com/o/r  v2 true}]"
	if got := fmt.Sprint(asked); got != want {
		t.Errorf("fetched %s, want %s", got, want)
	}
}

func (r Request) at(dir string) Request { r.Path = dir; return r }

func TestBasesOfGitRepositoriesAreRefused(t *testing.T) {
	for named, says := range map[string]string{
		"https://example.com/o/missing//base":      "cannot be fetched: no route",
		"https://example.com/o/r//out":             "reaches out of the source",
		"https://example.com/o/r//none":            "which is not in the source",
		"https://example.com/o/r//linked":          "Artifacts have no symlinks",
		"https://u:p@example.com/o/r//base":        "which is remote",
		"ssh://git@example.com/o/r//base":          "which is remote",
		"git@example.com:o/r":                      "which is remote",
		"https://example.com/o/r//../../etc":       "which is remote",
		"https://example.com/o/r//base?ref=hunter": "",
	} {
		var asked []remotebase.Base
		_, err := Build(t.Context(), withBases(t, map[string]string{"a.yaml": cm("x"),
			"kustomization.yaml": "resources: ['" + named + "']\n"}, &asked))
		if says == "" {
			if err != nil {
				t.Errorf("%s: %v", named, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", named, err, says)
		}
	}
	closed := Request{Tree: artifact.FromMap(map[string]string{
		"kustomization.yaml": "resources: ['https://example.com/o/r//base']\n"})}
	if _, err := Build(t.Context(), closed); err == nil || !strings.Contains(err.Error(), "--no-remote-bases=false") {
		t.Errorf("without the flag: %v", err)
	}
}

func TestRemoteBasesOfATreeAreFound(t *testing.T) {
	found := RemoteBases(artifact.FromMap(map[string]string{
		"a/kustomization.yaml": "resources: [x.yaml, 'https://example.com/o/r//base?ref=v1']\n",
		"b/Kustomization":      "bases: ['github.com/o/r']\ncomponents: [c]\n",
		"c/kustomization.yml":  "resources: ['https://u:hunter2@example.com/x.yaml']\n",
		"d/kustomization.yaml": "resources: [x.yaml]\n", "e.yaml": "resources: ['https://example.com/x.yaml']\n",
	}))
	want := "a/kustomization.yaml: https://example.com/o/r//base\nb/Kustomization: github.com/o/r\n" +
		"c/kustomization.yml: https://example.com/x.yaml"
	if got := strings.Join(found, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
