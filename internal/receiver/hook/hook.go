// Package hook verifies webhook requests with the method of each sender, and returns their events. It does not access
// the cluster; its only state is a cache of issuer keys.
package hook

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// MaxBody is the maximum size of a request body in bytes. A push of a thousand commits has about one million.
const MaxBody = 10 << 20

// Path returns the webhook path of a receiver: the SHA-256 of token, name and namespace.
func Path(token, name, namespace string) string {
	sum := sha256.Sum256([]byte(token + name + namespace))
	return "/hook/" + hex.EncodeToString(sum[:])
}

// Trust is what a receiver requires of callers.
type Trust struct {
	Type      string
	Token     string     // the shared secret
	Events    []string   // accepted events; all if empty
	Email     string     // gcr: the service account that Pub/Sub pushes as
	Audience  string     // gcr: the audience that Pub/Sub pushes with
	Providers []Provider // generic-oidc: one must accept the token of the caller
}

// Request is a webhook request.
type Request struct {
	Header http.Header
	Body   []byte
}

// Delivery is a verified request.
type Delivery struct {
	Event  string         // name used by the sender; empty for types without events
	Claims map[string]any // generic-oidc: claims of the caller's token
}

// Refusal is the reason why a request is not accepted. It contains no part of the request and no secret.
type Refusal struct {
	Status int // HTTP status code
	Why    string
}

func (r *Refusal) Error() string { return r.Why }

func unauthorized(format string, args ...any) error {
	return &Refusal{http.StatusUnauthorized, fmt.Sprintf(format, args...)}
}

func malformed(format string, args ...any) error {
	return &Refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// ignored is for valid requests without effect. The status is 200, so that the sender does not report a failure.
func ignored(format string, args ...any) error {
	return &Refusal{http.StatusOK, fmt.Sprintf(format, args...)}
}

// check verifies a request of a type, except its event.
type check func(ctx context.Context, c *Checker, t Trust, r Request) (Delivery, error)

var checks = map[string]check{
	"generic":      noCheck, // the path is the secret
	"generic-hmac": signed("X-Signature"),
	"generic-oidc": oidcToken,
	"github":       github,
	"gitlab":       token("X-Gitlab-Token"),
	"bitbucket":    signed("X-Hub-Signature"),
	"harbor":       token("Authorization"),
	"dockerhub":    body(dockerHub),
	"quay":         body(quay),
	"gcr":          pubSub,
	"nexus":        nexus,
	"acr":          acr,
	"cdevents":     cdEvent,
}

// events are the headers with the name of the event.
var events = map[string][]string{
	"github":    {"X-GitHub-Event", "X-Gitea-Event"},
	"gitlab":    {"X-Gitlab-Event"},
	"bitbucket": {"X-Event-Key"},
}

// Verify verifies a request. The error is a [Refusal] with the status of the response. Replayed requests are accepted:
// handling a request twice does no harm.
func (c *Checker) Verify(ctx context.Context, t Trust, r Request) (Delivery, error) {
	verify, known := checks[t.Type]
	if !known {
		return Delivery{}, malformed("the receiver has an unknown type")
	}
	if t.Token == "" && t.Type != "generic-oidc" {
		return Delivery{}, unauthorized("the receiver has no token") // anyone could sign with an empty key
	}
	d, err := verify(ctx, c, t, r)
	if err != nil {
		return Delivery{}, err
	}
	for _, name := range events[t.Type] {
		d.Event = cmp.Or(d.Event, r.Header.Get(name))
	}
	if len(t.Events) == 0 || !hasEvents(t.Type) {
		return d, nil
	}
	if !slices.ContainsFunc(t.Events, func(e string) bool { return strings.EqualFold(e, d.Event) }) {
		return Delivery{}, ignored("the event is not in spec.events: nothing to do")
	}
	return d, nil
}

// hasEvents reports whether requests of a type contain an event name.
func hasEvents(kind string) bool { return events[kind] != nil || kind == "cdevents" }

func noCheck(context.Context, *Checker, Trust, Request) (Delivery, error) { return Delivery{}, nil }

// token compares a header with the shared secret, as GitLab
// (https://docs.gitlab.com/user/project/integrations/webhooks/) and Harbor do.
func token(header string) check {
	return func(_ context.Context, _ *Checker, t Trust, r Request) (Delivery, error) {
		got, want := sha256.Sum256([]byte(r.Header.Get(header))), sha256.Sum256([]byte(t.Token))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			return Delivery{}, unauthorized("the %s header is not the receiver's token", header)
		}
		return Delivery{}, nil
	}
}

