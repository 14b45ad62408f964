package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
)

// Environment of a pipeline.
const (
	oidcTokenEnv     = "SLUICE_TRIGGER_RECEIVER_OIDC_TOKEN"
	oidcRequestURL   = "ACTIONS_ID_TOKEN_REQUEST_URL" // where a job of GitHub or Forgejo gets its token
	oidcRequestToken = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// maxReply is how many bytes of an answer are read.
const maxReply = 64 << 10

// firstEvents are the events that requests of a type tell when no flag does.
var firstEvents = map[string]string{
	notificationv1.GitHubReceiver: "push", notificationv1.GitLabReceiver: "Push Hook",
	notificationv1.BitbucketReceiver: "repo:push",
}

// trigger is one run of `trigger receiver`.
type trigger struct {
	*app
	kind, url, token, payload, event string
	oidcToken, oidcFrom, audience    string
	retries                          int
	delay                            time.Duration
}

func (a *app) trigger() *cobra.Command {
	c := group("trigger", "Call a webhook as its sender does",
		`  sluice trigger receiver app --url https://hooks.example.com --token -`)
	t := &trigger{app: a}
	sub := &cobra.Command{
		Use: "receiver NAME", Aliases: []string{"receivers"},
		Short: "Call the webhook of a Receiver, signed as its sender signs",
		Long: `Call the webhook of a Receiver, signed as its sender signs. It takes no access to the cluster: the path is made of the token, the name and
the namespace of the Receiver. A --token or --oidc-token of - is read from a line of standard input.

Without --oidc-provider and --oidc-token, the token of --type generic-oidc is that of $` + oidcTokenEnv + `.`,
		Example: `  sluice trigger receiver app --url https://hooks.example.com --token -
  sluice trigger receiver app --url https://hooks.example.com --type generic-hmac --token - --payload '{"image":"app:1.2.3"}'
  sluice trigger receiver app --url https://hooks.example.com --type github --token - --payload @push.json
  sluice trigger receiver app --url https://hooks.example.com --type generic-oidc --oidc-provider github  # in a job with id-token: write`,
		Args:              exactlyOne,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return t.run(ctx, args[0])
		},
	}
	f := sub.Flags()
	f.StringVar(&t.kind, "type", notificationv1.GenericReceiver, "type of the Receiver")
	f.StringVar(&t.url, "url", "", "address under which webhooks come in, without the path of the Receiver")
	f.StringVar(&t.token, "token", "", "the token in the Receiver's Secret")
	f.StringVar(&t.payload, "payload", "{}", "JSON to send; @FILE reads a file")
	f.StringVar(&t.event, "event", "", "event to tell of, as the sender names it (default: a push, where the type "+
		"names events)")
	f.StringVar(&t.oidcToken, "oidc-token", "", "token of the caller, for the type generic-oidc")
	f.StringVar(&t.oidcFrom, "oidc-provider", "", "where a pipeline gets its token: github or forgejo")
	f.StringVar(&t.audience, "oidc-audience", notificationv1.DefaultAudience, "audience of the token to get")
	f.IntVar(&t.retries, "retries", 3, "how often to try again when the webhook cannot be reached, is busy or fails")
	f.DurationVar(&t.delay, "retry-delay", 5*time.Second, "how long to wait before another try")
	c.AddCommand(sub)
	return c
}

func (t *trigger) run(ctx context.Context, name string) error {
	to, err := t.address()
	if err != nil {
		return err
	}
	body := []byte(t.payload)
	if file, isFile := strings.CutPrefix(t.payload, "@"); isFile {
		if body, err = os.ReadFile(file); err != nil {
			return fmt.Errorf("--payload: %w", err)
		}
	}
	if !json.Valid(body) {
		return usagef("--payload is no JSON")
	}
	token, sign, err := t.credentials(ctx)
	if err != nil {
		return err
	}
	headers, err := hook.Sign(t.kind, cmp.Or(t.event, firstEvents[t.kind]), sign, body)
	if err != nil {
		return usagef("--type: %w", err)
	}
	headers.Set("Content-Type", "application/json")
	headers.Set("User-Agent", "sluice-cli")
	return t.call(ctx, name, to.JoinPath(hook.Path(token, name, t.namespace())), headers, body)
}

func (t *trigger) address() (*url.URL, error) {
	if err := need("url", t.url); err != nil {
		return nil, err
	}
	u, err := url.Parse(t.url)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, usagef("--url: write it as https://HOST")
	}
	return u, nil
}

