package githost

import (
	"net/http"
	"strings"
	"testing"
)

// provision runs what a bootstrap does, and returns the URLs of the repository.
func provision(t *testing.T, h *Client, personal bool, grant string) string {
	t.Helper()
	project, created, err := h.Ensure(testContext(t), NewProject{Visibility: VisibilityPrivate, Personal: personal,
		Branch: "main", Needs: AccessAdmin})
	if err != nil || !created {
		t.Fatalf("created %v, %v", created, err)
	}
	if group, permission, _ := strings.Cut(grant, ":"); group != "" {
		changed, err := h.EnsureGrant(testContext(t), project, Grant{Group: group, Permission: permission})
		if err != nil || !changed {
			t.Fatalf("grant: changed %v, %v", changed, err)
		}
	}
	key := DeployKey{Title: "cluster 22", Key: "ssh-ed25519 NEW"}
	if changed, err := h.EnsureDeployKey(testContext(t), key); err != nil || !changed {
		t.Fatalf("deploy key: changed %v, %v", changed, err)
	}
	if _, err := h.RemoveDeployKeys(testContext(t), "cluster", key.Key+" comment"); err != nil {
		t.Fatal(err)
	}
	return project.HTTPURL + " " + project.SSHURL
}

// TestProvision runs the exchanges of testdata/provision.yaml.
func TestProvision(t *testing.T) {
	t.Parallel()
	for _, c := range loadCases(t, "provision.yaml") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			h := newClient(t, startScript(t, c.Login, c.Exchanges...), c.Kind, c.Address, "token", "s3cret")
			if got := provision(t, h, c.Personal, c.Grant); got != c.URL {
				t.Errorf("got URLs %s, want %s", got, c.URL)
			}
		})
	}
}

// A second run finds everything and writes nothing.
func TestProvisionAgain(t *testing.T) {
	t.Parallel()
	h := newClient(t, startScript(t, "Bearer s3cret",
		exchange{Request: "GET gitlab.com/api/v4/projects/org%2Ffleet", Response: raw(`{"visibility":"private",
			"permissions":{"project_access":null,"group_access":{"access_level":50}},
			"shared_with_groups":[{"group_full_path":"org/platform","group_access_level":30}]}`)},
		exchange{Request: "GET gitlab.com/api/v4/projects/org%2Ffleet/deploy_keys?page=1&per_page=100",
			Response: raw(`[{"id":2,"title":"cluster 22","key":"ssh-ed25519 NEW me@host","can_push":true}]`)},
		exchange{Request: "GET gitlab.com/api/v4/projects/org%2Ffleet/deploy_tokens?page=1&per_page=100",
			Response: raw(`[{"id":1,"name":"cluster","username":"gitlab+deploy-token-1","revoked":true},
				{"id":2,"name":"cluster","username":"gitlab+deploy-token-2"}]`)},
	), GitLab, "https://gitlab.com/org/fleet", "token", "s3cret")
	p, created, err := h.Ensure(testContext(t), NewProject{Visibility: VisibilityPublic, Needs: AccessAdmin})
	if err != nil || created {
		t.Fatalf("created %v, %v", created, err)
	}
	grant := Grant{Group: "org/platform", Permission: "developer"}
	if changed, err := h.EnsureGrant(testContext(t), p, grant); err != nil || changed {
		t.Errorf("grant: changed %v, %v", changed, err)
	}
	if changed, err := h.EnsureDeployKey(testContext(t), DeployKey{Title: "x", Key: "ssh-ed25519 NEW",
		Writable: true}); err != nil || changed {
		t.Errorf("deploy key: changed %v, %v", changed, err)
	}
	if ok, err := h.HasDeployToken(testContext(t), "cluster", "gitlab+deploy-token-2"); err != nil || !ok {
		t.Errorf("deploy token: %v, %v", ok, err)
	}
}

