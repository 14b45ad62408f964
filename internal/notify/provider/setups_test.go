package provider

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// setup is a valid configuration of a Provider type, and the response of a service that accepts an event.
type setup struct {
	kind     string
	address  string // HOST is replaced by host and port of the test server
	channel  string
	username string
	secret   map[string]string
	identity string // cloud and scope of the expected workload identity token
	status   int    // of the response; 0 is 200
	response string
	list     bool // git hosts: GET requests are answered with an empty list instead of an empty object
}

const (
	hookSecret    = "T00000000/B00000000/wEbHooKsEcReT"
	tokenSecret   = "t0kenSecret-0123456789"
	telegramLogin = "123456:t0kenSecret-0123456789"
)

// secretValues are the confidential parts of the setups. No error may contain them.
var secretValues = []string{
	"wEbHooKsEcReT", "T00000000", "t0kenSecret", "K3yS3cret",
	"Ym90QH", "bWU6dDBr", "OnQwa2Vu", // basic authentication of bot@…, me:t0k… and :t0ken…
}

func expectNoSecrets(t *testing.T, err error) {
	t.Helper()
	for _, s := range secretValues {
		if strings.Contains(err.Error(), s) {
			t.Errorf("the error contains the secret %s: %s", s, err)
		}
	}
}

func token(value string) map[string]string { return map[string]string{"token": value} }

var chats = map[string]setup{
	"slack-webhook": {kind: "slack", address: "http://HOST/services/" + hookSecret, channel: "general",
		username: "sluice", response: "ok"},
	"slack-mattermost": {kind: "slack", address: "http://HOST/hooks/" + hookSecret, channel: "general",
		username: "sluice", response: "ok"},
	"slack-api": {kind: "slack", address: "http://HOST/api/chat.postMessage", channel: "general",
		secret: token(tokenSecret), response: `{"ok":true,"channel":"C1","ts":"1.2"}`},
	"discord": {kind: "discord", address: "http://HOST/api/webhooks/1/" + hookSecret, username: "sluice",
		response: `{"id":"1"}`},
	"msteams": {kind: "msteams", address: "http://HOST/workflows/1/triggers/manual/paths/invoke" +
		"?api-version=2016-06-01&sig=wEbHooKsEcReT"},
	"rocket": {kind: "rocket", address: "http://HOST/hooks/" + hookSecret, channel: "#ops", username: "sluice",
		response: `{"success":true}`},
	"googlechat": {kind: "googlechat", response: `{"name":"spaces/S/messages/1"}`,
		address: "http://HOST/v1/spaces/S/messages?key=K3yS3cret&token=wEbHooKsEcReT"},
	"googlechat-thread": {kind: "googlechat", channel: "deploys", response: `{"name":"spaces/S/messages/1"}`,
		address: "http://HOST/v1/spaces/S/messages?key=K3yS3cret&token=wEbHooKsEcReT"},
	"webex": {kind: "webex", address: "http://HOST/v1/messages", channel: "Y2lzY29zcGFyazovL3VzL1JPT00v",
		secret: token(tokenSecret), response: `{"id":"1"}`},
	"telegram": {kind: "telegram", address: "http://HOST", channel: "-1001234", secret: token(telegramLogin),
		response: `{"ok":true,"result":{}}`},
	"telegram-topic": {kind: "telegram", address: "http://HOST", channel: "-1001234:42", secret: token(telegramLogin),
		response: `{"ok":true,"result":{}}`},
	"mastodon": {kind: "mastodon", address: "http://HOST", channel: "unlisted", secret: token(tokenSecret),
		response: `{"id":"1"}`},
	"lark": {kind: "lark", address: "http://HOST/open-apis/bot/v2/hook/" + hookSecret,
		response: `{"code":0,"msg":"success","data":{}}`},
	"lark-signed": {kind: "lark", address: "http://HOST/open-apis/bot/v2/hook/" + hookSecret,
		secret: token(tokenSecret), response: `{"StatusCode":0,"StatusMessage":"success"}`},
	"matrix": {kind: "matrix", address: "http://HOST", channel: "!room:matrix.example", secret: token(tokenSecret),
		response: `{"event_id":"$1"}`},
	"zulip": {kind: "zulip", address: "http://HOST", channel: "ops/deploys",
		secret:   map[string]string{"username": "bot@zulip.example", "password": tokenSecret},
		response: `{"result":"success","msg":"","id":1}`},
	"zoom": {kind: "zoom", address: "http://HOST/chat/webhooks/incomingwebhook/" + hookSecret,
		secret: token(tokenSecret), response: `{"status":"ok"}`},
}

