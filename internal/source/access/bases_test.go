package access

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

func TestBasesAreFetchedAgainOnlyIfTheirReferenceMoves(t *testing.T) {
	server := testenv.NewGit(t)
	first := server.Commit("r", map[string]string{"base/a": "1"})
	bases := &Bases{Mirrors: git.NewMirrors(t.TempDir()), Egress: &egress.Policy{}}
	content := func(ref string) string {
		t.Helper()
		tree, err := bases.Fetch(t.Context(), remotebase.Base{Repository: server.URL + "/r", Ref: ref})
		if err != nil {
			t.Fatal(err)
		}
		b, err := tree.ReadFile("base/a")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if got := content("main"); got != "1" {
		t.Errorf("got %q", got)
	}
	before := bases.Mirrors.Stats()
	if got := content("main"); got != "1" {
		t.Errorf("got %q", got)
	}
	if after := bases.Mirrors.Stats(); after.Requests > before.Requests+4 {
		t.Errorf("%d requests for an unchanged base", after.Requests-before.Requests)
	}
	server.Commit("r", map[string]string{"base/a": "2"})
	if got := content("main") + content("") + content("refs/heads/main") + content(first); got != "2221" {
		t.Errorf("got %q", got)
	}
	if _, err := bases.Fetch(t.Context(), remotebase.Base{Repository: server.URL + "/r", Ref: "none"}); err == nil {
		t.Error("a reference that does not exist was fetched")
	}
}

func TestMirrorsOfBasesAreBounded(t *testing.T) {
	bases := &Bases{Mirrors: git.NewMirrors(t.TempDir()), Egress: &egress.Policy{}}
	for i := range maxBases + 5 {
		if _, err := bases.use(string(rune('a' + i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(bases.owners) != maxBases {
		t.Errorf("%d mirrors", len(bases.owners))
	}
}

func TestBasesAtLinkLocalAddressesAreRefused(t *testing.T) {
	bases := &Bases{Mirrors: git.NewMirrors(t.TempDir()), Egress: &egress.Policy{RefuseLinkLocal: true}}
	_, err := bases.Fetch(t.Context(), remotebase.Base{Repository: "http://169.254.169.254/r", Ref: "main"})
	if err == nil || !strings.Contains(err.Error(), "link-local") {
		t.Errorf("got %v", err)
	}
}
