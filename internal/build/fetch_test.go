package build

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

func TestRemoteManifestsAreFetchedOnlyByWhoIsGivenForIt(t *testing.T) {
	const secret = "https://example.com/b.yaml?token=hunter2"
	files := map[string]string{
		"kustomization.yaml":      "resources: [base, 'https://example.com/a.yaml']\nnamePrefix: x-\n",
		"base/kustomization.yaml": "resources: ['" + secret + "', 'https://example.com/a.yaml']\nnamePrefix: y-\n",
	}
	var asked []string
	req := Request{Tree: artifact.FromMap(files), Fetch: func(_ context.Context, url string) ([]byte, error) {
		asked = append(asked, url)
		return []byte(cm(strings.TrimSuffix(strings.TrimPrefix(url, "https://example.com/"), ".yaml")[:1])), nil
	}}
	result, err := Build(t.Context(), req)
	if err != nil || len(result.Objects) != 3 || !result.Again || len(asked) != 2 {
		t.Fatalf("%v, %+v, asked %v", err, result, asked)
	}
	if name := result.Objects[2].GetName(); name != "x-a" {
		t.Errorf("got %s", name)
	}

	req.Fetch = func(context.Context, string) ([]byte, error) { return nil, errors.New("no route") }
	result, err = Build(t.Context(), req)
	if err == nil || !strings.Contains(err.Error(), "cannot be fetched: no route") ||
		strings.Contains(err.Error(), "hunter2") || !result.Again {
		t.Errorf("got %v", err)
	}

	many := "resources:\n"
	for n := range maxRemotes + 1 {
		many += fmt.Sprintf("- https://example.com/%d.yaml\n", n)
	}
	_, err = Build(t.Context(), Request{Tree: artifact.FromMap(map[string]string{"kustomization.yaml": many}),
		Fetch: func(_ context.Context, url string) ([]byte, error) { return []byte(cm(path.Base(url))), nil }})
	if err == nil || !strings.HasSuffix(err.Error(), "remote manifests. Copy them into the repository") {
		t.Errorf("got %v", err)
	}

	for _, named := range []string{"ssh://git@example.com/a/b", "https://u:p@example.com/a.yaml",
		"https://github.com/a/b//c?ref=v1", "https://example.com/a.tar.gz", "git@example.com:a/b.yaml"} {
		req.Tree = artifact.FromMap(map[string]string{"kustomization.yaml": "resources: ['" + named + "']\n"})
		if _, err := Build(t.Context(), req); err == nil || !strings.Contains(err.Error(), "which is remote") {
			t.Errorf("%s: %v", named, err)
		}
	}
}
