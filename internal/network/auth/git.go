// Package auth reads credentials from Secrets, and exchanges workload identity for credentials of clouds. It has no
// access to the Kubernetes API of its own. Its errors never contain a value of a Secret.
package auth

import (
	"net/url"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// GitCredentials are the credentials for a git server. Only the fields that the server needs are set.
type GitCredentials struct {
	Username, Password    string
	BearerToken           string
	Identity              *sshkey.Private
	KnownHosts            []byte
	CA                    []byte // certificate authorities in PEM, in addition to the system's
	ClientCert, ClientKey []byte
}

// Git reads the credentials for a repository URL from the data of a Secret: username and password, or bearerToken,
// and ca.crt for HTTP(S); identity, known_hosts and the password of the key for SSH. The error is a fault.
func Git(rawURL string, data map[string][]byte) (GitCredentials, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return GitCredentials{}, fault.New(meta.URLInvalidReason, "spec.url is not a URL").
			WithHint("Use https://host/path or ssh://git@host/path").Final()
	}
	if u.Scheme == "ssh" {
		return gitSSH(u, data)
	}
	t, err := TLSFrom(data)
	if err != nil {
		return GitCredentials{}, err
	}
	c := GitCredentials{BearerToken: string(data["bearerToken"]), CA: t.CA, ClientCert: t.Cert, ClientKey: t.Key}
	if c.BearerToken != "" {
		return c, nil
	}
	basic, err := BasicFrom(data)
	c.Username, c.Password = basic.Username, basic.Password
	return c, err
}

func gitSSH(u *url.URL, data map[string][]byte) (GitCredentials, error) {
	c := GitCredentials{Username: "git", KnownHosts: data["known_hosts"]}
	if name := u.User.Username(); name != "" {
		c.Username = name
	}
	for _, key := range []string{"identity", "known_hosts"} {
		if len(data[key]) == 0 {
			return c, fault.New(meta.AuthenticationFailedReason,
				"SSH requires the key '%s' in the Secret of spec.secretRef", key).
				WithHint("Set 'identity' to a private key and 'known_hosts' to the output of ssh-keyscan HOST")
		}
	}
	var err error
	c.Identity, err = SSHKey(data)
	return c, err
}

// SSHKey reads the private key from the data of a Secret: identity, and password if the key has a passphrase. The error
// is a fault.
func SSHKey(data map[string][]byte) (*sshkey.Private, error) {
	key, err := sshkey.Parse(data["identity"], string(data["password"]))
	if err != nil {
		return nil, fault.New(meta.AuthenticationFailedReason,
			"the private key in the key 'identity' of the Secret cannot be parsed").
			Because(err).WithHint("It must be in PEM; set the key 'password' to its passphrase, if it has one")
	}
	return key, nil
}

// first returns the value of the first key that is not empty.
func first(data map[string][]byte, keys ...string) []byte {
	for _, k := range keys {
		if len(data[k]) > 0 {
			return data[k]
		}
	}
	return nil
}
