package hook

import (
	"crypto/hmac"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"hash"
	"net/http"
	"strings"
	"testing"
)

const secret = "s3cr3t-of-the-webhook"

func sign(h func() hash.Hash, key, body string) string {
	mac := hmac.New(h, []byte(key))
	mac.Write([]byte(body))
	return hex.EncodeToString(mac.Sum(nil))
}

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// Bodies from the documentation of the senders, shortened.
const (
	push      = `{"ref":"refs/heads/main","repository":{"full_name":"shop/app"}}`
	dockerTag = `{"callback_url": "https://registry.hub.docker.com/u/shop/app/hook/x/",
		"push_data": {"pusher": "a", "pushed_at": 1417566161, "tag": "1.2.3"}, "repository": {"repo_name": "shop/app"}}`
	quayPush = `{"name": "app", "repository": "shop/app", "namespace": "shop", "docker_url": "quay.io/shop/app",
		"homepage": "https://quay.io/repository/shop/app", "updated_tags": ["latest"]}`
	acrPush = `{"id": "cb8c", "timestamp": "2026-01-01T00:00:00Z", "action": "push",
		"target": {"mediaType": "application/vnd.docker.distribution.manifest.v2+json", "digest": "sha256:80f",
			"repository": "shop/app", "tag": "v1"},
		"request": {"id": "3a", "host": "shop.azurecr.io", "method": "PUT"}}`
	nexusPush = `{"timestamp": "2026-01-01T00:00:00.000+0000", "nodeId": "7FFA", "initiator": "admin/127.0.0.1",
		"repositoryName": "docker", "action": "UPDATED",
		"component": {"format": "docker", "name": "app", "version": "1"}}`
	published = `{"context": {"version": "0.4.1", "id": "271", "source": "/ci",
		"type": "dev.cdevents.artifact.published.0.2.0", "timestamp": "2026-01-01T00:00:00Z"},
		"subject": {"id": "pkg:oci/app", "type": "artifact", "content": {}}}`
)

func sha256Of(key, body string) string { return "sha256=" + sign(sha256.New, key, body) }

