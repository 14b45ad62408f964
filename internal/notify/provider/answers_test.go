package provider

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// secretsOf are the parts of what a chat was set up with that nobody may read in an error.
var secretsOf = []string{"wEbHooKsEcReT", "T00000000", "t0kenSecret", "K3yS3cret", "Ym90QH"}

func mustHoldNoSecret(t *testing.T, err error) {
	t.Helper()
	for _, s := range secretsOf {
		if strings.Contains(err.Error(), s) {
			t.Errorf("the error tells %s: %s", s, err)
		}
	}
}

// TestAnswersBecomeFaults sends with every type to a host that answers each way, and echoes what it was sent:
// headers, path and body.
func TestAnswersBecomeFaults(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		header   string // Retry-After
		body     string
		terminal bool
		wait     time.Duration
		reason   string
		say      string
	}{
		"bad request": {status: 400, terminal: true, reason: SendFailed, body: `{"message":"invalid_blocks"}`,
			say: "invalid_blocks"},
		"unauthorized":          {status: 401, terminal: true, reason: meta.AuthenticationFailedReason, say: "Renew"},
		"forbidden":             {status: 403, terminal: true, reason: meta.AuthenticationFailedReason},
		"forbidden for a while": {status: 403, header: "30", wait: 30 * time.Second, reason: SendFailed},
		"not found":             {status: 404, terminal: true, reason: SendFailed, say: "may have been removed"},
		"gone":                  {status: 410, terminal: true, reason: SendFailed},
		"too large":             {status: 413, terminal: true, reason: SendFailed},
		"too many":              {status: 429, header: "120", wait: 2 * time.Minute, reason: SendFailed},
		"too many, in the body": {status: 429, header: "1", body: `{"message":"slow down","retry_after":90.5}`,
			wait: 90500 * time.Millisecond, reason: SendFailed},
		"too many, Telegram's": {status: 429, header: "1", body: `{"ok":false,"description":"flood","parameters":{"retry_after":77}}`, wait: 77 * time.Second, reason: SendFailed, say: "flood"},
		"too many, Matrix's": {status: 429, header: "1",
			body: `{"errcode":"M_LIMIT_EXCEEDED","error":"Too many","retry_after_ms":5000}`, wait: 5 * time.Second,
			reason: SendFailed},
		"redirect":     {status: 307, terminal: true, reason: SendFailed, say: "leads to"},
		"server error": {status: 500, reason: SendFailed},
		"bad gateway":  {status: 502, body: "<html><body>nginx</body></html>", reason: SendFailed},
		"unavailable":  {status: 503, header: "10", wait: 10 * time.Second, reason: SendFailed},
	} {
		for kind, options := range everywhere() {
			t.Run(name+"/"+kind, func(t *testing.T) {
				host := serve(t, func(w http.ResponseWriter, r *http.Request) {
					content, _ := io.ReadAll(r.Body)
					if c.header != "" {
						w.Header().Set("Retry-After", c.header)
					}
					if c.status == 307 {
						w.Header().Set("Location", r.RequestURI)
					}
					w.WriteHeader(c.status)
					if c.body != "" {
						_, _ = io.WriteString(w, c.body)
						return
					}
					_, _ = io.WriteString(w, `{"error":"no: `+r.RequestURI+" "+r.Header.Get("Authorization")+`"}`)
					_, _ = w.Write(content)
				})
				err := provider(t, options(host)).Send(within(t), failure())
				f := fault.As(err)
				if f == nil {
					t.Fatalf("want a fault, got %v", err)
				}
				if f.Terminal != c.terminal || f.RetryAfter != c.wait || f.Reason != c.reason {
					t.Errorf("the fault is terminal %v, waits %s, reason %s; want %v, %s, %s: %s",
						f.Terminal, f.RetryAfter, f.Reason, c.terminal, c.wait, c.reason, f)
				}
				if !strings.Contains(f.Error(), c.say) || len(f.Error()) > 1000 {
					t.Errorf("the fault says %q, not %q", f.Error(), c.say)
				}
				mustHoldNoSecret(t, err)
			})
		}
	}
}

// TestAnswersWithoutEndAreLeft bounds what is read of 100 MB, with a status of success and with one of failure.
func TestAnswersWithoutEndAreLeft(t *testing.T) {
	megabyte := []byte(strings.Repeat("a", 1<<20))
	for name, options := range everywhere() {
		t.Run(name, func(t *testing.T) {
			for _, status := range []int{http.StatusOK, http.StatusInternalServerError} {
				host := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(status)
					for range 100 {
						if _, err := w.Write(megabyte); err != nil {
							return
						}
					}
				})
				err := provider(t, options(host)).Send(within(t), failure())
				if status != http.StatusOK && err == nil {
					t.Error("a server error is taken for success")
				}
				if err != nil && len(err.Error()) > 1000 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
			}
		})
	}
}

// TestHostsThatAreNotThere tells neither path nor token of what it could not reach, and tries again.
func TestHostsThatAreNotThere(t *testing.T) {
	for name, options := range everywhere() {
		for _, host := range []string{"http://127.0.0.1:1", "https://host.invalid"} {
			err := provider(t, options(host)).Send(within(t), failure())
			f := fault.As(err)
			if f == nil || f.Terminal {
				t.Errorf("%s: want a fault that passes, got %v", name, err)
			}
			mustHoldNoSecret(t, err)
		}
	}
}

