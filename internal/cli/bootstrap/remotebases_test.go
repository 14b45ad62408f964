package bootstrap

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// warned is an output that keeps warnings.
type warned struct {
	silent
	text string
}

func (w *warned) Warn(format string, args ...any) { w.text += fmt.Sprintf(format, args...) }

func TestRepositoriesWithRemoteBasesAreAllowedToHaveThem(t *testing.T) {
	for name, c := range map[string]struct {
		resource, components string
		want                 string
	}{
		"a remote base": {resource: "https://github.com/o/r//base?ref=v1", components: "plain", want: "with"},
		"a local base":  {resource: "./base", components: "plain", want: "plain"},
		"an option decides": {resource: "https://github.com/o/r//base", components: "- --no-remote-bases",
			want: "- --no-remote-bases"},
	} {
		t.Run(name, func(t *testing.T) {
			server := testenv.NewGit(t)
			server.Commit("r", map[string]string{"apps/x/kustomization.yaml": "resources: ['" + c.resource + "']\n"})
			view := git.NewMirrors(t.TempDir()).View(git.WriterPrefix + "bootstrap")
			base, err := view.Begin(t.Context(), git.Remote{URL: server.URL + "/r"}, "main")
			if err != nil {
				t.Fatal(err)
			}
			output := &warned{}
			r := &run{Options: Options{Output: output, Components: []byte(c.components),
				WithRemoteBases: func() ([]byte, error) { return []byte("with"), nil }}, view: view}
			if err := r.allowRemoteBasesOf(t.Context(), base.Commit); err != nil || string(r.Components) != c.want {
				t.Errorf("components are %q, %v", r.Components, err)
			}
			isNamed := strings.Contains(output.text, "apps/x/kustomization.yaml: https://github.com/o/r//base") &&
				strings.Contains(output.text, "--no-remote-bases=false")
			if isNamed != (c.want == "with") {
				t.Errorf("said %q", output.text)
			}
		})
	}
}
