// Package hook checks webhooks: that a request is from the one who shares the secret, by the rules of each
// host, and of which event it tells. It knows no cluster, and keeps nothing but the keys of token issuers.
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

// MaxBody is how many bytes the body of a request may have: a push of a thousand commits has about one million.
const MaxBody = 10 << 20

// Path is where the requests of a receiver come in: the SHA-256 of the token, the name and the namespace.
func Path(token, name, namespace string) string {
	sum := sha256.Sum256([]byte(token + name + namespace))
	return "/hook/" + hex.EncodeToString(sum[:])
}

// Trust is what a receiver knows of those who may call it.
type Trust struct {
	Type      string
	Token     string     // the shared secret
	Events    []string   // that are acted on; all when empty
	Email     string     // gcr: the service account that Pub/Sub pushes as
	Audience  string     // gcr: the audience that Pub/Sub pushes with
	Providers []Provider // generic-oidc: of whom one must vouch for the caller
}

// Request is what came in.
type Request struct {
	Header http.Header
	Body   []byte
}

// Delivery is a request that may be acted on.
type Delivery struct {
	Event  string         // as the host names it; empty for types that have none
	Claims map[string]any // generic-oidc: those of the caller's token
}

// Refusal is why a request is not acted on. It holds nothing of the request, and no secret.
type Refusal struct {
	Status int // of HTTP
	Why    string
}

func (r *Refusal) Error() string { return r.Why }

func unauthorized(format string, args ...any) error {
	return &Refusal{http.StatusUnauthorized, fmt.Sprintf(format, args...)}
}

func malformed(format string, args ...any) error {
	return &Refusal{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// ignored is for what is in order and concerns nobody: the host must not take it for a failure.
func ignored(format string, args ...any) error {
	return &Refusal{http.StatusOK, fmt.Sprintf(format, args...)}
}

// check is what a type asks of a request beside its events.
type check func(ctx context.Context, c *Checker, t Trust, r Request) (Delivery, error)

var checks = map[string]check{
	"generic":      nothing, // the path is the secret
	"generic-hmac": signed("X-Signature"),
	"generic-oidc": vouched,
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

// events are the headers by which hosts name the event.
var events = map[string][]string{
	"github":    {"X-GitHub-Event", "X-Gitea-Event"},
	"gitlab":    {"X-Gitlab-Event"},
	"bitbucket": {"X-Event-Key"},
}

// Verify checks a request. The error is a [Refusal], with the status to answer with. A request that was sent
// before is as good as the first time: to act on it twice does no harm.
func (c *Checker) Verify(ctx context.Context, t Trust, r Request) (Delivery, error) {
	verify, known := checks[t.Type]
	if !known {
		return Delivery{}, malformed("the receiver is of an unknown type")
	}
	if t.Token == "" && t.Type != "generic-oidc" {
		return Delivery{}, unauthorized("the receiver has no token") // an empty key would sign anything
	}
	d, err := verify(ctx, c, t, r)
	if err != nil {
		return Delivery{}, err
	}
	for _, name := range events[t.Type] {
		d.Event = cmp.Or(d.Event, r.Header.Get(name))
	}
	if len(t.Events) == 0 || !filters(t.Type) {
		return d, nil
	}
	if !slices.ContainsFunc(t.Events, func(e string) bool { return strings.EqualFold(e, d.Event) }) {
		return Delivery{}, ignored("the event is none of spec.events: nothing to do")
	}
	return d, nil
}

// filters tells whether requests of a type tell of which event they are.
func filters(kind string) bool { return events[kind] != nil || kind == "cdevents" }

func nothing(context.Context, *Checker, Trust, Request) (Delivery, error) { return Delivery{}, nil }

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

// body checks no more than that the body is what the host sends: such hosts sign nothing, and the path is the secret.
func body(read func(b []byte) error) check {
	return func(_ context.Context, _ *Checker, _ Trust, r Request) (Delivery, error) {
		return Delivery{}, read(r.Body)
	}
}

// dockerHub reads https://docs.docker.com/docker-hub/repos/manage/webhooks/#example-webhook-payload.
func dockerHub(b []byte) error {
	var p struct {
		PushData   struct{ Tag string } `json:"push_data"`
		Repository struct {
			Name string `json:"repo_name"`
		}
	}
	return has(b, &p, "a Docker Hub push", func() bool { return p.Repository.Name != "" && p.PushData.Tag != "" })
}

// quay reads https://docs.projectquay.io/use_quay.html#repository-push.
func quay(b []byte) error {
	var p struct {
		Repository string
		DockerURL  string   `json:"docker_url"`
		Tags       []string `json:"updated_tags"`
	}
	return has(b, &p, "a Quay repository push", func() bool { return p.DockerURL != "" && len(p.Tags) > 0 })
}

// acr reads https://learn.microsoft.com/en-us/azure/container-registry/container-registry-webhook-reference.
// A ping has no target.
func acr(_ context.Context, _ *Checker, _ Trust, r Request) (Delivery, error) {
	var p struct {
		Action string
		Target struct{ Repository, Tag string }
	}
	complete := func() bool { return p.Action == "ping" || p.Action != "" && p.Target.Repository != "" }
	if err := has(r.Body, &p, "an Azure Container Registry event", complete); err != nil {
		return Delivery{}, err
	}
	if p.Action == "ping" {
		return Delivery{}, ignored("a ping: nothing to do")
	}
	return Delivery{}, nil
}

func has(b []byte, into any, what string, complete func() bool) error {
	if err := json.Unmarshal(b, into); err != nil || !complete() {
		return malformed("the body is not %s", what)
	}
	return nil
}

// cdEvent reads a CloudEvent in the binary or in the structured mode
// (https://github.com/cdevents/spec/blob/main/cloudevents-binding.md); the path is the secret.
func cdEvent(_ context.Context, _ *Checker, _ Trust, r Request) (Delivery, error) {
	data := r.Body
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/cloudevents+json") {
		var c struct {
			Type string
			Data json.RawMessage
			Raw  []byte `json:"data_base64"`
		}
		if err := has(r.Body, &c, "a CloudEvent", func() bool { return c.Type != "" }); err != nil {
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
	err := has(data, &e, "a CDEvent", func() bool {
		return strings.HasPrefix(e.Context.Type, "dev.cdevents.") && e.Context.ID != "" && e.Context.Source != "" &&
			e.Subject.ID != ""
	})
	if err != nil {
		return Delivery{}, err
	}
	if named := r.Header.Get("Ce-Type"); named != "" && named != e.Context.Type {
		return Delivery{}, malformed("the Ce-Type header names another type than the body")
	}
	return Delivery{Event: e.Context.Type}, nil
}