// TestHostsThatHang ends with the context.
func TestHostsThatHang(t *testing.T) {
	over := make(chan struct{})
	host := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
	defer close(over)
	for name, options := range everywhere() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := provider(t, options(host)).Send(ctx, failure())
		cancel()
		f := fault.As(err)
		if f == nil || f.Terminal || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: want a fault of the deadline, got %v", name, err)
			continue
		}
		if !strings.Contains(f.Error(), "in time") {
			t.Errorf("%s: the fault says %q", name, f.Error())
		}
		mustHoldNoSecret(t, err)
	}
}

// TestRefusalsInTheBody are those of hosts that answer 200 whatever comes of it.
func TestRefusalsInTheBody(t *testing.T) {
	connector := chat{kind: "msteams", path: "/webhookb2/" + hookSecret}
	for name, c := range map[string]struct {
		of       chat
		host     string
		body     string
		terminal bool
		waits    bool
		reason   string
	}{
		"slack, token": {of: chats["slack-api"], body: `{"ok":false,"error":"invalid_auth"}`, terminal: true,
			reason: meta.AuthenticationFailedReason},
		"slack, channel": {of: chats["slack-api"], body: `{"ok":false,"error":"channel_not_found"}`,
			terminal: true, reason: SendFailed},
		"slack, limit": {of: chats["slack-api"], body: `{"ok":false,"error":"ratelimited"}`, waits: true,
			reason: SendFailed},
		"slack, its fault": {of: chats["slack-api"], body: `{"ok":false,"error":"internal_error"}`,
			reason: SendFailed},
		"slack, other": {of: chats["slack-api"], body: `{"ok":false,"error":"invalid_blocks"}`, terminal: true,
			reason: SendFailed},
		"slack, not Slack": {of: chats["slack-api"], body: `<html>`, terminal: true, reason: SendFailed},
		"telegram, no": {of: chats["telegram"], body: `{"ok":false,"description":"no"}`, terminal: true,
			reason: SendFailed},
		"telegram, not it": {of: chats["telegram"], body: `hello`, terminal: true, reason: SendFailed},
		"lark, signature": {of: chats["lark-signed"], body: `{"code":19021,"msg":"sign match fail"}`,
			terminal: true, reason: meta.AuthenticationFailedReason},
		"lark, address": {of: chats["lark"], body: `{"code":19022,"msg":"Ip Not Allowed"}`, terminal: true,
			reason: SendFailed},
		"lark, words": {of: chats["lark"], body: `{"code":19024,"msg":"Key Words Not Found"}`, terminal: true,
			reason: SendFailed},
		"lark, limit": {of: chats["lark"], body: `{"code":11232,"msg":"frequency limited"}`, waits: true,
			reason: SendFailed},
		"lark, old form": {of: chats["lark"], body: `{"StatusCode":9499}`, terminal: true, reason: SendFailed},
		"lark, not it":   {of: chats["lark"], body: `hello`, terminal: true, reason: SendFailed},
		"connector, limit": {of: connector, host: "http://acme.webhook.office.com",
			body: "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429 " +
				"with ContextId x", waits: true, reason: SendFailed},
		"connector, removed": {of: connector, host: "http://acme.webhook.office.com",
			body: "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 404 " +
				"with ContextId x", terminal: true, reason: SendFailed},
		"connector, its fault": {of: connector, host: "http://acme.webhook.office.com",
			body: "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 502 " +
				"with ContextId x", reason: SendFailed},
	} {
		t.Run(name, func(t *testing.T) {
			host := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.body) })
			o := c.of.options(host)
			if c.host != "" {
				o = c.of.options(c.host)
				o.Transport = to(host)
			}
			f := fault.As(provider(t, o).Send(within(t), failure()))
			if f == nil {
				t.Fatal("it is taken for success")
			}
			if f.Terminal != c.terminal || f.RetryAfter > 0 != c.waits || f.Reason != c.reason || f.Hint == "" {
				t.Errorf("the fault is terminal %v, waits %s, reason %s: %s", f.Terminal, f.RetryAfter, f.Reason, f)
			}
		})
	}
}

// FuzzAnswers reads any answer in every way that hosts have of refusing a message: the fault is short, and no
// wait is longer than an hour.
func FuzzAnswers(f *testing.F) {
	f.Add("application/json", `{"message":"no","retry_after":1e300}`, 429)
	f.Add("application/json", `{"errors":[{"message":"a"},"b"],"parameters":{"retry_after":-1}}`, 400)
	f.Add("text/html", "<html>", 502)
	f.Add("text/plain", "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429", 200)
	f.Add("application/json", `{"ok":false,"error":"ratelimited"}`, 200)
	f.Add("application/json", `{"code":11232,"msg":"`+strings.Repeat("x", 5000)+`"}`, 200)
	host := &client{address: &url.URL{Scheme: "https", Host: "host.example"}}
	f.Fuzz(func(t *testing.T, contentType, body string, status int) {
		a := answer{body: []byte(body), status: status}
		for _, err := range []error{
			refused("host.example", &http.Response{StatusCode: status,
				Header: http.Header{"Content-Type": {contentType}}}, a),
			(&slack{client: host}).judge(a), (&lark{client: host}).judge(a), judgeConnector(a),
		} {
			if err == nil {
				continue
			}
			if wait := fault.As(err).RetryAfter; wait < 0 || wait > time.Hour || len(err.Error()) > 2000 ||
				strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Errorf("it waits for %s, and says %q", wait, err)
			}
		}
	})
}
