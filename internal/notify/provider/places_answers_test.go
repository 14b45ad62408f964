package provider

import (
	"encoding/json"
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
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// TestPlacesThatCannotWork are told at once, as faults that only a change helps, and without what they were
// set up with.
func TestPlacesThatCannotWork(t *testing.T) {
	with := func(name string, change func(*Options)) Options {
		o := places[name].options("http://host.example")
		change(&o)
		return o
	}
	noToken := func(o *Options) { delete(o.Secret, "token") }
	noAddress := func(o *Options) { o.Address = "" }
	address := func(s string) func(*Options) {
		return func(o *Options) { o.Address = s; delete(o.Secret, "address") }
	}
	key := func(name, value string) func(*Options) {
		return func(o *Options) { o.Identity = nil; o.Secret[name] = []byte(value) }
	}
	nats := func(change func(*Options)) Options {
		o := Options{Type: "nats", Address: "nats://127.0.0.1", Channel: "gitops", Secret: map[string][]byte{},
			Dial: dialHere}
		change(&o)
		return o
	}
	for name, c := range map[string]struct {
		o      Options
		reason string
		say    string
	}{
		"generic, no address": {with("generic", noAddress), ValidationFailed, "no address"},
		"hmac, no token":      {with("generic-hmac", noToken), TokenNotFound, "to sign with"},
		"opsgenie, no token":  {with("opsgenie", noToken), TokenNotFound, "Opsgenie"},
		"opsgenie, token of lines": {with("opsgenie", key("token", "t0kenSecret\nX-Evil: 1")), ValidationFailed,
			"line break"},
		"pagerduty, no key": {with("pagerduty", func(o *Options) { o.Channel = "" }), ValidationFailed,
			"integration key"},
		"incident.io, no token":    {with("incident.io", noToken), TokenNotFound, "alert source"},
		"incident.io, no address":  {with("incident.io", noAddress), ValidationFailed, "no address"},
		"alertmanager, no address": {with("alertmanager", noAddress), ValidationFailed, "no address"},
		"grafana, no address":      {with("grafana", noAddress), ValidationFailed, "no address"},
		"datadog, no token":        {with("datadog", noToken), TokenNotFound, "Datadog"},
		"otel, no address":         {with("otel", noAddress), ValidationFailed, "no address"},
		"sentry, no DSN":           {with("sentry", address("https://host/t0kenSecret")), ValidationFailed, "no DSN"},
		"sentry, no project": {with("sentry", address("https://t0kenSecret@host/")), ValidationFailed,
			"no DSN"},
		"sentry, key of lines": {with("sentry", address("https://t0kenSecret%0d%0aX-Evil@host/1")),
			ValidationFailed, "no DSN"},
		"pubsub, no project": {with("googlepubsub", address("projects/t0kenSecret")), ValidationFailed,
			"project"},
		"pubsub, a path as project": {with("googlepubsub", address("../../t0kenSecret")), ValidationFailed, "project"},
		"pubsub, no topic": {with("googlepubsub", func(o *Options) { o.Channel = "a/../b" }),
			ValidationFailed, "topic"},
		"pubsub, nobody": {with("googlepubsub", func(o *Options) { o.Identity = nil }), TokenNotFound,
			"serviceAccountName"},
		"pubsub, no JSON": {with("googlepubsub", key("token", "t0kenSecret")), ValidationFailed,
			"no credentials"},
		"pubsub, where to look": {with("googlepubsub", key("token",
			`{"type":"external_account","credential_source":{"executable":{"command":"t0kenSecret"}}}`)),
			ValidationFailed, "external_account"},
		"pubsub, attributes no map": {with("googlepubsub", key("headers", "- t0kenSecret")), ValidationFailed,
			"key headers"},
		"eventhub, no namespace": {with("azureeventhub-token", func(o *Options) { o.Channel = "evil.example" }),
			ValidationFailed, "namespace"},
		"eventhub, a host of a path": {with("azureeventhub-token",
			func(o *Options) { o.Channel = "evil.example/.servicebus.windows.net" }), ValidationFailed, "namespace"},
		"eventhub, a path as hub": {with("azureeventhub-token", address("../t0kenSecret")), ValidationFailed,
			"names no event hub"},
		"eventhub, nobody": {with("azureeventhub-own", func(o *Options) { o.Identity = nil }), TokenNotFound,
			"no token"},
		"eventhub, no key": {with("azureeventhub",
			address("Endpoint=sb://host;SharedAccessKeyName=t0kenSecret")), ValidationFailed, "connection string"},
		"eventhub, no endpoint": {with("azureeventhub",
			address("Endpoint=https://host;SharedAccessKeyName=a;SharedAccessKey=t0kenSecret")), ValidationFailed,
			"connection string"},
		"eventhub, no hub": {with("azureeventhub",
			address("Endpoint=sb://host;SharedAccessKeyName=a;SharedAccessKey=t0kenSecret")), ValidationFailed,
			"EntityPath"},
		"nats, no way out":   {nats(func(o *Options) { o.Dial = nil }), ValidationFailed, "not allowed"},
		"nats, no address":   {nats(noAddress), ValidationFailed, "NATS server"},
		"nats, a web server": {nats(address("https://t0kenSecret@host")), ValidationFailed, "NATS server"},
		"nats, a pattern":    {nats(func(o *Options) { o.Channel = "gitops.>" }), ValidationFailed, "subject"},
		"nats, a subject of lines": {nats(func(o *Options) { o.Channel = "a\r\nPUB b 1" }), ValidationFailed,
			"subject"},
		"nats, no creds":    {nats(key("creds", "t0kenSecret")), ValidationFailed, "credentials"},
		"nats, no seed":     {nats(key("nkey", "SUt0kenSecret")), ValidationFailed, "seed"},
		"nats, no password": {nats(key("username", "me")), TokenNotFound, "no password"},
		"nats, no authority": {nats(func(o *Options) { o.TLS.CA = []byte("t0kenSecret") }),
			meta.AuthenticationFailedReason, "ca.crt"},
	} {
		_, err := New(c.o)
		f := fault.As(err)
		if f == nil || f.Reason != c.reason || !strings.Contains(f.Error(), c.say) || f.Hint == "" && c.o.Dial != nil {
			t.Errorf("%s: want a fault %s that says %q, got %v", name, c.reason, c.say, err)
			continue
		}
		mustHoldNoSecret(t, err)
	}
}

// TestARetryIsToldOnce: hosts that remember what they got know a retry by an ID, and other events by another.
func TestARetryIsToldOnce(t *testing.T) {
	later := failure()
	later.Message = "something else"
	for name, same := range map[string]bool{"opsgenie": true, "pagerduty": true, "incident.io": true, "datadog": true,
		"sentry": false, "otel": false} {
		var bodies []string
		host := serve(t, func(_ http.ResponseWriter, r *http.Request) {
			asJSON(t, r)
			content, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			for _, key := range []string{"alias", "dedup_key", "deduplication_key", "aggregation_key", "event_id",
				"spanId"} {
				if _, after, found := strings.Cut(strings.ReplaceAll(string(content), " ", ""), `"`+key+`":"`); found {
					value, _, _ := strings.Cut(after, `"`)
					bodies = append(bodies, value)
					return
				}
			}
			t.Errorf("%s: no ID in %s", name, content)
		})
		for _, e := range []event.Event{failure(), failure(), later} {
			if err := provider(t, places[name].options(host)).Send(within(t), e); err != nil {
				t.Fatal(err)
			}
		}
		if bodies[0] != bodies[1] || (bodies[1] == bodies[2]) != same {
			t.Errorf("%s: the IDs are %q", name, bodies)
		}
	}
}

// TestSourceIsRootOfItsTrace: what follows from a revision is in the trace of its source.
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

func TestSpansThatAreRejected(t *testing.T) {
	host := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		b, err := proto.Marshal(&collector.ExportTraceServiceResponse{
			PartialSuccess: &collector.ExportTracePartialSuccess{RejectedSpans: 1, ErrorMessage: "too old"}})
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(b)
	})
	if f := fault.As(provider(t, places["otel"].options(host)).Send(within(t), success())); f == nil || !f.Terminal ||
		!strings.Contains(f.Error(), "too old") {
		t.Errorf("got %v", f)
	}
}

