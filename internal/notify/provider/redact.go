package provider

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// redactor removes the credentials of a Provider from texts.
type redactor struct{ secrets []string }

// newRedactor returns a redactor for the values of the Secret and the headers, and for the parts of the address
// after the host.
func newRedactor(o Options) redactor {
	var secrets []string
	add := func(s string) {
		if s = strings.TrimSpace(s); len(s) >= redact.MinLength {
			secrets = append(secrets, s, url.QueryEscape(s), url.PathEscape(s),
				base64.StdEncoding.EncodeToString([]byte(s)))
		}
	}
	for key, value := range o.Secret {
		switch key {
		case "ca.crt", "tls.crt", "caFile", "certFile": // public
		case "address", "proxy":
			addAddress(string(value), add)
		case "username": // not redacted: it identifies the account in errors
		default:
			add(string(value))
		}
	}
	// as encoded by basic authentication
	add(o.secret("username") + ":" + o.secret("password"))
	add(":" + o.secret("password"))
	add(":" + o.secret("token"))
	for name, values := range o.Headers {
		if slices.Contains(publicHeaders, strings.ToLower(name)) {
			continue
		}
		for _, v := range values {
			add(v)
			_, after, _ := strings.Cut(v, " ") // without the scheme of Authorization
			add(after)
		}
	}
	addAddress(o.Address, add)
	if o.Type == "pagerduty" { // the channel is the integration key
		add(o.Channel)
	}
	return redactor{secrets}
}

// publicHeaders are not redacted.
var publicHeaders = []string{"accept", "content-type", "gotk-component", "user-agent"}

// publicSegments are parts of paths that are not confidential.
var publicSegments = []string{"api", "chat", "webhooks", "services", "hooks", "messages", "workflows", "spaces",
	"rooms", "hook"}

func addAddress(address string, add func(string)) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Host == "" { // may be a connection string
		for part := range strings.SplitSeq(address, ";") {
			_, value, _ := strings.Cut(part, "=")
			add(value)
		}
		return
	}
	if password, set := u.User.Password(); set {
		add(password)
		add(u.User.Username() + ":" + password) // as encoded by basic authentication
	}
	if strings.Trim(u.Path, "/") != "" {
		add(u.RequestURI())
		add(u.EscapedPath())
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if len(part) >= 6 && !slices.Contains(publicSegments, part) {
			add(part)
		}
	}
	for _, values := range u.Query() {
		for _, v := range values {
			add(v)
		}
	}
}

func (r redactor) text(s string) string { return redact.Text(s, r.secrets...) }

// fault returns err as a fault without credentials.
func (r redactor) fault(err error) error {
	if err != nil && fault.As(err) == nil {
		err = fault.New(SendFailed, "the event was not sent").Because(err)
	}
	return redact.Error(err, r.secrets...)
}

func trimmed(b []byte) string { return string(bytes.TrimSpace(b)) }
