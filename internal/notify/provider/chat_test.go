package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

var update = flag.Bool("update", false, "write testdata/*.http anew")

const patience = 3 * time.Minute

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// failure is an event as a Kustomization tells it, with what would be markup somewhere.
func failure() event.Event {
	return event.Event{
		InvolvedObject: corev1.ObjectReference{APIVersion: "kustomize.toolkit.fluxcd.io/v1", Kind: "Kustomization",
			Namespace: "prod", Name: "shop"},
		Severity:  event.Error,
		Timestamp: metav1.NewTime(noon),
		Reason:    "HealthCheckFailed",
		Message: "Deployment/prod/shop is not healthy: 2 of 3 replicas are <unavailable> & waiting\n" +
			"container *web*: image my_registry/web:1.2 [not found](https://evil.example) @everyone <!channel> `x`. " +
			"Check that the image exists",
		Metadata: map[string]string{
			event.Revision:      "main@sha1:0123456789abcdef0123456789abcdef01234567",
			event.Summary:       "production, eu-west-1",
			event.CommitAuthor:  "Ada <ada@example.com>",
			event.CommitMessage: "Roll out web 1.2",
			event.Token:         "f3a1",
			event.OriginURL:     "https://me:hunter22@github.com/acme/fleet.git",
			"cluster":           "eu-1",
		},
		ReportingController: "kustomize-controller",
	}
}

// success is an event with no more than there has to be.
func success() event.Event {
	return event.Event{
		InvolvedObject: corev1.ObjectReference{APIVersion: "source.toolkit.fluxcd.io/v1", Kind: "GitRepository",
			Namespace: "apps", Name: "fleet"},
		Severity:            event.Info,
		Timestamp:           metav1.NewTime(noon),
		Reason:              "NewArtifact",
		Message:             "Stored artifact for revision main@sha1:0123456789abcdef0123456789abcdef01234567",
		ReportingController: "source-controller",
	}
}

// chat is a type of a chat as it is set up, and what its host answers to a message that it takes.
type chat struct {
	kind             string
	path             string // of the address at the host
	channel          string
	secret           map[string]string
	username, answer string
}

const (
	hookSecret  = "T00000000/B00000000/wEbHooKsEcReT"
	tokenSecret = "t0kenSecret-0123456789"
)

var chats = map[string]chat{
	"slack-webhook": {kind: "slack", path: "/services/" + hookSecret, channel: "general", username: "sluice",
		answer: "ok"},
	"slack-mattermost": {kind: "slack", path: "/hooks/" + hookSecret, channel: "general", username: "sluice",
		answer: "ok"},
	"slack-api": {kind: "slack", path: "/api/chat.postMessage", channel: "general",
		secret: map[string]string{"token": tokenSecret},
		answer: `{"ok":true,"channel":"C1","ts":"1.2"}`},
	"discord": {kind: "discord", path: "/api/webhooks/1/" + hookSecret, username: "sluice",
		answer: `{"id":"1"}`},
	"msteams": {kind: "msteams", path: "/workflows/1/triggers/manual/paths/invoke?api-version=2016-06-01&sig=wEbHooKsEcReT"},
	"rocket": {kind: "rocket", path: "/hooks/" + hookSecret, channel: "#ops", username: "sluice",
		answer: `{"success":true}`},
	"googlechat": {kind: "googlechat", path: "/v1/spaces/S/messages?key=K3yS3cret&token=wEbHooKsEcReT",
		answer: `{"name":"spaces/S/messages/1"}`},
	"googlechat-thread": {kind: "googlechat", path: "/v1/spaces/S/messages?key=K3yS3cret&token=wEbHooKsEcReT",
		channel: "deploys", answer: `{"name":"spaces/S/messages/1"}`},
	"webex": {kind: "webex", path: "/v1/messages", channel: "Y2lzY29zcGFyazovL3VzL1JPT00v",
		secret: map[string]string{"token": tokenSecret}, answer: `{"id":"1"}`},
	"telegram": {kind: "telegram", channel: "-1001234",
		secret: map[string]string{"token": "123456:t0kenSecret-0123456789"}, answer: `{"ok":true,"result":{}}`},
	"telegram-topic": {kind: "telegram", channel: "-1001234:42",
		secret: map[string]string{"token": "123456:t0kenSecret-0123456789"}, answer: `{"ok":true,"result":{}}`},
	"lark": {kind: "lark", path: "/open-apis/bot/v2/hook/" + hookSecret,
		answer: `{"code":0,"msg":"success","data":{}}`},
	"lark-signed": {kind: "lark", path: "/open-apis/bot/v2/hook/" + hookSecret,
		secret: map[string]string{"token": tokenSecret}, answer: `{"StatusCode":0,"StatusMessage":"success"}`},
	"matrix": {kind: "matrix", channel: "!room:matrix.example",
		secret: map[string]string{"token": tokenSecret}, answer: `{"event_id":"$1"}`},
	"zulip": {kind: "zulip", channel: "ops/deploys",
		secret: map[string]string{"username": "bot@zulip.example", "password": tokenSecret},
		answer: `{"result":"success","msg":"","id":1}`},
	"zoom": {kind: "zoom", path: "/chat/webhooks/incomingwebhook/" + hookSecret,
		secret: map[string]string{"token": tokenSecret}, answer: `{"status":"ok"}`},
}