// TestPagerDutyOfOrchestrations: they take no change events, and that is no failure once the incident is resolved.
func TestPagerDutyOfOrchestrations(t *testing.T) {
	for name, c := range map[string]struct{ resolve, change, fails int }{
		"changes are refused":   {202, 400, 0},
		"changes are too many":  {202, 429, 1},
		"resolving is refused":  {400, 202, 1},
		"both are taken":        {202, 202, 0},
		"changes are forbidden": {202, 403, 1},
	} {
		host := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(map[string]int{"/v2/enqueue": c.resolve, "/v2/change/enqueue": c.change}[r.URL.Path])
		})
		if err := provider(t, places["pagerduty"].options(host)).
			Send(within(t), success()); (err != nil) != (c.fails == 1) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAlertsEndWhereTheyCanBeRead: who may only write still tells that an object is well; while reading may
// work later, the event is sent later.
func TestAlertsEndWhereTheyCanBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		told   int64 // alerts
	}{
		"read":            {200, firing, 2},
		"not allowed":     {403, "", 1},
		"no such path":    {404, "", 1},
		"something else":  {200, "<html>", 1},
		"not there now":   {503, "", 0},
		"not there later": {429, "", 0},
	} {
		var told atomic.Int64
		host := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
				return
			}
			var alerts []any
			if err := json.NewDecoder(r.Body).Decode(&alerts); err != nil {
				t.Error(err)
			}
			told.Store(int64(len(alerts)))
		})
		err := provider(t, places["alertmanager"].options(host)).Send(within(t), success())
		if told.Load() != c.told || (err != nil) != (c.told == 0) {
			t.Errorf("%s: %d alerts, want %d (%v)", name, told.Load(), c.told, err)
		}
	}
}

