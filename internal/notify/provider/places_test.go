package provider

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// place is a type that is no chat, as it is set up, and what its host answers to what it takes.
type place struct {
	kind     string
	address  string // HOST stands for that of the test
	channel  string
	secret   map[string]string
	identity string // the scope that is asked for
	answer   string
	status   int
}

// connectionString is that of a hub whose key is tokenSecret.
const connectionString = "Endpoint=sb://shop-events.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey=" +
	tokenSecret + ";EntityPath=gitops"

var places = map[string]place{
	"generic": {kind: "generic", address: "HOST/hook/wEbHooKsEcReT?a=b", status: 204},
	"generic-hmac": {kind: "generic-hmac", address: "HOST/hook",
		secret: map[string]string{"token": tokenSecret}},
	"opsgenie": {kind: "opsgenie", address: "HOST/v2/alerts",
		secret: map[string]string{"token": tokenSecret}, status: 202,
		answer: `{"result":"Request will be processed","took":0.1,"requestId":"1"}`},
	"pagerduty": {kind: "pagerduty", address: "HOST", channel: tokenSecret, status: 202,
		answer: `{"status":"success","message":"Event processed","dedup_key":"1"}`},
	"pagerduty-url": {kind: "pagerduty", address: "HOST/integration/wEbHooKsEcReT/enqueue", channel: tokenSecret,
		status: 202},
	"incident.io": {kind: "incident.io", address: "HOST/v2/alert_events/http/01GW2G3V0S59R238FAHPDS1R66",
		secret: map[string]string{"token": tokenSecret}, status: 202, answer: `{"status":"success"}`},
	"alertmanager": {kind: "alertmanager", address: "http://me:t0kenSecret@HOST/api/v2/alerts/", answer: firing},
	"alertmanager-token": {kind: "alertmanager", address: "HOST", secret: map[string]string{"token": tokenSecret},
		answer: `[]`},
	"grafana": {kind: "grafana", address: "HOST/api/annotations",
		secret: map[string]string{"token": tokenSecret, "username": "me", "password": "hunter22"},
		answer: `{"message":"Annotation added","id":1}`},
	"grafana-basic": {kind: "grafana", address: "HOST/api/annotations",
		secret: map[string]string{"username": "me", "password": tokenSecret}},
	"sentry": {kind: "sentry", address: "http://wEbHooKsEcReT@HOST/below/123", channel: "staging",
		answer: `{"id":"1"}`},
	"datadog": {kind: "datadog", address: "HOST", secret: map[string]string{"token": tokenSecret},
		status: 202, answer: `{"status":"ok"}`},
	"otel": {kind: "otel", address: "HOST", secret: map[string]string{"token": tokenSecret}},
	"otel-path": {kind: "otel", address: "HOST/otlp/v1/traces",
		secret: map[string]string{"username": "me", "password": tokenSecret}},
	"googlepubsub": {kind: "googlepubsub", address: "shop-prod-123", channel: "gitops.events",
		identity: "gcp https://www.googleapis.com/auth/pubsub",
		secret:   map[string]string{"headers": "Team: shop\nenv: 'prod'\n"}, answer: `{"messageIds":["1"]}`},
	"azureeventhub": {kind: "azureeventhub", secret: map[string]string{"address": connectionString}, status: 201},
	"azureeventhub-token": {kind: "azureeventhub", address: "gitops", channel: "shop-events",
		secret: map[string]string{"token": tokenSecret}, status: 201},
	"azureeventhub-own": {kind: "azureeventhub", address: "gitops",
		channel: "shop-events.servicebus.chinacloudapi.cn", identity: "azure https://eventhubs.azure.net/.default",
		status: 201},
}

// firing is what Alertmanager knows of the object of success.
const firing = `[{"labels":{"alertname":"FluxGitRepositoryFailed","severity":"error","kind":"GitRepository","name":"fleet","namespace":"apps","reason":"Failed"},
	"annotations":{"message":"no"},"startsAt":"2026-11-21T11:00:00Z","endsAt":"2026-11-21T12:05:00Z","fingerprint":"1","status":{"state":"active"}},
	{"labels":{"alertname":"Theirs","severity":"error","kind":"GitRepository","name":"fleet","namespace":"apps"},"startsAt":"2026-11-21T11:00:00Z"},
	{"labels":{"alertname":"FluxGitRepositoryLater","severity":"error"},"startsAt":"2026-11-21T13:00:00Z"}]`