// verifyCases are requests and the expected results of Verify.
var verifyCases = map[string]struct {
	kind   string
	events []string
	header http.Header
	body   string
	status int // 0: accepted
	event  string
}{
	"generic": {kind: "generic", body: "anything"},

	"generic-hmac with SHA-1": {kind: "generic-hmac",
		header: headers("X-Signature", "sha1="+sign(sha1.New, secret, push)), body: push},
	"generic-hmac with SHA-256": {kind: "generic-hmac",
		header: headers("X-Signature", sha256Of(secret, push)), body: push},
	"generic-hmac with SHA-512": {kind: "generic-hmac",
		header: headers("X-Signature", "sha512="+sign(sha512.New, secret, push)), body: push},
	"generic-hmac with an unknown hash": {kind: "generic-hmac", header: headers("X-Signature", "md5=00"),
		body: push, status: 401},
	"generic-hmac with another body": {kind: "generic-hmac",
		header: headers("X-Signature", sha256Of(secret, push)), body: push + " ", status: 401},
	"generic-hmac not in hex": {kind: "generic-hmac", header: headers("X-Signature", "sha256=zz"),
		body: push, status: 401},
	"generic-hmac truncated": {kind: "generic-hmac",
		header: headers("X-Signature", sha256Of(secret, push)[:20]), body: push, status: 401},
	"generic-hmac without a signature": {kind: "generic-hmac", body: push, status: 401},
	"generic-hmac with an empty signature": {kind: "generic-hmac", header: headers("X-Signature", "sha256="),
		body: push, status: 401},
	"generic-hmac ignores events": {kind: "generic-hmac", events: []string{"push"},
		header: headers("X-Signature", sha256Of(secret, push)), body: push},
	"generic-hmac signed with an empty token": {kind: "generic-hmac",
		header: headers("X-Signature", sha256Of("", push)), body: push, status: 401},
	"GitHub push": {kind: "github", events: []string{"ping", "push"},
		header: headers("X-GitHub-Event", "push", "X-Hub-Signature-256", sha256Of(secret, push), "X-Hub-Signature",
			"sha1=00"), body: push, event: "push"},
	"GitHub push with SHA-1 only": {kind: "github",
		header: headers("X-GitHub-Event", "push", "X-Hub-Signature", "sha1="+sign(sha1.New, secret, push)),
		body:   push, event: "push"},
	"GitHub push with a wrong SHA-256 signature": {kind: "github",
		header: headers("X-Hub-Signature-256", sha256Of("x", push), "X-Hub-Signature", "sha1="+
			sign(sha1.New, secret, push)), body: push, status: 401},
	"GitHub event that is not selected": {kind: "github", events: []string{"push"},
		header: headers("X-GitHub-Event", "star", "X-Hub-Signature-256", sha256Of(secret, push)), body: push,
		status: 200},
	"GitHub event that is not selected, unsigned": {kind: "github", events: []string{"push"},
		header: headers("X-GitHub-Event", "star"), body: push, status: 401},
	"GitHub without an event": {kind: "github", events: []string{"push"},
		header: headers("X-Hub-Signature-256", sha256Of(secret, push)), body: push, status: 200},
	"Gitea push": {kind: "github", events: []string{"push"},
		header: headers("X-Gitea-Event", "push", "X-Hub-Signature-256", sha256Of(secret, push)), body: push,
		event: "push"},
	"GitLab push": {kind: "gitlab", events: []string{"Push Hook"},
		header: headers("X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", secret), body: push, event: "Push Hook"},
	"GitLab with another token": {kind: "gitlab",
		header: headers("X-Gitlab-Event", "Push Hook", "X-Gitlab-Token", secret+"x"), body: push, status: 401},
	"GitLab without a token": {kind: "gitlab", header: headers("X-Gitlab-Event", "Push Hook"),
		body: push, status: 401},
	"Bitbucket Server push": {kind: "bitbucket", events: []string{"repo:refs_changed"},
		header: headers("X-Event-Key", "repo:refs_changed", "X-Hub-Signature", sha256Of(secret, push)), body: push,
		event: "repo:refs_changed"},
	"Bitbucket Cloud push": {kind: "bitbucket", events: []string{"repo:push"},
		header: headers("X-Event-Key", "repo:push", "X-Hub-Signature", sha256Of(secret, push)), body: push,
		event: "repo:push"},
	"Bitbucket with another token": {kind: "bitbucket",
		header: headers("X-Event-Key", "repo:push", "X-Hub-Signature", sha256Of("x", push)), body: push,
		status: 401},
	"Harbor": {kind: "harbor", header: headers("Authorization", secret),
		body: `{"type":"PUSH_ARTIFACT"}`},
	"Harbor with another header": {kind: "harbor",
		header: headers("Authorization", "Bearer "+secret), body: `{}`, status: 401},
	"Docker Hub":                     {kind: "dockerhub", body: dockerTag},
	"Docker Hub with few fields":     {kind: "dockerhub", body: `{"push_data":{"tag":"1"}}`},
	"Docker Hub with another format": {kind: "dockerhub", body: `{"push_data":"1"}`, status: 400},
	"Docker Hub without an object":   {kind: "dockerhub", body: "null", status: 400},
	"Docker Hub with malformed JSON": {kind: "dockerhub", body: "{", status: 400},
	"Quay":                           {kind: "quay", body: quayPush},
	"Quay with a vulnerability": {kind: "quay",
		body: `{"repository":"shop/app","vulnerability":{}}`, status: 400},
	"Azure": {kind: "acr", body: acrPush},
	"Azure with a ping": {kind: "acr",
		body: `{"id":"cb8c","timestamp":"2026-01-01T00:00:00Z","action":"ping"}`, status: 200},
	"Azure with an empty object": {kind: "acr", body: `{}`, status: 400},
	"Nexus": {kind: "nexus",
		header: headers("X-Nexus-Webhook-Signature", sign(sha1.New, secret, nexusPush)), body: nexusPush},
	"Nexus unsigned": {kind: "nexus", body: nexusPush, status: 401},
	"Nexus with another format": {kind: "nexus",
		header: headers("X-Nexus-Webhook-Signature", sign(sha1.New, secret, "[]")), body: "[]", status: 400},
	"CDEvents in binary mode": {kind: "cdevents",
		events: []string{"dev.cdevents.artifact.published.0.2.0"},
		header: headers("Ce-Type", "dev.cdevents.artifact.published.0.2.0"), body: published,
		event: "dev.cdevents.artifact.published.0.2.0"},
	"CDEvents in structured mode": {kind: "cdevents",
		header: headers("Content-Type", "application/cloudevents+json"),
		body: `{"specversion": "1.0", "id": "1", "source": "/ci",
			"type": "dev.cdevents.artifact.published.0.2.0", "data": ` + published + `}`,
		event: "dev.cdevents.artifact.published.0.2.0"},
	"CDEvents with another type in the header": {kind: "cdevents",
		events: []string{"dev.cdevents.change.merged"},
		header: headers("Ce-Type", "dev.cdevents.change.merged"), body: published, event: "dev.cdevents.change.merged"},
	"CDEvents whose header is not selected": {kind: "cdevents",
		events: []string{"dev.cdevents.artifact.published.0.2.0"},
		header: headers("Ce-Type", "dev.cdevents.change.merged"), body: published, status: 200},
	"CDEvents that are not selected": {kind: "cdevents",
		events: []string{"dev.cdevents.change.merged.0.2.0"}, body: published, status: 200},
	"CDEvents with another CloudEvent": {kind: "cdevents",
		body: `{"context":{"type":"com.example","id":"1","source":"x"},"subject":{"id":"y"}}`, status: 400},
	"unknown type": {kind: "svn", status: 400},
	"malformed OIDC token": {kind: "generic-oidc",
		header: headers("Authorization", "Bearer abc"), status: 401},
	"missing OIDC token":           {kind: "generic-oidc", status: 401},
	"Pub/Sub push without a token": {kind: "gcr", status: 401},
	"Pub/Sub push to a receiver without account": {kind: "gcr", header: headers("Authorization", "Bearer abc"),
		status: 401},
}

