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
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/receiver/hook"
)

// Environment variables of a CI job.
const (
	oidcTokenEnv     = "SLUICE_TRIGGER_RECEIVER_OIDC_TOKEN"
	oidcRequestURL   = "ACTIONS_ID_TOKEN_REQUEST_URL" // set in jobs of GitHub and Forgejo that may request a token
	oidcRequestToken = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"
)

// maxResponseBytes bounds how much of a response body is read.
const maxResponseBytes = 64 << 10

// defaultEvents are the events that requests report without --event, by type of the Receiver.
var defaultEvents = map[string]string{
	notificationv1.GitHubReceiver: "push", notificationv1.GitLabReceiver: "Push Hook",
	notificationv1.BitbucketReceiver: "repo:push",
}

// triggerReceiver is `sluice trigger receiver`.
type triggerReceiver struct {
	*env
	receiverType, url, token, payload, event string
	oidcToken, oidcProvider, audience        string
	retries                                  int
	retryDelay                               time.Duration
}

func newTriggerCommand(e *env) *cobra.Command {
	c := newGroup("trigger", "Call a webhook",
		`  sluice trigger receiver app --url https://hooks.example.com --token -`)
	t := &triggerReceiver{env: e}
	sub := &cobra.Command{
		Use: "receiver NAME", Aliases: []string{"receivers"},
		Short: "Call the webhook of a Receiver, with a valid signature",
		Long: `Call the webhook of a Receiver, with the signature that its type requires.

The command does not access the cluster: it derives the path from the token, the
name and the namespace of the Receiver. If --token or --oidc-token is -, the
value is read from a line of standard input.

The type generic-oidc uses --oidc-token, the token that --oidc-provider issues,
or the environment variable
` + oidcTokenEnv + `.`,
		Example: `  sluice trigger receiver app --url https://hooks.example.com --token -
  sluice trigger receiver app --url https://hooks.example.com --token - \
    --type generic-hmac --payload '{"image":"app:1.2.3"}'
  sluice trigger receiver app --url https://hooks.example.com --token - \
    --type github --payload @push.json
  sluice trigger receiver app --url https://hooks.example.com \
    --type generic-oidc --oidc-provider github  # needs id-token: write`,
		Args:              exactlyOne,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              e.bounded(func(ctx context.Context, args []string) error { return t.run(ctx, args[0]) }),
	}
	f := sub.Flags()
	f.StringVar(&t.receiverType, "type", notificationv1.GenericReceiver, "type of the Receiver")
	f.StringVar(&t.url, "url", "", "address of the webhook server, without the path of the Receiver")
	f.StringVar(&t.token, "token", "", "the token in the Receiver's Secret")
	f.StringVar(&t.payload, "payload", "{}", "JSON to send; @FILE reads a file")
	f.StringVar(&t.event, "event", "", "event to report, in the format of the type (default: a push, if the type has "+
		"events)")
	f.StringVar(&t.oidcToken, "oidc-token", "", "OIDC token of the caller, for the type generic-oidc")
	f.StringVar(&t.oidcProvider, "oidc-provider", "", "request an OIDC token from the CI system: github or forgejo")
	f.StringVar(&t.audience, "oidc-audience", notificationv1.DefaultAudience, "audience of the requested OIDC token")
	f.IntVar(&t.retries, "retries", 3, "number of retries if the webhook is unreachable, busy or failing")
	f.DurationVar(&t.retryDelay, "retry-delay", 5*time.Second, "delay between retries")
	c.AddCommand(sub)
	return c
}

func (t *triggerReceiver) run(ctx context.Context, name string) error {
	to, err := t.parseURL()
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
		return usagef("--payload is not valid JSON")
	}
	token, sign, err := t.credentials(ctx)
	if err != nil {
		return err
	}
	headers, err := hook.Sign(t.receiverType, cmp.Or(t.event, defaultEvents[t.receiverType]), sign, body)
	if err != nil {
		return usagef("--type: %w", err)
	}
	headers.Set("Content-Type", "application/json")
	headers.Set("User-Agent", "sluice-cli")
	return t.call(ctx, name, to.JoinPath(hook.Path(token, name, t.Namespace())), headers, body)
}

func (t *triggerReceiver) parseURL() (*url.URL, error) {
	if err := require("url", t.url); err != nil {
		return nil, err
	}
	u, err := url.Parse(t.url)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, usagef("invalid --url: use https://HOST")
	}
	return u, nil
}

