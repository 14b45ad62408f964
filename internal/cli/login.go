package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
)

// basicLogin holds the flags for a username and a password.
type basicLogin struct{ username, password string }

func (l *basicLogin) bind(f *pflag.FlagSet) {
	f.StringVarP(&l.username, "username", "u", "", "username")
	f.StringVarP(&l.password, "password", "p", "", "password; - reads it from standard input")
}

func (l *basicLogin) isSet() bool { return *l != basicLogin{} }

// addTo adds the credentials to the data of a Secret.
func (l *basicLogin) addTo(e *env, data map[string]string) error {
	if l.username == "" || l.password == "" {
		return usagef("set both --username and --password")
	}
	password, err := e.readSecret("password", l.password)
	if err != nil {
		return err
	}
	data["username"], data["password"] = l.username, password
	return nil
}

// dockerHub is the key of docker.io in Docker configuration files.
const dockerHub = "https://index.docker.io/v1/"

// registry returns the data of a pull secret for the host of an address, which may have a scheme and a path.
func (l *basicLogin) registry(e *env, address string) (map[string]string, error) {
	login := map[string]string{}
	if err := l.addTo(e, login); err != nil {
		return nil, err
	}
	_, host, found := strings.Cut(address, "://")
	if !found {
		host = address
	}
	host, _, _ = strings.Cut(host, "/")
	if u, err := url.Parse("//" + host); err != nil || u.Host == "" || u.User != nil {
		return nil, usagef("invalid --url: use the address of a registry, such as registry.example.com")
	}
	if slices.Contains([]string{"docker.io", "index.docker.io", "registry-1.docker.io"}, host) {
		host = dockerHub
	}
	login["auth"] = base64.StdEncoding.EncodeToString([]byte(login["username"] + ":" + login["password"]))
	config, err := json.Marshal(map[string]any{"auths": map[string]any{host: login}})
	return map[string]string{corev1.DockerConfigJsonKey: string(config)}, err
}

// tlsFiles holds the flags for PEM files.
type tlsFiles struct {
	ca, cert, key             string
	caFlag, certFlag, keyFlag string
}

func (t *tlsFiles) bind(f *pflag.FlagSet, ca, cert, key string) {
	t.caFlag, t.certFlag, t.keyFlag = ca, cert, key
	f.StringVar(&t.ca, ca, "", "PEM file with the CA certificate")
	f.StringVar(&t.cert, cert, "", "PEM file with the client certificate")
	f.StringVar(&t.key, key, "", "PEM file with the private key of the client")
}

func (t *tlsFiles) isSet() bool { return t.ca != "" || t.cert != "" || t.key != "" }

// addTo adds the files to the data of a Secret.
func (t *tlsFiles) addTo(data map[string]string) error {
	if (t.cert == "") != (t.key == "") {
		return usagef("set both --%s and --%s", t.certFlag, t.keyFlag)
	}
	for _, f := range []struct{ key, flag, file string }{
		{key: "ca.crt", flag: t.caFlag, file: t.ca},
		{key: "tls.crt", flag: t.certFlag, file: t.cert},
		{key: "tls.key", flag: t.keyFlag, file: t.key},
	} {
		if f.file == "" {
			continue
		}
		content, err := readFile(f.flag, f.file)
		if err != nil {
			return err
		}
		data[f.key] = content
	}
	return nil
}

// checkTLS returns an error if the controllers could not use the certificates.
func checkTLS(data map[string][]byte) error {
	t, err := auth.TLSFrom(data)
	if err == nil {
		_, err = t.Config()
	}
	return err
}

// gitLogin holds the flags for credentials of a git server.
type gitLogin struct {
	basicLogin
	bearerToken, caFile string
	keyFile, knownHosts string
	key                 sshkey.Spec
}