func (c chat) options(host string) Options {
	o := Options{Type: c.kind, Address: host + c.path, Channel: c.channel, Username: c.username,
		Secret:  map[string][]byte{},
		Headers: http.Header{"X-Team": {"platform"}}, Transport: http.DefaultTransport, UID: "1",
		Clock: testingclock.NewFakePassiveClock(noon)}
	for k, v := range c.secret {
		o.Secret[k] = []byte(v + "\n")
	}
	return o
}

func provider(t *testing.T, o Options) Provider {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// recorded writes a request as a person reads it: JSON and forms are laid out.
func recorded(t *testing.T, r *http.Request) string {
	t.Helper()
	content, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s\n", r.Method, r.RequestURI)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		if name != "Accept-Encoding" && name != "Content-Length" {
			fmt.Fprintf(&out, "%s: %s\n", name, strings.Join(r.Header[name], ", "))
		}
	}
	out.WriteString("\n")
	if r.Header.Get("Content-Type") == "application/x-www-form-urlencoded" {
		form, err := url.ParseQuery(string(content))
		if err != nil {
			t.Error(err)
		}
		for _, k := range slices.Sorted(maps.Keys(form)) {
			fmt.Fprintf(&out, "%s=%s\n", k, strings.Join(form[k], " | "))
		}
		return out.String()
	}
	var laidOut bytes.Buffer
	if err := json.Indent(&laidOut, bytes.TrimSpace(content), "", "  "); err != nil {
		t.Errorf("the body is no JSON: %v", err)
	}
	return out.String() + laidOut.String() + "\n"
}

// TestRequestsAreAsTheHostsDocumentThem compares method, path, headers and body with what was checked against
// the documentation of each host.
func TestRequestsAreAsTheHostsDocumentThem(t *testing.T) {
	for name, c := range chats {
		for told, e := range map[string]event.Event{"failure": failure(), "success": success()} {
			t.Run(name+"-"+told, func(t *testing.T) {
				var got string
				host := serve(t, func(w http.ResponseWriter, r *http.Request) {
					got = recorded(t, r)
					_, _ = io.WriteString(w, c.answer)
				})
				if err := provider(t, c.options(host)).Send(within(t), e); err != nil {
					t.Fatal(err)
				}
				compare(t, name+"-"+told+".http", got)
			})
		}
	}
}

// TestConnectorsOfTeamsGetTheOldCard goes by the name of the host, which no local server has.
func TestConnectorsOfTeamsGetTheOldCard(t *testing.T) {
	var got string
	host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = recorded(t, r)
		_, _ = io.WriteString(w, "1")
	})
	o := chat{kind: "msteams"}.options("http://acme.webhook.office.com/webhookb2/" + hookSecret)
	o.Transport = to(host)
	if err := provider(t, o).Send(within(t), failure()); err != nil {
		t.Fatal(err)
	}
	compare(t, "msteams-connector-failure.http", got)
}

// to carries every request out at one host.
type to string

func (host to) RoundTrip(r *http.Request) (*http.Response, error) {
	u, err := url.Parse(string(host))
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = u.Host, ""
	return http.DefaultTransport.RoundTrip(r)
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the request is\n%s\nwant\n%s", got, want)
	}
}
