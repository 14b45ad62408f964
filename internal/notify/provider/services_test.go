package provider

import (
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
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const externalAccount = `{"type":"external_account","credential_source":{"executable":{"command":"t0kenSecret"}}}`

func changedNATS(change func(*Options)) Options {
	o := Options{Type: "nats", Address: "nats://127.0.0.1", Channel: "gitops", Secret: map[string][]byte{}, Dial: dial}
	change(&o)
	return o
}

type invalidOptions struct {
	options Options
	reason  string
	want    string // in the error
}

func withoutToken(o *Options) { delete(o.Secret, "token") }

func withoutAddress(o *Options) { o.Address = "" }

// withAddress sets the address, also instead of the one in the Secret.
func withAddress(s string) func(*Options) {
	return func(o *Options) { o.Address = s; delete(o.Secret, "address") }
}

// withKey sets a key of the Secret, instead of workload identity.
func withKey(name, value string) func(*Options) {
	return func(o *Options) { o.Identity = nil; o.Secret[name] = []byte(value) }
}

// invalidServiceOptions are invalid options of services and the expected faults.
var invalidServiceOptions = map[string]invalidOptions{
	"generic without address": {reason: ValidationFailed, want: "no address. Set the key address of the Secret " +
		"in spec.secretRef, or spec.address if it is not confidential",
		options: changed(services["generic"], withoutAddress)},
	"generic-hmac without token": {reason: TokenNotFound, want: "for the signature. Store it in the key token of " +
		"the Secret in spec.secretRef",
		options: changed(services["generic-hmac"], withoutToken)},
	"opsgenie without token": {reason: TokenNotFound, want: "Store an Opsgenie API key in the key token of the " +
		"Secret in spec.secretRef",
		options: changed(services["opsgenie"], withoutToken)},
	"opsgenie, token with line break": {reason: ValidationFailed, want: "line break or another invalid " +
		"character. Correct the key token of the Secret",
		options: changed(services["opsgenie"], withKey("token", "t0kenSecret\nX-Evil: 1"))},
	"pagerduty without key": {reason: ValidationFailed, want: "Set spec.channel to the integration key of the " +
		"service in PagerDuty",
		options: changed(services["pagerduty"], func(o *Options) { o.Channel = "" })},
	"incident.io without token": {reason: TokenNotFound, want: "alert source",
		options: changed(services["incident.io"], withoutToken)},
	"incident.io without address": {reason: ValidationFailed, want: "no address",
		options: changed(services["incident.io"], withoutAddress)},
	"alertmanager without address": {reason: ValidationFailed, want: "no address",
		options: changed(services["alertmanager"], withoutAddress)},
	"grafana without address": {reason: ValidationFailed, want: "no address",
		options: changed(services["grafana"], withoutAddress)},
	"datadog without token": {reason: TokenNotFound, want: "Store a Datadog API key in the key token of the " +
		"Secret in spec.secretRef",
		options: changed(services["datadog"], withoutToken)},
	"otel without address": {reason: ValidationFailed, want: "no address",
		options: changed(services["otel"], withoutAddress)},
	"sentry, DSN without key": {reason: ValidationFailed, want: "not a Sentry DSN. Copy the DSN, " +
		"https://KEY@HOST/PROJECT, from the Client Keys of the project to the key address of the Secret",
		options: changed(services["sentry"], withAddress("https://host/t0kenSecret"))},
	"sentry, DSN without project": {reason: ValidationFailed, want: "not a Sentry DSN",
		options: changed(services["sentry"], withAddress("https://t0kenSecret@host/"))},
	"sentry, key with line break": {reason: ValidationFailed, want: "not a Sentry DSN",
		options: changed(services["sentry"], withAddress("https://t0kenSecret%0d%0aX-Evil@host/1"))},
	"pubsub, invalid project": {reason: ValidationFailed, want: "project. Set spec.address to a project ID, such " +
		"as shop-prod-123",
		options: changed(services["googlepubsub"], withAddress("projects/t0kenSecret"))},
	"pubsub, path as project": {reason: ValidationFailed, want: "project",
		options: changed(services["googlepubsub"], withAddress("../../t0kenSecret"))},
	"pubsub, invalid topic": {reason: ValidationFailed, want: "topic. Set spec.channel to the ID of the topic, " +
		"without the path of the project",
		options: changed(services["googlepubsub"], func(o *Options) { o.Channel = "a/../b" })},
	"pubsub without credentials": {reason: TokenNotFound, want: "Store the JSON key of a service account in the " +
		"key token of the Secret in spec.secretRef, or set spec.serviceAccountName",
		options: changed(services["googlepubsub"], func(o *Options) { o.Identity = nil })},
	"pubsub, malformed credentials": {reason: ValidationFailed, want: "does not contain Google Cloud " +
		"credentials. Store the JSON key of a service account in it",
		options: changed(services["googlepubsub"], withKey("token", "t0kenSecret"))},
	"pubsub, large key": {reason: ValidationFailed, want: "the file of the private key has 40000 bytes",
		options: changed(services["googlepubsub"], withKey("token", `{"type": "service_account", "private_key": "`+
			strings.Repeat("a", 40000)+`"}`))},
	"pubsub, external credentials": {reason: ValidationFailed, want: "external_account are not allowed in a " +
		"Secret. Use workload identity with spec.serviceAccountName",
		options: changed(services["googlepubsub"], withKey("token", externalAccount))},
	"pubsub, attributes are a list": {reason: ValidationFailed, want: "key headers of the Secret is not a YAML " +
		"map of strings. Write one line NAME: VALUE for each attribute, at most ",
		options: changed(services["googlepubsub"], withKey("headers", "- t0kenSecret"))},
	"eventhub, invalid namespace": {reason: ValidationFailed, want: "namespace. Set spec.channel to the name of " +
		"the namespace, and spec.address to the name of the event hub",
		options: changed(services["azureeventhub-token"], func(o *Options) { o.Channel = "evil.example" })},
	"eventhub, namespace with a path": {reason: ValidationFailed, want: "namespace",
		options: changed(services["azureeventhub-token"],
			func(o *Options) { o.Channel = "evil.example/.servicebus.windows.net" })},
	"eventhub, path as hub": {reason: ValidationFailed, want: "name of the event hub is not valid. Use letters, " +
		"digits, dots, dashes and underscores",
		options: changed(services["azureeventhub-token"], withAddress("../t0kenSecret"))},
	"eventhub without credentials": {reason: TokenNotFound, want: "no token",
		options: changed(services["azureeventhub-own"], func(o *Options) { o.Identity = nil })},
	"eventhub, connection without key": {reason: ValidationFailed, want: "connection string. Use the format " +
		"Endpoint=sb://NAMESPACE.servicebus.windows.net/;SharedAccessKeyName=NAME;SharedAccessKey=KEY;EntityPath=HUB",
		options: changed(services["azureeventhub"], withAddress("Endpoint=sb://host;SharedAccessKeyName=t0kenSecret"))},
	"eventhub, connection with HTTPS endpoint": {reason: ValidationFailed, want: "connection string",
		options: changed(services["azureeventhub"],
			withAddress("Endpoint=https://host;SharedAccessKeyName=a;SharedAccessKey=t0kenSecret"))},
	"eventhub, connection without hub": {reason: ValidationFailed, want: "Add ;EntityPath=NAME to it, or set " +
		"spec.channel to the name",
		options: changed(services["azureeventhub"],
			withAddress("Endpoint=sb://host;SharedAccessKeyName=a;SharedAccessKey=t0kenSecret"))},
	"nats without dialer": {reason: ValidationFailed, want: "not allowed",
		options: changedNATS(func(o *Options) { o.Dial = nil })},
	"nats without address": {reason: ValidationFailed, want: "NATS URL. Use nats://HOST:4222 or tls://HOST:4222",
		options: changedNATS(withoutAddress)},
	"nats, HTTPS address": {reason: ValidationFailed, want: "NATS URL",
		options: changedNATS(withAddress("https://t0kenSecret@host"))},
	"nats, subject with wildcard": {reason: ValidationFailed, want: "subject. Set spec.channel to a subject " +
		"without spaces and wildcards, such as gitops.events",
		options: changedNATS(func(o *Options) { o.Channel = "gitops.>" })},
	"nats, subject with line break": {reason: ValidationFailed, want: "subject",
		options: changedNATS(func(o *Options) { o.Channel = "a\r\nPUB b 1" })},
	"nats, malformed creds": {reason: ValidationFailed, want: "credentials. Store the complete output of nsc " +
		"generate creds in it",
		options: changedNATS(withKey("creds", "t0kenSecret"))},
	"nats, malformed nkey": {reason: ValidationFailed, want: "seed. A seed starts with SU; create one with nk " +
		"-gen user",
		options: changedNATS(withKey("nkey", "SUt0kenSecret"))},
	"nats without password": {reason: TokenNotFound, want: "no password. Set the key password of the Secret in " +
		"spec.secretRef",
		options: changedNATS(withKey("username", "me"))},
	"nats, malformed CA": {reason: meta.AuthenticationFailedReason, want: "ca.crt' of the Secret contains no " +
		"certificate. Set it to the certificate of the authority in PEM",
		options: changedNATS(func(o *Options) { o.TLS.CA = []byte("t0kenSecret") })},
}

// TestInvalidServiceOptions checks that New returns faults with a hint and without credentials.
func TestInvalidServiceOptions(t *testing.T) {
	for name, c := range invalidServiceOptions {
		_, err := New(c.options)
		f := fault.As(err)
		hasHint := f != nil && f.Hint != "" || c.options.Type == "nats" && c.options.Dial == nil
		if f == nil || f.Reason != c.reason || !strings.Contains(f.Error(), c.want) || !hasHint {
			t.Errorf("%s: got %v, want a fault with reason %s, text %q and a hint", name, err, c.reason, c.want)
			continue
		}
		expectNoSecrets(t, err)
	}
}

// TestDeduplicationIDs checks that attempts of one event have the same ID. Some services have one ID for all events
// of an object, others one for each event.
func TestDeduplicationIDs(t *testing.T) {
	other := failure()
	other.Message = "another message"
	for name, isPerObject := range map[string]bool{"opsgenie": true, "pagerduty": true, "incident.io": true,
		"datadog": true,
		"sentry":  false, "otel": false} {
		var ids []string
		server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			decodeBody(t, r)
			content, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			for _, key := range []string{"alias", "dedup_key", "deduplication_key", "aggregation_key", "event_id",
				"spanId"} {
				if _, after, found := strings.Cut(strings.ReplaceAll(string(content), " ", ""), `"`+key+`":"`); found {
					value, _, _ := strings.Cut(after, `"`)
					ids = append(ids, value)
					return
				}
			}
			t.Errorf("%s: no ID in %s", name, content)
		})
		for _, e := range []event.Event{failure(), failure(), other} {
			if err := newProvider(t, services[name].options(server)).Send(testContext(t), e); err != nil {
				t.Fatal(err)
			}
		}
		if ids[0] != ids[1] || (ids[1] == ids[2]) != isPerObject {
			t.Errorf("%s: got IDs %q", name, ids)
		}
	}
}