func (l *gitLogin) bind(f *pflag.FlagSet) {
	f.StringVarP(&l.username, "username", "u", "", "username, for http and https")
	f.StringVarP(&l.password, "password", "p", "",
		"password, or for ssh the passphrase of the key; - reads it from standard input")
	f.StringVar(&l.keyFile, "private-key-file", "",
		"file with the private key for ssh (default: create a key)")
	f.StringVar(&l.knownHosts, "known-hosts-file", "",
		"known_hosts file for ssh (default: ask the host for its keys)")
	f.StringVar(&l.key.Algorithm, "ssh-key-algorithm", "ecdsa", "algorithm of the created key: "+
		strings.Join(sshkey.Algorithms, ", "))
	f.StringVar(&l.key.Curve, "ssh-ecdsa-curve", "p384", "curve of the created ecdsa key: "+
		strings.Join(sshkey.Curves, ", "))
	f.IntVar(&l.key.Bits, "ssh-rsa-bits", 3072, "size of the created rsa key in bits")
}

func (l *gitLogin) isSet() bool { return l.basicLogin.isSet() || l.bearerToken != "" || l.caFile != "" }

// secretFor sets the Secret of the creation for a repository, and returns its name. An existing Secret with an SSH key
// is used as it is.
func (l *gitLogin) secretFor(ctx context.Context, c *creation, u *url.URL) (string, error) {
	if u.Scheme == "ssh" && l.keyFile == "" && !c.export {
		key, err := storedKey(ctx, c)
		if err != nil {
			return "", err
		}
		if key != nil {
			public, err := publicKey(key)
			if err != nil {
				return "", err
			}
			c.printDeployKey(public)
			return c.name, nil
		}
	}
	if err := l.build(ctx, c, u); err != nil {
		return "", err
	}
	return c.secret.Name, nil
}

// storedKey returns the private key in the Secret that an earlier run created, with its passphrase, or nil.
func storedKey(ctx context.Context, c *creation) (map[string]string, error) {
	cl, err := c.Client()
	if err != nil {
		return nil, err
	}
	s := &corev1.Secret{}
	err = cl.Get(ctx, client.ObjectKey{Namespace: c.Namespace(), Name: c.name}, s)
	if client.IgnoreNotFound(err) != nil {
		return nil, cluster.Explain("cannot get Secret '"+c.name+"'", err)
	}
	if err != nil || len(s.Data["identity"]) == 0 {
		return nil, nil
	}
	c.Step("using the key in Secret '%s'; delete the Secret to create another key", c.name)
	key := map[string]string{"identity": string(s.Data["identity"])}
	if len(s.Data["password"]) > 0 {
		key["password"] = string(s.Data["password"])
	}
	return key, nil
}

// publicKey returns the public half of the private key in the data of a Secret.
func publicKey(data map[string]string) (string, error) {
	public, err := sshkey.Public([]byte(data["identity"]), data["password"])
	if err != nil {
		return "", fmt.Errorf("%w. Check --private-key-file, and --password if the key has a passphrase", err)
	}
	return string(public), nil
}

// build sets the Secret of the creation for a repository.
func (l *gitLogin) build(ctx context.Context, c *creation, u *url.URL) error {
	data := map[string]string{}
	addCredentials := l.addHTTP
	if u.Scheme == "ssh" {
		addCredentials = l.addSSH
	}
	if err := addCredentials(ctx, c, u, data); err != nil {
		return err
	}
	return c.setSecret(corev1.SecretTypeOpaque, data, checkTLS, func(data map[string][]byte) error {
		_, err := auth.Git(u.String(), data)
		return err
	})
}

func (l *gitLogin) addHTTP(_ context.Context, c *creation, _ *url.URL, data map[string]string) error {
	if l.keyFile != "" || l.knownHosts != "" {
		return usagef("--private-key-file and --known-hosts-file need a --url that begins with ssh://")
	}
	if l.bearerToken != "" && l.basicLogin.isSet() {
		return usagef("--bearer-token and --username exclude each other")
	}
	var err error
	if l.bearerToken != "" {
		if data["bearerToken"], err = c.readSecret("bearer-token", l.bearerToken); err != nil {
			return err
		}
	}
	if l.basicLogin.isSet() {
		if err := l.addTo(c.env, data); err != nil {
			return err
		}
	}
	return (&tlsFiles{ca: l.caFile, caFlag: "ca-crt-file"}).addTo(data)
}