// credentials returns the token in the path, and the secret or token that authenticates the request.
func (t *triggerReceiver) credentials(ctx context.Context) (path, proof string, err error) {
	if t.receiverType != notificationv1.GenericOIDCReceiver {
		if err := require("token", t.token); err != nil {
			return "", "", err
		}
		token, err := t.readSecret("token", t.token)
		return token, token, err
	}
	switch {
	case t.token != "":
		return "", "", usagef("--token is not supported for --type %s: use --oidc-token or --oidc-provider",
			t.receiverType)
	case t.oidcProvider != "" && t.oidcToken != "":
		return "", "", usagef("--oidc-token and --oidc-provider exclude each other")
	case t.oidcProvider != "":
		if err := oneOf("oidc-provider", t.oidcProvider, "github", "forgejo"); err != nil {
			return "", "", err
		}
		proof, err = t.jobToken(ctx)
	default:
		proof, err = t.readSecret("oidc-token", cmp.Or(t.oidcToken, os.Getenv(oidcTokenEnv)))
	}
	if err == nil && proof == "" {
		err = usagef("--oidc-token is missing: set it, --oidc-provider or $%s", oidcTokenEnv)
	}
	return "", proof, err
}

// jobToken requests the OIDC token of a GitHub or Forgejo Actions job:
// https://docs.github.com/en/actions/reference/security/oidc#methods-for-requesting-the-oidc-token
func (t *triggerReceiver) jobToken(ctx context.Context) (string, error) {
	from, err := url.Parse(os.Getenv(oidcRequestURL))
	if err != nil || from.Host == "" {
		return "", fmt.Errorf("$%s is not set: the job may not request an OIDC token. Grant it the permission "+
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
	resp, err := t.do(req)
	if err != nil {
		return "", fmt.Errorf("cannot request an OIDC token: %w", err)
	}
	var issued struct{ Value string }
	if resp.status != http.StatusOK || json.Unmarshal(resp.body, &issued) != nil || issued.Value == "" {
		return "", fmt.Errorf("%s did not issue an OIDC token: status %d", from.Host, resp.status)
	}
	return issued.Value, nil
}

// response is what a server responded.
type response struct {
	status int
	body   []byte
	wait   time.Duration // from Retry-After
}

// do sends one request. Errors do not contain the URL, since its path can be a secret.
func (t *triggerReceiver) do(req *http.Request) (response, error) {
	rt, err := (&egress.Policy{}).Transport(egress.Options{})
	if err != nil {
		return response{}, err
	}
	c := &http.Client{Transport: rt, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}
	r, err := c.Do(req)
	var urlErr *url.Error
	if errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	if err != nil {
		return response{}, err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxResponseBytes))
	return response{status: r.StatusCode, body: body, wait: egress.RetryAfter(r, time.Now())}, err
}

// call sends the request until it is accepted or rejected, or the retries are used up.
func (t *triggerReceiver) call(ctx context.Context, name string, to *url.URL, headers http.Header, body []byte) error {
	for try := 0; ; try++ {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
		if err != nil {
			return usagef("invalid --url: use https://HOST")
		}
		req.Header = headers.Clone()
		resp, err := t.do(req)
		message := cmp.Or(term.OneLine(string(resp.body)), http.StatusText(resp.status))
		switch {
		case err == nil && resp.status < 300:
			t.Done("the webhook of Receiver '%s/%s' was accepted: %s", t.Namespace(), name, message)
			return nil
		case err == nil && resp.status == http.StatusNotFound:
			return fmt.Errorf("%s has no such webhook. Check the name, namespace and token of the Receiver, and "+
				"that it is Ready", to.Host)
		case err == nil && resp.status < 500 && resp.status != http.StatusTooManyRequests &&
			resp.status != http.StatusRequestTimeout:
			return fmt.Errorf("%s rejected the webhook with status %d: %s", to.Host, resp.status, message)
		case err == nil:
			err = fmt.Errorf("%s responded with status %d: %s", to.Host, resp.status, message)
		}
		if try >= t.retries {
			return err
		}
		wait := max(t.retryDelay, resp.wait)
		t.Step("%v; retrying in %s", err, wait)
		select {
		case <-ctx.Done():
			return fmt.Errorf("the webhook was not accepted within %s: %w", t.Timeout, err)
		case <-time.After(wait):
		}
	}
}