// TestSourceIsRootOfItsTrace checks that events of a revision are in the trace of its source.
func TestSourceIsRootOfItsTrace(t *testing.T) {
	p, source, sync := &otel{uid: "1"}, success(), failure()
	source.Metadata = map[string]string{event.Revision: sync.Metadata[event.Revision]}
	root := p.request(source).ResourceSpans[0].ScopeSpans[0].Spans[0]
	child := p.request(sync).ResourceSpans[0].ScopeSpans[0].Spans[0]
	if string(root.TraceId) != string(child.TraceId) || string(child.ParentSpanId) != string(root.SpanId) ||
		len(root.ParentSpanId) > 0 || len(root.TraceId) != 16 || len(root.SpanId) != 8 {
		t.Errorf("source %v, sync %v", root, child)
	}
	source.Metadata[event.Revision] = "main@sha1:another"
	if other := p.request(source).ResourceSpans[0].ScopeSpans[0].Spans[0]; string(other.TraceId) == string(
		root.TraceId) {
		t.Error("another revision is in the same trace")
	}
}

func TestRejectedSpans(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		b, err := proto.Marshal(&collector.ExportTraceServiceResponse{
			PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "too old"}})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(b)
	})
	if f := fault.As(newProvider(t, services["otel"].options(server)).Send(testContext(t), success())); f == nil ||
		!f.Terminal ||
		!strings.Contains(f.Error(), "too old. Check the configuration of the collector") {
		t.Errorf("got %v, want a terminal fault", f)
	}
}