// body only checks the format of the body: the sender does not sign requests, and the path is the secret.
func body(parse func(b []byte) error) check {
	return func(_ context.Context, _ *Checker, _ Trust, r Request) (Delivery, error) {
		return Delivery{}, parse(r.Body)
	}
}

// dockerHub checks the format https://docs.docker.com/docker-hub/repos/manage/webhooks/#example-webhook-payload.
// Senders that imitate it leave fields out, so none is required.
func dockerHub(b []byte) error {
	var p *struct {
		PushData   struct{ Tag string } `json:"push_data"`
		Repository struct {
			Name string `json:"repo_name"`
		}
	}
	return decode(b, &p, "a Docker Hub push", func() bool { return p != nil })
}

// quay checks the format https://docs.projectquay.io/use_quay.html#repository-push.
func quay(b []byte) error {
	var p struct {
		Repository string
		DockerURL  string    `json:"docker_url"`
		Tags       [1]string `json:"updated_tags"` // the others are not needed, and there may be millions
	}
	return decode(b, &p, "a Quay repository push", func() bool { return p.DockerURL != "" && p.Tags[0] != "" })
}

// acr checks the format
// https://learn.microsoft.com/en-us/azure/container-registry/container-registry-webhook-reference. A ping has
// no target.
func acr(_ context.Context, _ *Checker, _ Trust, r Request) (Delivery, error) {
	var p struct {
		Action string
		Target struct{ Repository, Tag string }
	}
	complete := func() bool { return p.Action == "ping" || p.Action != "" && p.Target.Repository != "" }
	if err := decode(r.Body, &p, "an Azure Container Registry event", complete); err != nil {
		return Delivery{}, err
	}
	if p.Action == "ping" {
		return Delivery{}, ignored("a ping: nothing to do")
	}
	return Delivery{}, nil
}

// decode decodes a body and checks that the required fields are set.
func decode(b []byte, into any, format string, complete func() bool) error {
	if err := json.Unmarshal(b, into); err != nil || !complete() {
		return malformed("the body is not %s", format)
	}
	return nil
}

// cdEvent checks a CloudEvent in binary or structured mode
// (https://github.com/cdevents/spec/blob/main/cloudevents-binding.md); the path is the secret.
func cdEvent(_ context.Context, _ *Checker, _ Trust, r Request) (Delivery, error) {
	data := r.Body
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/cloudevents+json") {
		var c struct {
			Type string
			Data json.RawMessage
			Raw  []byte `json:"data_base64"`
		}
		if err := decode(r.Body, &c, "a CloudEvent", func() bool { return c.Type != "" }); err != nil {
			return Delivery{}, err
		}
		if data = c.Data; len(c.Raw) > 0 {
			data = c.Raw
		}
	}
	var e struct {
		Context struct{ ID, Source, Type string }
		Subject struct{ ID string }
	}
	err := decode(data, &e, "a CDEvent", func() bool {
		return strings.HasPrefix(e.Context.Type, "dev.cdevents.") && e.Context.ID != "" && e.Context.Source != "" &&
			e.Subject.ID != ""
	})
	if err != nil {
		return Delivery{}, err
	}
	// Senders name an event without its version in the header, and with it in the body. The header counts.
	return Delivery{Event: cmp.Or(r.Header.Get("Ce-Type"), e.Context.Type)}, nil
}