// The visibility changes on request only, and a key whose permission differs is replaced.
func TestProvisionChanges(t *testing.T) {
	t.Parallel()
	h := newClient(t, startScript(t, "token s3cret",
		exchange{Request: "GET gitea.example.com/api/v1/repos/o/fleet", Response: raw(`{"private":true}`)},
		exchange{Request: "PATCH gitea.example.com/api/v1/repos/o/fleet", Body: raw(`{"private":false}`)},
		exchange{Request: "GET gitea.example.com/api/v1/repos/o/fleet/keys?limit=100&page=1",
			Response: raw(`[{"id":4,"title":"cluster 22","key":"ssh-ed25519 NEW","read_only":true}]`)},
		exchange{Request: "DELETE gitea.example.com/api/v1/repos/o/fleet/keys/4", Status: 204},
		exchange{Request: "POST gitea.example.com/api/v1/repos/o/fleet/keys", Status: 422,
			Body:     raw(`{"title":"cluster 22","key":"ssh-ed25519 NEW","read_only":false}`),
			Response: raw(`{"message":"A key with the same name already exists"}`)},
	), Gitea, "https://gitea.example.com/o/fleet", "token", "s3cret")
	if _, _, err := h.Ensure(testContext(t), NewProject{Visibility: VisibilityPublic, Reconcile: true}); err != nil {
		t.Fatal(err)
	}
	_, err := h.EnsureDeployKey(testContext(t), DeployKey{Title: "cluster 22", Key: "ssh-ed25519 NEW", Writable: true})
	if err == nil || !strings.Contains(err.Error(), "Remove the deploy key with this title or content from the "+
		"repository") {
		t.Errorf("got %v", err)
	}
}

// TestDeployTokens checks that a new token replaces the earlier ones.
func TestDeployTokens(t *testing.T) {
	t.Parallel()
	tokens := "gitlab.com/api/v4/projects/o%2Ffleet/deploy_tokens"
	h := newClient(t, startScript(t, "Bearer s3cret",
		exchange{Request: "POST " + tokens, Body: raw(`{"name":"cluster","scopes":["read_repository"]}`), Status: 201,
			Response: raw(`{"id":2,"name":"cluster","username":"gitlab+deploy-token-2","token":"new"}`)},
		exchange{Request: "GET " + tokens + "?page=1&per_page=100", Response: raw(`[
			{"id":1,"name":"cluster","username":"gitlab+deploy-token-1"},
			{"id":2,"name":"cluster","username":"gitlab+deploy-token-2"},
			{"id":3,"name":"of others","username":"gitlab+deploy-token-3"}]`)},
		exchange{Request: "DELETE " + tokens + "/1", Status: 204},
	), GitLab, "https://gitlab.com/o/fleet", "token", "s3cret")
	token, err := h.CreateDeployToken(testContext(t), "cluster")
	if err != nil || token.Username != "gitlab+deploy-token-2" || token.Token != "new" {
		t.Fatalf("got %+v, %v", token, err)
	}
	if n, err := h.RemoveDeployTokens(testContext(t), "cluster", token.Username); n != 1 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}
}

// TestProvisionFailures checks that errors say what to do about the token.
func TestProvisionFailures(t *testing.T) {
	t.Parallel()
	found := `{"private":true,"permissions":{"admin":false,"push":true}}`
	for name, c := range map[string]struct {
		status   int // of all requests but the first; that of the first is 404 if personal
		response string
		header   string
		personal bool
		want     string
	}{
		"wrong token": {status: 401, response: `{"message":"Bad credentials"}`,
			want: "The token is wrong or has expired: create a new one"},
		"wrong scope": {status: 403, response: `{"message":"Resource not accessible"}`, header: "gist",
			want: "Give the token the scope repo, or, if it is fine-grained, write permission for Contents and " +
				"Administration; it has the scopes: gist"},
		"not an administrator": {status: 200, response: found, want: "may not administer repository 'o/private'. " +
			"Use the token of an owner or administrator of the repository, with the scope repo, or, if it is " +
			"fine-grained, write permission for Contents and Administration"},
		"another owner": {status: 200, response: `{"login":"other"}`, personal: true,
			want: "the login of 'other' cannot create it. Use a token of 'o', or another owner"},
		"unknown owner": {status: 404, response: `{"message":"Not Found"}`,
			want: "the owner does not exist, or the login may not create repositories of it: status 404. Correct " +
				"the owner, set --personal if it is a user, and use a token with the scope repo, or, if it is " +
				"fine-grained, write permission for Contents and Administration"},
	} {
		server := startServer(t, func(w http.ResponseWriter, r *http.Request) {
			if c.header != "" {
				w.Header().Set("X-OAuth-Scopes", c.header)
			}
			if c.personal && strings.HasSuffix(r.URL.Path, "/private") {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.response))
		})
		h := newClient(t, server, GitHub, hosts[GitHub], "token", "s3cret")
		_, _, err := h.Ensure(testContext(t), NewProject{Personal: c.personal, Needs: AccessAdmin})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	client := newClient(t, startServer(t, http.NotFound), GitHub, hosts[GitHub], "token", "s3cret")
	if _, err := client.EnsureGrant(testContext(t), Project{}, Grant{Group: "a", Permission: "root"}); err == nil ||
		!strings.Contains(err.Error(), "Use one of: pull, triage, push, maintain, admin") {
		t.Errorf("got %v", err)
	}
}