// TestPagerDutyRejectedChangeEvents checks that 400 for a change event is ignored: event orchestrations reject them.
func TestPagerDutyRejectedChangeEvents(t *testing.T) {
	for name, c := range map[string]struct {
		resolve, change int // status codes
		fails           bool
	}{
		"change event rejected":     {resolve: 202, change: 400},
		"change event rate limited": {resolve: 202, change: 429, fails: true},
		"resolve event rejected":    {resolve: 400, change: 202, fails: true},
		"both accepted":             {resolve: 202, change: 202},
		"change event forbidden":    {resolve: 202, change: 403, fails: true},
	} {
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(map[string]int{"/v2/enqueue": c.resolve, "/v2/change/enqueue": c.change}[r.URL.Path])
		})
		if err := newProvider(t, services["pagerduty"].options(server)).
			Send(testContext(t), success()); (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAlertmanagerResolve checks that firing alerts are resolved if they can be read, and that the event is sent
// without them if reading is not possible. If reading may work later, the event is retried.
func TestAlertmanagerResolve(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		want   int64 // number of alerts sent; zero if the event is retried
	}{
		"firing alerts":  {status: 200, body: firing, want: 2},
		"forbidden":      {status: 403, want: 1},
		"not found":      {status: 404, want: 1},
		"malformed body": {status: 200, body: "<html>", want: 1},
		"unavailable":    {status: 503},
		"rate limited":   {status: 429},
	} {
		var sent atomic.Int64
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
				return
			}
			var alerts []any
			if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil {
				t.Error(err)
			}
			sent.Store(int64(len(alerts)))
		})
		err := newProvider(t, services["alertmanager"].options(server)).Send(testContext(t), success())
		if sent.Load() != c.want || (err != nil) != (c.want == 0) {
			t.Errorf("%s: got %d alerts, want %d (%v)", name, sent.Load(), c.want, err)
		}
	}
}