// connectionString is the connection string of an event hub with the key tokenSecret.
const connectionString = "Endpoint=sb://shop-events.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=" +
	tokenSecret + ";EntityPath=gitops"

var services = map[string]setup{
	"generic":      {kind: "generic", address: "http://HOST/hook/wEbHooKsEcReT?a=b", status: 204},
	"generic-hmac": {kind: "generic-hmac", address: "http://HOST/hook", secret: token(tokenSecret)},
	"opsgenie": {kind: "opsgenie", address: "http://HOST/v2/alerts", secret: token(tokenSecret), status: 202,
		response: `{"result":"Request will be processed","took":0.1,"requestId":"1"}`},
	"pagerduty": {kind: "pagerduty", address: "http://HOST", channel: tokenSecret, status: 202,
		response: `{"status":"success","message":"Event processed","dedup_key":"1"}`},
	"pagerduty-url": {kind: "pagerduty", address: "http://HOST/integration/wEbHooKsEcReT/enqueue",
		channel: tokenSecret, status: 202},
	"incident.io": {kind: "incident.io", address: "http://HOST/v2/alert_events/http/01GW2G3V0S59R238FAHPDS1R66",
		secret: token(tokenSecret), status: 202, response: `{"status":"success"}`},
	"alertmanager": {kind: "alertmanager", address: "http://me:t0kenSecret@HOST/api/v2/alerts/", response: firing},
	"alertmanager-token": {kind: "alertmanager", address: "http://HOST", secret: token(tokenSecret),
		response: `[]`},
	"grafana": {kind: "grafana", address: "http://HOST/api/annotations",
		secret:   map[string]string{"token": tokenSecret, "username": "me", "password": "hunter22"},
		response: `{"message":"Annotation added","id":1}`},
	"grafana-basic": {kind: "grafana", address: "http://HOST/api/annotations",
		secret: map[string]string{"username": "me", "password": tokenSecret}},
	"sentry": {kind: "sentry", address: "http://wEbHooKsEcReT@HOST/below/123", channel: "staging",
		response: `{"id":"1"}`},
	"datadog": {kind: "datadog", address: "http://HOST", secret: token(tokenSecret), status: 202,
		response: `{"status":"ok"}`},
	"otel": {kind: "otel", address: "http://HOST", secret: token(tokenSecret)},
	"otel-path": {kind: "otel", address: "http://HOST/otlp/v1/traces",
		secret: map[string]string{"username": "me", "password": tokenSecret}},
	"googlepubsub": {kind: "googlepubsub", address: "shop-prod-123", channel: "gitops.events",
		identity: "gcp https://www.googleapis.com/auth/pubsub",
		secret:   map[string]string{"headers": "Team: shop\nenv: 'prod'\n"}, response: `{"messageIds":["1"]}`},
	"azureeventhub": {kind: "azureeventhub", secret: map[string]string{"address": connectionString}, status: 201},
	"azureeventhub-token": {kind: "azureeventhub", address: "gitops", channel: "shop-events",
		secret: token(tokenSecret), status: 201},
	"azureeventhub-own": {kind: "azureeventhub", address: "gitops", status: 201,
		channel: "shop-events.servicebus.chinacloudapi.cn", identity: "azure https://eventhubs.azure.net/.default"},
}

// firing is the response of Alertmanager to the query for the alerts of the object of success.
const firing = `[{"labels": {"alertname": "FluxGitRepositoryFailed", "severity": "error", "kind": "GitRepository",
		"name": "fleet", "namespace": "apps", "reason": "Failed"},
	"annotations": {"message": "no"}, "startsAt": "2026-11-21T11:00:00Z", "endsAt": "2026-11-21T12:05:00Z",
	"fingerprint": "1", "status": {"state": "active"}},
	{"labels": {"alertname": "Theirs", "severity": "error", "kind": "GitRepository", "name": "fleet",
		"namespace": "apps"}, "startsAt": "2026-11-21T11:00:00Z"},
	{"labels": {"alertname": "FluxGitRepositoryLater", "severity": "error"}, "startsAt": "2026-11-21T13:00:00Z"}]`

