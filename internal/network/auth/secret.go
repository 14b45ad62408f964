package auth

import (
	"net/url"
	"slices"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Basic is a user name and a password; both may be empty.
type Basic struct{ Username, Password string }

// BasicFrom reads username and password from the data of a Secret. It returns a fault if only one is set.
func BasicFrom(data map[string][]byte) (Basic, error) {
	b := Basic{Username: string(data["username"]), Password: string(data["password"])}
	if (b.Username == "") != (b.Password == "") {
		return Basic{}, fault.New(meta.AuthenticationFailedReason,
			"the Secret has only one of the keys username and password").
			WithHint("Set both keys")
	}
	return b, nil
}

// ProxyFrom reads the URL of a proxy from the data of a Secret: address, and optionally username and password. The
// error is a fault.
func ProxyFrom(data map[string][]byte) (*url.URL, error) {
	u, err := url.Parse(string(data["address"]))
	if err != nil || u.Hostname() == "" || !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, u.Scheme) {
		return nil, fault.New(meta.AuthenticationFailedReason,
			"the key 'address' of the proxy Secret is not the URL of a proxy").
			WithHint("Use the form http://HOST:PORT; the schemes https and socks5 are supported as well")
	}
	u.Path, u.RawPath, u.RawQuery, u.Fragment = "", "", "", ""
	login, err := BasicFrom(data)
	if err != nil {
		return nil, err
	}
	if login.Username != "" {
		u.User = url.UserPassword(login.Username, login.Password)
	}
	return u, nil
}