// serviceAccount returns a new JSON key of a service account.
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

// TestPubSubServiceAccountKey checks that a signed assertion is exchanged for a token, once for two events.
func TestPubSubServiceAccountKey(t *testing.T) {
	var tokens, messages atomic.Int64
	status := http.StatusOK
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "pubsub.googleapis.com" {
			messages.Add(1)
			if got := r.Header.Get("Authorization"); got != "Bearer ya29.t0kenSecret" {
				t.Errorf("got Authorization %q", got)
			}
			_, _ = io.WriteString(w, `{"messageIds":["1"]}`)
			return
		}
		tokens.Add(1)
		assertion, _, err := jwt.NewParser().ParseUnverified(r.FormValue("assertion"), jwt.MapClaims{})
		if err != nil {
			t.Error(err)
		} else if got := fmt.Sprint(assertion.Claims.(jwt.MapClaims)["scope"], " ",
			assertion.Claims.(jwt.MapClaims)["iss"]); got != pubSubScope+" push@shop-prod-123.iam.gserviceaccount.com" {
			t.Errorf("got assertion for %s", got)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if status != http.StatusOK {
			_, _ = io.WriteString(w, `{"error":"invalid_grant","error_description":"no `+url.QueryEscape(r.Host)+`"}`)
			return
		}
		_, _ = io.WriteString(w, `{"access_token":"ya29.t0kenSecret","expires_in":3600,"token_type":"Bearer"}`)
	})
	o := services["googlepubsub"].options(server)
	o.Identity, o.Secret["token"] = nil, serviceAccount(t)
	p := newProvider(t, o)
	for range 2 {
		if err := p.Send(testContext(t), failure()); err != nil {
			t.Fatal(err)
		}
	}
	if tokens.Load() != 1 || messages.Load() != 2 {
		t.Errorf("got %d token requests for %d messages, want 1 for 2", tokens.Load(), messages.Load())
	}
	for want, terminal := range map[int]bool{http.StatusUnauthorized: true, http.StatusBadRequest: true,
		http.StatusTooManyRequests: false, http.StatusServiceUnavailable: false} {
		status = want
		err := newProvider(t, o).Send(testContext(t), failure())
		f := fault.As(err)
		if f == nil || f.Terminal != terminal || f.Reason != meta.AuthenticationFailedReason || terminal &&
			f.Hint != "Renew the key of the service account in the Secret of the Provider" {
			t.Errorf("%d: %v", want, err)
		}
		expectNoSecrets(t, err)
	}
	o.Secret["token"] = []byte(`{"type":"service_account","private_key":"t0kenSecret"}`)
	err := newProvider(t, o).Send(testContext(t), failure())
	if f := fault.As(err); f == nil || !f.Terminal || !strings.Contains(f.Hint,
		"Check the key of the service account in the Secret of the Provider") {
		t.Errorf("malformed key: got %v, want a terminal fault", err)
	}
	expectNoSecrets(t, err)
}

// TestEventHubSignatureExpires checks resource, key name and expiry of a signature.
func TestEventHubSignatureExpires(t *testing.T) {
	c, err := parseConnection(connectionString)
	if err != nil {
		t.Fatal(err)
	}
	o := services["azureeventhub"].options("http://host.example")
	_, query, _ := strings.Cut(c.sign("https://"+c.host+"/gitops", o.Clock), " ")
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprint(noon.Add(10 * time.Minute).Unix()); values.Get("se") != want ||
		values.Get("sr") != "https://shop-events.servicebus.windows.net/gitops" || values.Get("skn") != "send" {
		t.Errorf("got signature %v", values)
	}
}