// TestPubSubByTheKeyOfAServiceAccount exchanges a signed assertion for a token, once for two events.
func TestPubSubByTheKeyOfAServiceAccount(t *testing.T) {
	var tokens, messages atomic.Int64
	status := http.StatusOK
	host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "pubsub.googleapis.com" {
			messages.Add(1)
			if got := r.Header.Get("Authorization"); got != "Bearer ya29.t0kenSecret" {
				t.Errorf("authorized by %q", got)
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
			t.Errorf("asked for %s", got)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if status != http.StatusOK {
			_, _ = io.WriteString(w, `{"error":"invalid_grant","error_description":"no `+url.QueryEscape(r.Host)+`"}`)
			return
		}
		_, _ = io.WriteString(w, `{"access_token":"ya29.t0kenSecret","expires_in":3600,"token_type":"Bearer"}`)
	})
	o := places["googlepubsub"].options(host)
	o.Identity, o.Secret["token"] = nil, serviceAccount(t)
	p := provider(t, o)
	for range 2 {
		if err := p.Send(within(t), failure()); err != nil {
			t.Fatal(err)
		}
	}
	if tokens.Load() != 1 || messages.Load() != 2 {
		t.Errorf("%d tokens for %d messages", tokens.Load(), messages.Load())
	}
	for want, terminal := range map[int]bool{http.StatusUnauthorized: true, http.StatusBadRequest: true,
		http.StatusTooManyRequests: false, http.StatusServiceUnavailable: false} {
		status = want
		err := provider(t, o).Send(within(t), failure())
		f := fault.As(err)
		if f == nil || f.Terminal != terminal || f.Reason != meta.AuthenticationFailedReason {
			t.Errorf("%d: %v", want, err)
		}
		mustHoldNoSecret(t, err)
	}
	o.Secret["token"] = []byte(`{"type":"service_account","private_key":"t0kenSecret"}`)
	err := provider(t, o).Send(within(t), failure())
	if f := fault.As(err); f == nil || !f.Terminal || !strings.Contains(f.Hint, "Secret") {
		t.Errorf("a key that is none: %v", err)
	}
	mustHoldNoSecret(t, err)
}

// TestSignaturesAreNotTold even by a host that answers with all that it got.
func TestSignaturesAreNotTold(t *testing.T) {
	for name, signature := range map[string]string{"azureeventhub": "sig=", "generic-hmac": "sha256=",
		"opsgenie": "GenieKey t", "alertmanager": "bWU6dDBr"} {
		host := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, strings.Repeat("x", 200)+r.Header.Get("Authorization")+" "+
				r.Header.Get("X-Signature"))
		})
		err := provider(t, places[name].options(host)).Send(within(t), failure())
		if err == nil || strings.Contains(err.Error(), signature) || !strings.Contains(err.Error(), "***") {
			t.Errorf("%s: %v", name, err)
		}
		mustHoldNoSecret(t, err)
	}
}

// TestSignaturesOfEventHubsEnd: each request has one of its own, for minutes.
func TestSignaturesOfEventHubsEnd(t *testing.T) {
	c, err := parseConnection(connectionString)
	if err != nil {
		t.Fatal(err)
	}
	o := places["azureeventhub"].options("http://host.example")
	_, query, _ := strings.Cut(c.sign("https://"+c.host+"/gitops", o.Clock), " ")
	values, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprint(noon.Add(10 * time.Minute).Unix()); values.Get("se") != want ||
		values.Get("sr") != "https://shop-events.servicebus.windows.net/gitops" || values.Get("skn") != "send" {
		t.Errorf("it says %v", values)
	}
}
