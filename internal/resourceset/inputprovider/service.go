package inputprovider

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	controlplanev1 "github.com/sluice-gitops/sluice/api/controlplane/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/network/hostguard"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// service exports the input sets that a service returns. The whole answer must be valid: one without the list of
// inputs is not an empty list, so that a broken service removes nothing.
func (p *provider) service(ctx context.Context) ([]controlplanev1.InputSet, error) {
	raw, err := p.answer(ctx)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Inputs *[]controlplanev1.InputSet `json:"inputs"`
	}
	// The decoding error may quote the answer, so it is not included.
	if json.Unmarshal(raw, &answer) != nil || answer.Inputs == nil {
		return nil, unusable("is not a JSON object with the list 'inputs'").
			WithHint("It must have the form {\"inputs\": [{\"id\": \"1\"}]}; an empty list exports nothing")
	}
	seen := map[string]bool{}
	for i, set := range *answer.Inputs {
		id := idOf(set)
		switch {
		case id == "":
			return nil, unusable("has no 'id' in the entry %d of 'inputs'", i).
				WithHint("Each entry must have an id, which must be a text")
		case seen[id]:
			return nil, unusable("has several entries with the id '%s'", excerpt.Chars(id, 100)).
				WithHint("The IDs must be unique")
		}
		seen[id] = true
		for _, value := range set {
			if err := checkValue(value); err != nil {
				return nil, unusable("has a value that %s, in the entry with the id '%s'", err, excerpt.Chars(id, 100))
			}
		}
	}
	return *answer.Inputs, nil
}

// unusable returns the fault for an answer that is not as documented.
func unusable(format string, args ...any) *fault.Fault {
	return failed("the answer of the service "+format, args...)
}

// answer sends the request.
func (p *provider) answer(ctx context.Context) ([]byte, error) {
	spec := p.obj.Spec
	u, err := url.Parse(spec.URL)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && (u.Scheme != "http" || !spec.Insecure) {
		return nil, invalidSpec("spec.url is not the URL of a service").
			WithHint("Use an https:// URL, or http:// with spec.insecure: true")
	}
	transport, err := p.Registries.Transport(ctx, p.obj.Namespace, spec.CertSecretRef)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, invalidSpec("spec.url is not the URL of a service")
	}
	req.Header.Set("Accept", "application/json")
	if err := p.authorize(ctx, req); err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, failed("request to '%s' failed", u.Host).Because(fault.WithoutURL(err))
	}
	defer func() { _ = resp.Body.Close() }() // read only
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		now := p.Clock.Now()
		return nil, hostguard.RateLimited(meta.ReconciliationFailedReason, u.Host, now,
			now.Add(egress.RetryAfter(resp, now)))
	case resp.StatusCode/100 != 2:
		return nil, failed("'%s' refused the request: status %d", u.Host, resp.StatusCode).
			WithHint("Check spec.url and the login in the Secret of spec.secretRef").
			After(egress.RetryAfter(resp, p.Clock.Now()))
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxInputs+1))
	if err != nil {
		return nil, failed("cannot read the answer of '%s'", u.Host).Because(err)
	}
	if len(raw) > maxInputs {
		return nil, unusable("is larger than %d KiB", maxInputs>>10).WithHint("Return fewer inputs")
	}
	return raw, nil
}

// authorize adds the login of the Secret: the key token, or username and password.
func (p *provider) authorize(ctx context.Context, req *http.Request) error {
	data, err := p.Registries.Secrets.Data(ctx, p.obj.Namespace, p.obj.Spec.SecretRef, "spec.secretRef")
	if err != nil || data == nil {
		return err
	}
	if token := string(data["token"]); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
	login, err := auth.BasicFrom(data)
	if err == nil && login.Username == "" {
		err = fault.New(meta.AuthenticationFailedReason, "the Secret '%s' contains no login",
			p.obj.Spec.SecretRef.Name).WithHint("Set the key token, or username and password")
	}
	req.SetBasicAuth(login.Username, login.Password)
	return err
}
