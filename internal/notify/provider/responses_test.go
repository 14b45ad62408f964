package provider

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// TestRetryAfterInBody checks the formats of services that request a wait in the body of the response.
func TestRetryAfterInBody(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		wait time.Duration
		want string // in the error
	}{
		"Discord": {body: `{"message":"slow down","retry_after":90.5}`, wait: 90500 * time.Millisecond},
		"Telegram": {body: `{"ok":false,"description":"flood","parameters":{"retry_after":77}}`,
			wait: 77 * time.Second, want: "flood"},
		"Matrix": {body: `{"errcode":"M_LIMIT_EXCEEDED","error":"Too many","retry_after_ms":5000}`,
			wait: 5 * time.Second},
	} {
		for kind, s := range webSetups() {
			t.Run(name+"/"+kind, func(t *testing.T) {
				server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(http.StatusTooManyRequests)
					_, _ = io.WriteString(w, c.body)
				})
				err := newProvider(t, s.options(server)).Send(testContext(t), failure())
				f := fault.As(err)
				if f == nil || f.Terminal || f.RetryAfter != c.wait || f.Reason != SendFailed ||
					!strings.Contains(f.Error(), c.want) {
					t.Errorf("got %v, want RetryAfter %s and text %q", f, c.wait, c.want)
				}
			})
		}
	}
}

const connectorError = "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error "

// TestErrorsWithStatusOK checks the services that return errors in the body with status 200.
func TestErrorsWithStatusOK(t *testing.T) {
	for name, c := range map[string]struct {
		setup    setup
		body     string
		terminal bool
		waits    bool
		reason   string
	}{
		"slack, token": {setup: chats["slack-api"], body: `{"ok":false,"error":"invalid_auth"}`,
			terminal: true, reason: meta.AuthenticationFailedReason},
		"slack, channel": {setup: chats["slack-api"], body: `{"ok":false,"error":"channel_not_found"}`,
			terminal: true, reason: SendFailed},
		"slack, rate limit": {setup: chats["slack-api"], body: `{"ok":false,"error":"ratelimited"}`,
			waits: true, reason: SendFailed},
		"slack, internal error": {setup: chats["slack-api"], body: `{"ok":false,"error":"internal_error"}`,
			reason: SendFailed},
		"slack, other error": {setup: chats["slack-api"], body: `{"ok":false,"error":"invalid_blocks"}`,
			terminal: true, reason: SendFailed},
		"slack, other server": {setup: chats["slack-api"], body: `<html>`,
			terminal: true, reason: SendFailed},
		"telegram, error": {setup: chats["telegram"], body: `{"ok":false,"description":"no"}`,
			terminal: true, reason: SendFailed},
		"telegram, other server": {setup: chats["telegram"], body: `hello`,
			terminal: true, reason: SendFailed},
		"lark, signature": {setup: chats["lark-signed"], body: `{"code":19021,"msg":"sign match fail"}`,
			terminal: true, reason: meta.AuthenticationFailedReason},
		"lark, address": {setup: chats["lark"], body: `{"code":19022,"msg":"Ip Not Allowed"}`,
			terminal: true, reason: SendFailed},
		"lark, keywords": {setup: chats["lark"], body: `{"code":19024,"msg":"Key Words Not Found"}`,
			terminal: true, reason: SendFailed},
		"lark, rate limit": {setup: chats["lark"], body: `{"code":11232,"msg":"frequency limited"}`,
			waits: true, reason: SendFailed},
		"lark, older format": {setup: chats["lark"], body: `{"StatusCode":9499}`,
			terminal: true, reason: SendFailed},
		"lark, other server": {setup: chats["lark"], body: `hello`,
			terminal: true, reason: SendFailed},
		"connector, rate limit": {setup: teamsConnector, body: connectorError + "429 with ContextId x",
			waits: true, reason: SendFailed},
		"connector, deleted": {setup: teamsConnector, body: connectorError + "404 with ContextId x",
			terminal: true, reason: SendFailed},
		"connector, server error": {setup: teamsConnector, body: connectorError + "502 with ContextId x",
			reason: SendFailed},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.body) })
			f := fault.As(newProvider(t, c.setup.options(server)).Send(testContext(t), failure()))
			if f == nil {
				t.Fatal("got no error")
			}
			if f.Terminal != c.terminal || f.RetryAfter > 0 != c.waits || f.Reason != c.reason || f.Hint == "" {
				t.Errorf("got Terminal %v, RetryAfter %s, reason %s: %s", f.Terminal, f.RetryAfter, f.Reason, f)
			}
		})
	}
}

