package githost

import (
	"net/http"
	"strings"
	"testing"
)

// TestComments writes a comment, finds it, and changes it in place.
func TestComments(t *testing.T) {
	t.Parallel()
	marker := "<!-- " + digest("comment", "the key") + " -->"
	text := func(body string) string { return `{"body":"` + marker + `\n` + body + `"}` }
	found := func(body string) string {
		return `[{"id":1,"body":"of a person who quotes\n` + marker + `"},{"id":7,"body":"` + marker + `\n` +
			body + `"}]`
	}
	for name, c := range map[string]struct {
		kind           Kind
		address, login string
		list           string
		post, change   string
	}{
		"GitHub": {GitHub, "https://github.com/o/r", "Bearer s3cret",
			"GET api.github.com/repos/o/r/issues/42/comments?page=1&per_page=100",
			"POST api.github.com/repos/o/r/issues/42/comments", "PATCH api.github.com/repos/o/r/issues/comments/7"},
		"GitLab": {GitLab, "https://gitlab.com/g/s/r", "Bearer s3cret",
			"GET gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests/42/notes?page=1&per_page=100",
			"POST gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests/42/notes",
			"PUT gitlab.com/api/v4/projects/g%2Fs%2Fr/merge_requests/42/notes/7"},
		"Gitea": {Gitea, "https://gitea.example.com/o/r", "token s3cret",
			"GET gitea.example.com/api/v1/repos/o/r/issues/42/comments",
			"POST gitea.example.com/api/v1/repos/o/r/issues/42/comments",
			"PATCH gitea.example.com/api/v1/repos/o/r/issues/comments/7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := client(t, play(t, c.login,
				exchange{request: c.list, answer: `[]`},
				exchange{request: c.post, body: text("first"), status: 201, answer: `{"id":7}`},
				exchange{request: c.list, answer: found("first")},
				exchange{request: c.list, answer: found("first")},
				exchange{request: c.change, body: text("second"), answer: `{"id":7}`},
			), c.kind, c.address, "token", "s3cret")
			for _, body := range []string{"first", "first", "second"} {
				if err := host.Comment(within(t), Comment{Request: 42, Key: "the key", Body: body}); err != nil {
					t.Fatal(err)
				}
			}
			_ = terminal(t, host.Comment(within(t), Comment{Request: -1, Key: "k", Body: "b"}))
			_ = terminal(t, host.Comment(within(t), Comment{Request: 1, Body: "b"}))
		})
	}
	for kind, address := range map[Kind]string{Bitbucket: "https://bitbucket.org/o/r",
		BitbucketServer: "https://git.example.com/scm/o/r.git", AzureDevOps: "https://dev.azure.com/o/p/_git/r"} {
		_ = terminal(t, client(t, play(t, ""), kind, address, "token", "s3cret").
			Comment(within(t), Comment{Request: 1, Key: "k", Body: "b"}))
	}
}

// TestLongComments are cut to what the host takes.
func TestLongComments(t *testing.T) {
	t.Parallel()
	host := client(t, answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte("[]"))
			return
		}
		if r.ContentLength > 65536+200 || r.ContentLength < 65000 {
			t.Errorf("the comment has %d bytes", r.ContentLength)
		}
	}), GitHub, "https://github.com/o/r", "token", "s3cret")
	if err := host.Comment(within(t), Comment{Request: 42, Key: "k", Body: strings.Repeat("x", 1<<20)}); err != nil {
		t.Error(err)
	}
}

func TestDispatch(t *testing.T) {
	t.Parallel()
	host := client(t, play(t, "Bearer s3cret", exchange{request: "POST api.github.com/repos/o/r/dispatches",
		body: `{"event_type":"Kustomization/apps.flux-system","client_payload":{"severity":"info"}}`, status: 204}),
		GitHub, "https://github.com/o/r", "token", "s3cret")
	if err := host.Dispatch(within(t), "Kustomization/apps.flux-system",
		map[string]string{"severity": "info"}); err != nil {
		t.Error(err)
	}
	_ = terminal(t, client(t, play(t, ""), Gitea, "https://gitea.example.com/o/r", "token", "s3cret").
		Dispatch(within(t), "type", nil))
}
