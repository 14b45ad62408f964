package provider

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/internal/fault"
)

// shortestSecret is the length in bytes from which on a value is looked for in texts: a shorter one is everywhere.
const shortestSecret = 4

// redactor takes the credentials of a Provider out of texts.
type redactor struct{ replace *strings.Replacer }

// newRedactor knows the values of the Secret and the headers, and the parts of the address beyond the host.
func newRedactor(o Options) redactor {
	var secrets []string
	add := func(s string) {
		if s = strings.TrimSpace(s); len(s) >= shortestSecret {
			secrets = append(secrets, s, url.QueryEscape(s), url.PathEscape(s),
				base64.StdEncoding.EncodeToString([]byte(s)))
		}
	}
	for key, value := range o.Secret {
		switch key {
		case "ca.crt", "tls.crt", "caFile", "certFile": // public
		case "address", "proxy":
			addAddress(string(value), add)
		case "username": // tells who is refused
		default:
			add(string(value))
		}
	}
	add(o.secret("username") + ":" + o.secret("password")) // as basic authentication has it
	for name, values := range o.Headers {
		if slices.Contains(publicHeaders, strings.ToLower(name)) {
			continue
		}
		for _, v := range values {
			add(v)
			_, after, _ := strings.Cut(v, " ") // the scheme of an Authorization
			add(after)
		}
	}
	addAddress(o.Address, add)
	if o.Type == "pagerduty" { // it is the key of an integration
		add(o.Channel)
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) }) // the replacer takes the first that fits
	pairs := make([]string, 0, 2*len(secrets))
	for _, s := range slices.Compact(secrets) {
		pairs = append(pairs, s, "***")
	}
	return redactor{strings.NewReplacer(pairs...)}
}

// publicHeaders say nothing that may not be told.
var publicHeaders = []string{"accept", "content-type", "gotk-component", "user-agent"}

// common are the parts of paths that say nothing, and that texts may say.
var common = []string{"api", "chat", "webhooks", "services", "hooks", "messages", "workflows", "spaces",
	"rooms", "hook"}

func addAddress(address string, add func(string)) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Host == "" { // it may be a connection string
		for part := range strings.SplitSeq(address, ";") {
			_, value, _ := strings.Cut(part, "=")
			add(value)
		}
		return
	}
	if password, set := u.User.Password(); set {
		add(password)
		add(u.User.Username() + ":" + password) // as basic authentication has it
	}
	if strings.Trim(u.Path, "/") != "" {
		add(u.RequestURI())
		add(u.EscapedPath())
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if len(part) >= 6 && !slices.Contains(common, part) {
			add(part)
		}
	}
	for _, values := range u.Query() {
		for _, v := range values {
			add(v)
		}
	}
}

func (r redactor) text(s string) string { return r.replace.Replace(s) }

// fault returns err as a fault without credentials. What it was made of is kept for errors.Is, and never told.
func (r redactor) fault(err error) error {
	if err == nil {
		return nil
	}
	f := fault.As(err)
	if f == nil {
		return fault.New(SendFailed, "the event was not sent").Because(told{r.text(err.Error()), err})
	}
	clean := *f
	clean.What, clean.Hint = r.text(f.What), r.text(f.Hint)
	if f.Err != nil {
		clean.Err = told{r.text(f.Err.Error()), f.Err}
	}
	return &clean
}

// told is an error in other words.
type told struct {
	words string
	cause error
}

func (t told) Error() string { return t.words }
func (t told) Unwrap() error { return t.cause }

func trimmed(b []byte) string { return string(bytes.TrimSpace(b)) }