// credentials returns the token that is in the path, and that by which the request proves who it is of.
func (t *trigger) credentials(ctx context.Context) (path, proof string, err error) {
	if t.kind != notificationv1.GenericOIDCReceiver {
		if err := need("token", t.token); err != nil {
			return "", "", err
		}
		token, err := t.private("token", t.token)
		return token, token, err
	}
	switch {
	case t.token != "":
		return "", "", usagef("--token is of no use to --type %s: see --oidc-token and --oidc-provider", t.kind)
	case t.oidcFrom != "" && t.oidcToken != "":
		return "", "", usagef("give --oidc-token or --oidc-provider, not both")
	case t.oidcFrom != "":
		if err := oneOf("oidc-provider", t.oidcFrom, "github", "forgejo"); err != nil {
			return "", "", err
		}
		proof, err = t.jobToken(ctx)
	default:
		proof, err = t.private("oidc-token", cmp.Or(t.oidcToken, os.Getenv(oidcTokenEnv)))
	}
	if err == nil && proof == "" {
		err = usagef("--oidc-token is missing: give it, or --oidc-provider, or set $%s", oidcTokenEnv)
	}
	return "", proof, err
}

// jobToken gets the token of a job of GitHub or Forgejo Actions:
// https://docs.github.com/en/actions/reference/security/oidc#methods-for-requesting-the-oidc-token
func (t *trigger) jobToken(ctx context.Context) (string, error) {
	from, err := url.Parse(os.Getenv(oidcRequestURL))
	if err != nil || from.Host == "" {
		return "", fmt.Errorf("$%s is not set: this is no job that may get a token. Give the job the permission "+
			"id-token: write", oidcRequestURL)
	}
	q := from.Query()
	q.Set("audience", t.audience)
	from.RawQuery = q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), http.NoBody)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+os.Getenv(oidcRequestToken))
	req.Header.Set("Accept", "application/json")
	answer, err := t.do(req)
	if err != nil {
		return "", fmt.Errorf("cannot get a token of the job: %w", err)
	}
	var said struct{ Value string }
	if answer.status != http.StatusOK || json.Unmarshal(answer.body, &said) != nil || said.Value == "" {
		return "", fmt.Errorf("%s gave no token: status %d", from.Host, answer.status)
	}
	return said.Value, nil
}

// reply of a server.
type reply struct {
	status int
	body   []byte
	wait   time.Duration // that it asks for
}

// do makes one request. The error tells no path, as that is the secret of some webhooks.
func (t *trigger) do(req *http.Request) (reply, error) {
	rt, err := (&egress.Policy{}).Transport(egress.Options{})
	if err != nil {
		return reply{}, err
	}
	c := &http.Client{Transport: rt, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	resp, err := c.Do(req)
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	return reply{resp.StatusCode, body, egress.RetryAfter(resp, time.Now())}, err
}

// call sends the request until it is taken, refused, or was tried often enough.
func (t *trigger) call(ctx context.Context, name string, to *url.URL, headers http.Header, body []byte) error {
	for try := 0; ; try++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
		if err != nil {
			return usagef("--url: write it as https://HOST")
		}
		req.Header = headers.Clone()
		answer, err := t.do(req)
		said := cmp.Or(oneLine(string(answer.body)), http.StatusText(answer.status))
		switch {
		case err == nil && answer.status < 300:
			t.done("the webhook of Receiver '%s/%s' was taken: %s", t.namespace(), name, said)
			return nil
		case err == nil && answer.status == http.StatusNotFound:
			return fmt.Errorf("%s knows no such webhook. Check name, namespace and token of the Receiver, and "+
				"whether it is Ready", to.Host)
		case err == nil && answer.status < 500 && answer.status != http.StatusTooManyRequests &&
			answer.status != http.StatusRequestTimeout:
			return fmt.Errorf("%s refused the webhook with status %d: %s", to.Host, answer.status, said)
		case err == nil:
			err = fmt.Errorf("%s answered with status %d: %s", to.Host, answer.status, said)
		}
		if try >= t.retries {
			return err
		}
		wait := max(t.delay, answer.wait)
		t.step("%v; again in %s", err, wait)
		select {
		case <-ctx.Done():
			return fmt.Errorf("the webhook was not taken within %s: %w", t.timeout, err)
		case <-time.After(wait):
		}
	}
}