// TestAnswersOfPrivateServersAreNotQuoted has a server of the cluster that answers each service with its texts. None of
// them is in the error, which goes into the status of a Provider.
func TestAnswersOfPrivateServersAreNotQuoted(t *testing.T) {
	setups := webSetups()
	setups["teams-connector"] = teamsConnector
	for kind, s := range setups {
		for _, body := range []string{"internal", `{"ok":false,"error":"internal","message":"internal",` +
			`"description":"internal","code":19021,"msg":"internal","errors":["internal"]}`,
			connectorError + "429 internal"} {
			for _, status := range []int{http.StatusOK, http.StatusBadRequest, http.StatusInternalServerError} {
				server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
				})
				o := s.options(server)
				transport, err := (&egress.Policy{HidePrivate: true}).Transport(egress.Options{})
				if err != nil {
					t.Fatal(err)
				}
				o.Transport = redirected{redirectTo(server), transport}
				if err := newProvider(t, o).Send(testContext(t), failure()); err != nil &&
					strings.Contains(err.Error(), "internal") {
					t.Errorf("%s, status %d, body %s: %v", kind, status, body, err)
				}
			}
		}
	}
}

// TestErrorOfAPrivateTokenServerIsNotQuoted has credentials that name a server of the cluster.
func TestErrorOfAPrivateTokenServerIsNotQuoted(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error":"internal","error_description":"internal"}`)
	})
	o := services["googlepubsub"].options(server)
	transport, err := (&egress.Policy{HidePrivate: true}).Transport(egress.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o.Identity, o.Transport = nil, redirected{redirectTo(server), transport}
	o.Secret["token"] = []byte(`{"type":"authorized_user","client_id":"a","client_secret":"b","refresh_token":"c"}`)
	err = newProvider(t, o).Send(testContext(t), failure())
	if err == nil || strings.Contains(err.Error(), "internal") {
		t.Errorf("the error is %v", err)
	}
}

// FuzzResponses parses any response with the error formats of all services. The fault is short, and no wait is
// longer than an hour.
func FuzzResponses(f *testing.F) {
	f.Add("application/json", `{"message":"no","retry_after":1e300}`, 429)
	f.Add("application/json", `{"errors":[{"message":"a"},"b"],"parameters":{"retry_after":-1}}`, 400)
	f.Add("text/html", "<html>", 502)
	f.Add("text/plain", connectorError+"429", 200)
	f.Add("application/json", `{"ok":false,"error":"ratelimited"}`, 200)
	f.Add("application/json", `{"code":11232,"msg":"`+strings.Repeat("x", 5000)+`"}`, 200)
	c := &client{address: &url.URL{Scheme: "https", Host: "host.example"}}
	f.Fuzz(func(t *testing.T, contentType, body string, status int) {
		a := response{body: []byte(body), status: status}
		for _, err := range []error{
			statusFault("host.example", &http.Response{StatusCode: status,
				Header: http.Header{"Content-Type": {contentType}}}, a),
			(&slack{client: c}).checkResponse(a), (&lark{client: c}).checkResponse(a), checkConnectorResponse(a),
		} {
			if err == nil {
				continue
			}
			if wait := fault.As(err).RetryAfter; wait < 0 || wait > time.Hour || len(err.Error()) > 2000 ||
				strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Errorf("RetryAfter %s, error %q", wait, err)
			}
		}
	})
}

// TestEchoedSignaturesAreRedacted uses a service that returns the credentials it received.
func TestEchoedSignaturesAreRedacted(t *testing.T) {
	for name, signature := range map[string]string{"azureeventhub": "sig=", "generic-hmac": "sha256=",
		"opsgenie": "GenieKey t", "alertmanager": "bWU6dDBr"} {
		server := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, strings.Repeat("x", 200)+r.Header.Get("Authorization")+" "+
				r.Header.Get("X-Signature"))
		})
		err := newProvider(t, services[name].options(server)).Send(testContext(t), failure())
		if err == nil || strings.Contains(err.Error(), signature) || !strings.Contains(err.Error(),
			"***. Check the type, address and channel of the Provider") {
			t.Errorf("%s: got error %v, want the signature redacted", name, err)
		}
		expectNoSecrets(t, err)
	}
}

func TestHintFitsTheStatus(t *testing.T) {
	const credentials = "Check the credentials in the Secret of spec.secretRef and their permissions; set it if the " +
		"service needs a login"
	for status, want := range map[int]string{
		http.StatusUnauthorized:      credentials,
		http.StatusForbidden:         credentials,
		http.StatusProxyAuthRequired: "Check username and password in the Secret of spec.proxySecretRef",
		http.StatusNotFound: "Check the address and channel of the Provider; the webhook may have been " +
			"deleted",
		http.StatusRequestEntityTooLarge: "The service does not take an event of this size; the next one may " +
			"be smaller",
		http.StatusTooManyRequests: "The event will be retried. To send fewer events, narrow spec.eventSources of " +
			"the Alert or set spec.eventSeverity to error",
		http.StatusBadGateway: "The event will be retried",
		http.StatusFound:      "Set the address to the target of the redirect; redirects are not followed",
		http.StatusBadRequest: "Check the type, address and channel of the Provider",
	} {
		if got := statusFault("host", &http.Response{}, response{status: status}).Hint; got != want {
			t.Errorf("status %d: got hint %q, want %q", status, got, want)
		}
	}
}
