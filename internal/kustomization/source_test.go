package kustomization_test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestSourceThatMovesToAnotherRepository changes the URL of a source that the applied revision declares, as a bootstrap
// from another repository does. While the source fetches from there, the previous revision must not undo the change.
func TestSourceThatMovesToAnotherRepository(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	commits := map[string]string{}
	for _, repository := range []string{"app", "other"} {
		commits[repository] = s.Git.Commit(repository, map[string]string{
			"source.yaml": fmt.Sprintf("apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\n"+
				"metadata: {name: app}\nspec: {url: %q, interval: 1h, ref: {branch: main}}\n",
				s.Git.URL+"/"+repository),
		})
	}
	s.GitRepository("app")
	s.Kustomization("app", "app", "")
	s.Ready("app", commits["app"])

	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // closed below, unless the test fails
	s.moves("http://"+silent.Addr().String(), "is fetching what its changed spec declares")
	if err := silent.Close(); err != nil { // ends the fetch
		t.Fatal(err)
	}
	s.moves(s.Git.URL+"/other", commits["other"])
	s.moves(s.Git.URL+"/app", commits["app"])
}

// moves changes the URL of source app until Ready of Kustomization app has a text. An apply of the previous revision
// may have begun before the change and undo it.
func (s *harness) moves(url, text string) {
	s.Helper()
	testenv.Eventually(s, "the message of the Kustomization has "+text, func() error {
		g, k := &sourcev1.GitRepository{}, &kustomizev1.Kustomization{}
		if err := errors.Join(s.Get(g, "app"), s.Get(k, "app")); err != nil {
			return err
		}
		if g.Spec.URL != url {
			s.Patch(g, "app", fmt.Sprintf(`{"spec":{"url":%q}}`, url))
			s.RequestReconcile(k, "app")
			return errors.New("the URL was not changed yet")
		}
		ready := apimeta.FindStatusCondition(k.Status.Conditions, "Ready")
		if ready == nil || !strings.Contains(ready.Message, text) {
			return fmt.Errorf("%+v", ready)
		}
		return nil
	})
}