// options are those of the place at a host of the test, where requests go whatever host they are for.
func (p place) options(host string) Options {
	o := Options{
		Type: p.kind, Channel: p.channel, Secret: map[string][]byte{}, Transport: by(host), UID: "1",
		Clock:   testingclock.NewFakePassiveClock(noon),
		Headers: http.Header{"X-Team": {"platform"}},
	}
	o.Address = strings.Replace(p.address, "://me:t0kenSecret@HOST", "://me:t0kenSecret@"+
		strings.TrimPrefix(host, "http://"), 1)
	o.Address = strings.Replace(o.Address, "@HOST", "@"+strings.TrimPrefix(host, "http://"), 1)
	o.Address = strings.Replace(o.Address, "HOST", host, 1)
	for k, v := range p.secret {
		o.Secret[k] = []byte(v + "\n")
	}
	if p.identity != "" {
		o.Identity = identity(p.identity)
	}
	return o
}

// identity gives a token for one scope of a cloud.
type identity string

func (i identity) Token(_ context.Context, cloud, scope string) (string, error) {
	if cloud+" "+scope != string(i) {
		return "", fmt.Errorf("asked for %s %s", cloud, scope)
	}
	return tokenSecret, nil
}

// by carries requests out at one host of the test, which sees the host that they are for.
type by string

func (host by) RoundTrip(r *http.Request) (*http.Response, error) {
	u, err := url.Parse(string(host))
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.Host, out.URL.Scheme, out.URL.Host = r.URL.Host, u.Scheme, u.Host
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err == nil {
		resp.Request = r
	}
	return resp, err
}

// asJSON makes the body of a request JSON that says the same.
func asJSON(t *testing.T, r *http.Request) {
	t.Helper()
	content, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	switch r.Header.Get("Content-Type") {
	case "application/x-sentry-envelope":
		lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
		content = append(append([]byte("["), bytes.Join(lines, []byte(","))...), ']')
		var item struct{ Length int }
		if err := json.Unmarshal(lines[1], &item); err != nil || len(lines) != 3 || item.Length != len(lines[2]) {
			t.Errorf("no envelope: %d lines, an item of %d bytes (%v)", len(lines), item.Length, err)
		}
	case "application/x-protobuf":
		var request collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(content, &request); err != nil {
			t.Error(err)
		}
		if content, err = protojson.Marshal(&request); err != nil {
			t.Error(err)
		}
	}
	if len(content) == 0 {
		content = []byte("null")
	}
	r.Body = io.NopCloser(bytes.NewReader(content))
}

// TestPlacesAreToldAsTheyDocument compares method, host, path, headers and body with what was checked against
// the documentation of each host.
func TestPlacesAreToldAsTheyDocument(t *testing.T) {
	for name, p := range places {
		for told, e := range map[string]event.Event{"failure": failureOf("Kustomization"), "success": success(),
			"progress": progress()} {
			t.Run(name+"-"+told, func(t *testing.T) {
				var mu sync.Mutex
				got := ""
				var host string
				host = serve(t, func(w http.ResponseWriter, r *http.Request) {
					mu.Lock()
					defer mu.Unlock()
					asJSON(t, r)
					if r.Host != strings.TrimPrefix(host, "http://") {
						got += "// at " + r.Host + "\n"
					}
					got += recorded(t, r)
					w.WriteHeader(max(p.status, http.StatusOK))
					_, _ = io.WriteString(w, p.answer)
				})
				if err := provider(t, p.options(host)).Send(within(t), e); err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				defer mu.Unlock()
				compare(t, name+"-"+told+".http", got)
			})
		}
	}
}

func failureOf(kind string) event.Event {
	e := failure()
	e.InvolvedObject.Kind, e.InvolvedObject.UID, e.ReportingInstance = kind, "7d0cdc51-ddcf-4743-b223-83ca5c699632",
		"kustomize-controller-7c7b47f5f-8bhrp"
	return e
}

// progress says neither that an object fails nor that it is well.
func progress() event.Event {
	e := success()
	e.Reason, e.Message = "Progressing", "Applying revision main@sha1:0123456789abcdef0123456789abcdef01234567"
	return e
}

// serviceAccount is the key file of one, which is made for the test.
func serviceAccount(t *testing.T) []byte {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "shop-prod-123", "private_key_id": "t0kenSecret",
		"client_email": "push@shop-prod-123.iam.gserviceaccount.com",
		"private_key":  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"token_uri":    "https://oauth2.googleapis.com/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// everywhere is every type that speaks HTTP, as it is set up at a host.
func everywhere() map[string]func(host string) Options {
	all := map[string]func(host string) Options{}
	for name, c := range chats {
		all[name] = c.options
	}
	for name, p := range places {
		all[name] = p.options
	}
	return all
}
