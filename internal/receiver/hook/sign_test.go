package hook

import (
	"testing"
)

// TestSign checks that Verify accepts signed requests, and rejects them with another token.
func TestSign(t *testing.T) {
	bodies := map[string]string{ // for types that check the format
		"nexus": `{"action":"UPDATED","repositoryName":"maven"}`,
		"dockerhub": `{"push_data": {"tag": "latest"},
			"repository": {"repo_url": "https://hub.docker.com/r/a/app", "repo_name": "a/app"}}`,
		"quay": `{"docker_url":"quay.io/a/b","updated_tags":["latest"]}`,
		"acr":  `{"action":"push","target":{"repository":"app","tag":"1.0"}}`,
		"cdevents": `{"context": {"version": "0.4.1", "id": "1", "source": "/ci",
			"type": "dev.cdevents.artifact.published.0.2.0", "timestamp": "2026-01-01T00:00:00Z"},
			"subject": {"id": "pkg:oci/app@sha256%3Aabc", "source": "/ci", "type": "artifact", "content": {}}}`,
	}
	secretPath := map[string]bool{"generic": true, "dockerhub": true, "quay": true, "acr": true, "cdevents": true}
	for kind := range signatures {
		if kind == "generic-oidc" {
			continue // TestOIDCTokens
		}
		t.Run(kind, func(t *testing.T) {
			body := []byte(bodies[kind])
			if len(body) == 0 {
				body = []byte("{}")
			}
			event := map[string]string{"github": "push", "gitlab": "Push Hook", "bitbucket": "repo:push"}[kind]
			h, err := Sign(kind, event, "s3cret", body)
			if err != nil {
				t.Fatal(err)
			}
			if kind == "cdevents" {
				h.Set("Ce-Type", "dev.cdevents.artifact.published.0.2.0")
				h.Set("Ce-Specversion", "1.0")
				h.Set("Ce-Id", "1")
				h.Set("Ce-Source", "/ci")
				h.Set("Content-Type", "application/json")
			}
			var c Checker
			d, err := c.Verify(t.Context(), Trust{Type: kind, Token: "s3cret"}, Request{Header: h, Body: body})
			if err != nil {
				t.Fatalf("request rejected: %v", err)
			}
			if event != "" && d.Event != event {
				t.Errorf("got event %q", d.Event)
			}
			if _, err := c.Verify(t.Context(), Trust{Type: kind, Token: "other"},
				Request{Header: h, Body: body}); (err == nil) != secretPath[kind] {
				t.Errorf("with another token: got %v", err)
			}
		})
	}
	if _, err := Sign("gcr", "", "s3cret", nil); err == nil {
		t.Error("got no error for type gcr")
	}
}