func (l *gitLogin) addSSH(ctx context.Context, c *creation, u *url.URL, data map[string]string) error {
	if l.username != "" || l.bearerToken != "" || l.caFile != "" {
		return usagef("ssh uses keys: remove --username, --bearer-token and CA files, and put the username into the " +
			"URL, as in " +
			"ssh://git@HOST/PATH")
	}
	if err := l.addIdentity(ctx, c, data); err != nil {
		return err
	}
	if l.knownHosts != "" {
		var err error
		data["known_hosts"], err = readFile("known-hosts-file", l.knownHosts)
		return err
	}
	port := u.Port()
	if port == "" {
		port = "22"
	}
	keys, err := sshkey.Scan(ctx, net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return fmt.Errorf("%w. Correct --url, or set --known-hosts-file", err)
	}
	c.Step("%s has these host keys, which will be trusted. Compare them with those that its owner publishes:", u.Host)
	for _, fingerprint := range keys.Fingerprints {
		c.Step("  %s", fingerprint)
	}
	data["known_hosts"] = string(keys.KnownHosts)
	return nil
}

// addIdentity adds the private key to the data of a Secret: that of the file, else that of the existing Secret, else a
// created one.
func (l *gitLogin) addIdentity(ctx context.Context, c *creation, data map[string]string) error {
	if l.keyFile == "" && l.password != "" {
		return usagef("--password is the passphrase of a key: --private-key-file is missing")
	}
	var err error
	if l.keyFile != "" {
		if data["identity"], err = readFile("private-key-file", l.keyFile); err != nil {
			return err
		}
		if l.password != "" {
			if data["password"], err = c.readSecret("password", l.password); err != nil {
				return err
			}
		}
	} else if err := l.ownKey(ctx, c, data); err != nil {
		return err
	}
	public, err := publicKey(data)
	data["identity.pub"], c.deployKey = public, strings.TrimSpace(public)
	return err
}

// ownKey adds the key that an earlier run stored, or a new one.
func (l *gitLogin) ownKey(ctx context.Context, c *creation, data map[string]string) error {
	if err := l.key.Check(); err != nil {
		return usagef("invalid --ssh-key-algorithm: %w", err)
	}
	if !c.export {
		key, err := storedKey(ctx, c)
		maps.Copy(data, key)
		if err != nil || key != nil {
			return err
		}
	}
	private, err := sshkey.Generate(l.key)
	data["identity"] = string(private)
	return err
}

// gitSecret holds the flags of `create secret git`.
type gitSecret struct {
	url   string
	login gitLogin
}

func (s *gitSecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.url, "url", "", "URL of the repository: http, https or ssh")
	s.login.bind(f)
	f.StringVar(&s.login.bearerToken, "bearer-token", "",
		"token for http and https; - reads it from standard input")
	f.StringVar(&s.login.caFile, "ca-crt-file", "", "PEM file with the CA certificate of the host")
	return "--url ssh://git@example.com/org/app --ssh-key-algorithm ed25519"
}

func (s *gitSecret) build(ctx context.Context, c *creation) error {
	if err := require("url", s.url); err != nil {
		return err
	}
	u, err := gitURL(s.url)
	if err != nil {
		return err
	}
	if u.Scheme != "ssh" && !s.login.isSet() {
		return usagef("nothing to store: set --username and --password, --bearer-token or --ca-crt-file")
	}
	return s.login.build(ctx, c, u)
}

// gitURL parses the URL of a repository. Its errors do not contain the URL, which may contain a password.
func gitURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "ssh"}, u.Scheme) {
		return nil, usagef("invalid --url: use https://HOST/PATH or ssh://git@HOST/PATH")
	}
	if _, has := u.User.Password(); has {
		return nil, usagef("--url contains a password, which everyone who may read the object could see: use " +
			"--username and --password instead")
	}
	return u, nil
}
