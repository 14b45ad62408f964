package auth

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	dockerConfigKey = ".dockerconfigjson" // of Secrets of type kubernetes.io/dockerconfigjson
	dockercfgKey    = ".dockercfg"        // of Secrets of type kubernetes.io/dockercfg: the auths alone
	dockerHub       = "index.docker.io"
)

// RegistryFrom reads the logins to registries from the data of a Secret: a docker config in the key .dockerconfigjson
// (or .dockercfg), or username and password for host. The keychain is empty if the Secret has none of them. The error
// is a fault.
//
// Of the pull secrets of a service account, the first with a login for a repository counts.
func RegistryFrom(data map[string][]byte, host string) (authn.Keychain, error) {
	if config := data[dockerConfigKey]; len(config) > 0 {
		return dockerConfig(config, true)
	}
	if config := data[dockercfgKey]; len(config) > 0 {
		return dockerConfig(config, false)
	}
	login, err := BasicFrom(data)
	if err != nil {
		return nil, err
	}
	if login.Username == "" {
		return registries{}, nil
	}
	return registries{{host: hub(strings.ToLower(host)), path: "",
		login: authn.AuthConfig{Username: login.Username, Password: login.Password}}}, nil
}

// registries are the logins to registries and paths in them.
type registries []registryLogin

type registryLogin struct {
	host  string // in lower case, optionally with a port; a label may be a pattern, such as *.example.com
	path  string // repositories at or below it; empty for all
	login authn.AuthConfig
}

// Resolve implements [authn.Keychain]. It returns the login with the longest matching path. A host name precedes a
// pattern.
func (r registries) Resolve(target authn.Resource) (authn.Authenticator, error) {
	host := hub(strings.ToLower(target.RegistryStr()))
	_, repository, _ := strings.Cut(target.String(), "/")
	best, found := registryLogin{}, false
	for _, candidate := range r {
		if !matchHost(candidate.host, host) || !under(candidate.path, repository) {
			continue
		}
		if !found || candidate.before(best) {
			best, found = candidate, true
		}
	}
	if !found {
		return authn.Anonymous, nil
	}
	return authn.FromConfig(best.login), nil
}

func (l registryLogin) before(other registryLogin) bool {
	if len(l.path) != len(other.path) {
		return len(l.path) > len(other.path)
	}
	return !strings.Contains(l.host, "*") && strings.Contains(other.host, "*")
}

// matchHost reports whether host matches a pattern. Each label is matched on its own, so that a wildcard never spans a
// dot. The ports must be equal.
func matchHost(pattern, host string) bool {
	pattern, patternPort, _ := strings.Cut(pattern, ":")
	host, port, _ := strings.Cut(host, ":")
	patterns, labels := strings.Split(pattern, "."), strings.Split(host, ".")
	if patternPort != port || len(patterns) != len(labels) {
		return false
	}
	for i := range patterns {
		if ok, err := path.Match(patterns[i], labels[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// under reports whether a repository is at or below a path.
func under(parent, repository string) bool {
	rest, ok := strings.CutPrefix(repository, parent)
	return ok && (parent == "" || rest == "" || rest[0] == '/' || rest[0] == ':' || rest[0] == '@')
}

// hub maps all names of Docker Hub to one.
func hub(host string) string {
	if host == "docker.io" || host == "registry-1.docker.io" {
		return dockerHub
	}
	return host
}

// dockerAuth is an entry of auths; auth is the base64 of username:password.
type dockerAuth struct {
	Auth          string `json:"auth"`
	Username      string `json:"username"`
	Password      string `json:"password"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// dockerConfig parses config.json as docker writes it. raw contains only its auths if whole is false.
func dockerConfig(raw []byte, whole bool) (registries, error) {
	var config struct {
		Auths map[string]dockerAuth `json:"auths"`
	}
	var err error
	if whole {
		err = json.Unmarshal(raw, &config)
	} else {
		err = json.Unmarshal(raw, &config.Auths)
	}
	if err != nil { // omitted, since it may quote secrets
		return nil, invalidDockerConfig("is not valid JSON")
	}
	var logins registries
	for key, entry := range config.Auths {
		host, prefix, ok := registryKey(key)
		if !ok {
			return nil, invalidDockerConfig("has an entry in auths whose key is not the address of a registry")
		}
		login, ok := entry.login()
		if !ok {
			return nil, invalidDockerConfig("has an entry in auths whose auth is not the base64 of username:password")
		}
		if login != (authn.AuthConfig{}) { // docker writes an empty entry if a credential helper has the login
			logins = append(logins, registryLogin{host: host, path: prefix, login: login})
		}
	}
	return logins, nil
}

func invalidDockerConfig(what string) *fault.Fault {
	return fault.New(meta.AuthenticationFailedReason, "the docker config of the Secret %s", what).
		WithHint("Create it with: kubectl create secret docker-registry NAME --docker-server=HOST " +
			"--docker-username=USER --docker-password=PASSWORD")
}

// registryKey parses a key of auths: HOST, HOST/PATH, or a URL of these. The API version at the end is ignored.
func registryKey(key string) (host, prefix string, ok bool) {
	if !strings.Contains(key, "://") {
		key = "https://" + key
	}
	u, err := url.Parse(key)
	if err != nil || u.Host == "" {
		return "", "", false
	}
	prefix = strings.Trim(u.Path, "/")
	if prefix == "v1" || prefix == "v2" {
		prefix = ""
	}
	return hub(strings.ToLower(u.Host)), prefix, true
}

func (a dockerAuth) login() (authn.AuthConfig, bool) {
	c := authn.AuthConfig{Username: a.Username, Password: a.Password, IdentityToken: a.IdentityToken,
		RegistryToken: a.RegistryToken}
	if a.Auth == "" {
		return c, true
	}
	plain, err := base64.StdEncoding.DecodeString(a.Auth)
	if err != nil {
		return c, false
	}
	name, password, ok := strings.Cut(string(plain), ":")
	if !ok {
		return c, false
	}
	c.Username, c.Password = name, strings.TrimRight(password, "\x00") // as docker does
	return c, true
}