var gitHosts = map[string]setup{
	"github": {kind: "github", address: "https://github.com/acme/fleet", status: 201},
	"gitlab": {kind: "gitlab", address: "https://gitlab.com/acme/fleet", status: 201, list: true},
	"gitea":  {kind: "gitea", address: "https://gitea.example.com/acme/fleet", status: 201},
	"bitbucket": {kind: "bitbucket", address: "https://bitbucket.org/acme/fleet",
		status: 201},
	"bitbucketserver": {kind: "bitbucketserver", address: "https://git.example.com/scm/acme/fleet.git", status: 204},
	"azuredevops":     {kind: "azuredevops", address: "https://dev.azure.com/acme/p/_git/fleet", status: 201},
	"githubdispatch":  {kind: "githubdispatch", address: "https://github.com/acme/fleet", status: 204},
	"githubpullrequestcomment": {kind: "githubpullrequestcomment", address: "https://github.com/acme/fleet",
		status: 201, list: true},
	"gitlabmergerequestcomment": {kind: "gitlabmergerequestcomment", address: "https://gitlab.com/acme/fleet",
		status: 201, list: true},
	"giteapullrequestcomment": {kind: "giteapullrequestcomment", address: "https://gitea.example.com/acme/fleet",
		status: 201, list: true},
}

// webSetups returns the setups of chats and services.
func webSetups() map[string]setup {
	all := maps.Clone(chats)
	maps.Copy(all, services)
	return all
}

// httpSetups returns the setups of all types that use HTTP.
func httpSetups() map[string]setup {
	all := webSetups()
	for name, s := range gitHosts {
		s.secret = token(tokenSecret)
		all[name] = s
	}
	return all
}

func (s setup) isGitHost() bool { return gitHosts[s.kind].kind != "" }

// options returns the options of the setup. All requests go to the test server at the given URL.
func (s setup) options(server string) Options {
	_, host, _ := strings.Cut(server, "://")
	o := Options{
		Type: s.kind, Address: strings.Replace(s.address, "HOST", host, 1), Channel: s.channel, Username: s.username,
		Secret: map[string][]byte{}, Headers: http.Header{"X-Team": {"platform"}}, Transport: redirectTo(server),
		UID: "1", Clock: testingclock.NewFakePassiveClock(noon),
	}
	for k, v := range s.secret {
		o.Secret[k] = []byte(v + "\n")
	}
	if s.identity != "" {
		o.Identity = identity(s.identity)
	}
	return o
}

// identity returns tokens for one scope of a cloud.
type identity string

func (i identity) Token(_ context.Context, cloud, scope string) (string, error) {
	if cloud+" "+scope != string(i) {
		return "", fmt.Errorf("unexpected token request for %s %s", cloud, scope)
	}
	return tokenSecret, nil
}

// redirectTo is a transport that sends all requests to one server, with the original Host header.
type redirectTo string

func (server redirectTo) RoundTrip(r *http.Request) (*http.Response, error) {
	return redirected{server, http.DefaultTransport}.RoundTrip(r)
}

// redirected sends all requests to a server, by another transport.
type redirected struct {
	server redirectTo
	next   http.RoundTripper
}

func (to redirected) RoundTrip(r *http.Request) (*http.Response, error) {
	u, err := url.Parse(string(to.server))
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.Host, out.URL.Scheme, out.URL.Host = r.URL.Host, u.Scheme, u.Host
	resp, err := to.next.RoundTrip(out)
	if err == nil {
		resp.Request = r
	}
	return resp, err
}

// testTimeout bounds waits that are expected to end.
const testTimeout = 3 * time.Minute

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// failure returns the event of a failed Kustomization, with text that is markup in some chats.
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

// failureWithUID returns failure() with the fields that only some events have.
func failureWithUID() event.Event {
	e := failure()
	e.InvolvedObject.UID = "7d0cdc51-ddcf-4743-b223-83ca5c699632"
	e.ReportingInstance = "kustomize-controller-7c7b47f5f-8bhrp"
	return e
}

// success returns an event with the required fields only.
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

// progress returns an event that is neither a failure nor a success.
func progress() event.Event {
	e := success()
	e.Reason, e.Message = "Progressing", "Applying revision main@sha1:0123456789abcdef0123456789abcdef01234567"
	return e
}

func newProvider(t *testing.T, o Options) Provider {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// testContext returns a context that ends after testTimeout.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}
