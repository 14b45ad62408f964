package differential

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/build"
	"github.com/sluice-gitops/sluice/internal/build/remotebase"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/access"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const configMap = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "

// TestRemoteBasesAreThoseOfKustomize builds bases at URLs of a git server and of a web server, where kustomize runs the
// program git.
func TestRemoteBasesAreThoseOfKustomize(t *testing.T) {
	server := testenv.NewGit(t)
	server.Commit("o/r", map[string]string{"base/kustomization.yaml": "resources: [a.yaml, ../other]\nnamePrefix: r-\n",
		"base/a.yaml": configMap + "a}\n", "other/kustomization.yaml": "resources: [b.yaml]\n",
		"other/b.yaml": configMap + "b}\n", "kustomization.yaml": "resources: [other]\n",
		"part/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnameSuffix: -c\n"})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(configMap + "web}\n"))
	}))
	t.Cleanup(web.Close)
	repository := server.URL + "/o/r"
	for what, text := range map[string]string{
		"a directory":        "resources: ['" + repository + "//base?ref=main']\n",
		"the default branch": "resources: ['" + repository + "//other']\n",
		"the root":           "resources: ['" + repository + "?ref=main']\n",
		"a component":        "resources: ['" + repository + "//base']\ncomponents: ['" + repository + "//part']\n",
		"a manifest":         "resources: ['" + web.URL + "/a.yaml']\nnamePrefix: p-\n",
		"both":               "resources: ['" + web.URL + "/a.yaml', '" + repository + "//base?ref=refs/heads/main']\n",
		"no such reference":  "resources: ['" + repository + "//base?ref=none']\n",
		"no such directory":  "resources: ['" + repository + "//none']\n",
		"no such repository": "resources: ['" + server.URL + "/o/none//base']\n",
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			want := ""
			built, wantErr := krusty.MakeKustomizer(&krusty.Options{LoadRestrictions: types.LoadRestrictionsNone,
				PluginConfig: types.DisabledPluginConfig()}).Run(filesys.MakeFsOnDisk(), dir)
			if wantErr == nil {
				if want, wantErr = objectsOf(built); wantErr != nil {
					t.Fatal(wantErr)
				}
			}
			bases := &access.Bases{Mirrors: git.NewMirrors(t.TempDir()), Egress: &egress.Policy{}}
			result, err := build.Build(t.Context(), build.Request{
				Tree:  artifact.FromMap(map[string]string{"kustomization.yaml": text}),
				Fetch: remotebase.NewFetcher(http.DefaultTransport), FetchBase: bases.Fetch})
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("error %v, kustomize: %v", err, wantErr)
			}
			if err != nil {
				return
			}
			if got, err := json.Marshal(result.Objects); err != nil || string(got) != want {
				t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
			}
		})
	}
}