func TestVerify(t *testing.T) {
	for name, c := range verifyCases {
		t.Run(name, func(t *testing.T) {
			d, err := new(Checker).Verify(t.Context(), Trust{Type: c.kind, Token: secret, Events: c.events},
				Request{c.header, []byte(c.body)})
			if got := status(t, err); got != c.status || d.Event != c.event {
				t.Errorf("status %d, event %q, want %d, %q (%v)", got, d.Event, c.status, c.event, err)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
}

// status returns the status of a refusal; 0 for nil.
func status(t testing.TB, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var r *Refusal
	if !errors.As(err, &r) {
		t.Fatalf("not a refusal: %v", err)
	}
	return r.Status
}

func TestReceiverWithoutTokenRejectsRequests(t *testing.T) {
	for kind := range checks {
		if kind == "generic-oidc" {
			continue
		}
		h := headers("X-Hub-Signature", "sha256="+sign(sha256.New, "", push), "X-Signature", "sha256="+
			sign(sha256.New, "", push))
		_, err := new(Checker).Verify(t.Context(), Trust{Type: kind}, Request{h, []byte(push)})
		if status(t, err) != http.StatusUnauthorized {
			t.Errorf("%s: got %v, want status 401", kind, err)
		}
	}
}

func TestPath(t *testing.T) {
	got := Path("token", "name", "namespace")
	sum := sha256.Sum256([]byte("tokennamenamespace"))
	if got != "/hook/"+hex.EncodeToString(sum[:]) {
		t.Errorf("got path %s", got)
	}
}

func FuzzVerify(f *testing.F) {
	for kind := range checks {
		for _, body := range []string{push, dockerTag, quayPush, acrPush, nexusPush, published, "", "null", "[]"} {
			f.Add(kind, "X-Hub-Signature", "sha256="+sign(sha256.New, "other", body), []byte(body))
			f.Add(kind, "Authorization", "Bearer a.eyJpc3MiOiJ4In0.c", []byte(body))
			f.Add(kind, "Content-Type", "application/cloudevents+json", []byte(body))
		}
	}
	unsigned := map[string]bool{"generic": true, "dockerhub": true, "quay": true, "acr": true, "cdevents": true}
	f.Fuzz(func(t *testing.T, kind, header, value string, body []byte) {
		_, err := new(Checker).Verify(t.Context(), Trust{Type: kind, Token: secret},
			Request{headers(header, value), body})
		if status(t, err) == 0 && !unsigned[kind] && value != secret {
			t.Errorf("%s accepted an unsigned request: %s: %q", kind, header, value)
		}
	})
}
