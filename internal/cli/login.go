package cli

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/sshkey"
)

// basicLogin is a username and a password.
type basicLogin struct{ username, password string }

func (l *basicLogin) bind(f *pflag.FlagSet) {
	f.StringVarP(&l.username, "username", "u", "", "name to log in by")
	f.StringVarP(&l.password, "password", "p", "", "password to log in by; - reads it from standard input")
}

func (l *basicLogin) given() bool { return *l != basicLogin{} }

// into adds the login to a Secret's data.
func (l *basicLogin) into(a *app, data map[string]string) error {
	if l.username == "" || l.password == "" {
		return usagef("--username and --password go together")
	}
	password, err := a.private("password", l.password)
	if err != nil {
		return err
	}
	data["username"], data["password"] = l.username, password
	return nil
}

// dockerHub is how the clients of registries know docker.io.
const dockerHub = "https://index.docker.io/v1/"

// registry returns the login as the data of a pull secret for the host of an address, with or without oci://
// and a path.
func (l *basicLogin) registry(a *app, address string) (map[string]string, error) {
	login := map[string]string{}
	if err := l.into(a, login); err != nil {
		return nil, err
	}
	_, host, found := strings.Cut(address, "://")
	if !found {
		host = address
	}
	host, _, _ = strings.Cut(host, "/")
	if u, err := url.Parse("//" + host); err != nil || u.Host == "" || u.User != nil {
		return nil, usagef("--url must be the address of a registry, such as registry.example.com")
	}
	if slices.Contains([]string{"docker.io", "index.docker.io", "registry-1.docker.io"}, host) {
		host = dockerHub
	}
	login["auth"] = base64.StdEncoding.EncodeToString([]byte(login["username"] + ":" + login["password"]))
	config, err := json.Marshal(map[string]any{"auths": map[string]any{host: login}})
	return map[string]string{corev1.DockerConfigJsonKey: string(config)}, err
}

// tlsFiles are files in PEM.
type tlsFiles struct {
	ca, cert, key             string
	caFlag, certFlag, keyFlag string
}

func (t *tlsFiles) bind(f *pflag.FlagSet, ca, cert, key string) {
	t.caFlag, t.certFlag, t.keyFlag = ca, cert, key
	f.StringVar(&t.ca, ca, "", "file with the certificate authority in PEM")
	f.StringVar(&t.cert, cert, "", "file with the client's certificate in PEM")
	f.StringVar(&t.key, key, "", "file with the client's private key in PEM")
}

func (t *tlsFiles) given() bool { return t.ca != "" || t.cert != "" || t.key != "" }

// into adds the files to a Secret's data.
func (t *tlsFiles) into(data map[string]string) error {
	if (t.cert == "") != (t.key == "") {
		return usagef("--%s and --%s go together", t.certFlag, t.keyFlag)
	}
	for _, f := range []struct{ key, flag, file string }{
		{"ca.crt", t.caFlag, t.ca}, {"tls.crt", t.certFlag, t.cert}, {"tls.key", t.keyFlag, t.key},
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

// readTLS reads certificates as the controllers do.
func readTLS(data map[string][]byte) error {
	t, err := auth.TLSFrom(data)
	if err == nil {
		_, err = t.Config()
	}
	return err
}

// gitLogin is the login to a git server.
type gitLogin struct {
	basicLogin
	bearerToken, caFile string
	keyFile, knownHosts string
	key                 sshkey.Spec
}

func (l *gitLogin) bind(f *pflag.FlagSet) {
	f.StringVarP(&l.username, "username", "u", "", "name to log in by, over http and https")
	f.StringVarP(&l.password, "password", "p", "",
		"password to log in by, or over ssh the passphrase of the key; - reads it from standard input")
	f.StringVar(&l.keyFile, "private-key-file", "",
		"file with the private key to log in by over ssh (default: a key is made)")
	f.StringVar(&l.knownHosts, "known-hosts-file", "",
		"file with the keys of the host, for ssh (default: the host is asked)")
	f.StringVar(&l.key.Algorithm, "ssh-key-algorithm", "ecdsa", "of the key that is made: "+
		strings.Join(sshkey.Algorithms, ", "))
	f.StringVar(&l.key.Curve, "ssh-ecdsa-curve", "p384", "of an ecdsa key that is made: "+
		strings.Join(sshkey.Curves, ", "))
	f.IntVar(&l.key.Bits, "ssh-rsa-bits", 3072, "of an rsa key that is made")
}

func (l *gitLogin) given() bool { return l.basicLogin.given() || l.bearerToken != "" || l.caFile != "" }

// secretFor gives a creation the Secret for a repository, and returns its name. A key that was made in an
// earlier run is kept.
func (l *gitLogin) secretFor(ctx context.Context, c *creation, u *url.URL) (string, error) {
	if u.Scheme == "ssh" && l.keyFile == "" && !c.export {
		cluster, err := c.client()
		if err != nil {
			return "", err
		}
		s := &corev1.Secret{}
		err = cluster.Get(ctx, client.ObjectKey{Namespace: c.namespace(), Name: c.name}, s)
		if client.IgnoreNotFound(err) != nil {
			return "", explain("cannot look for Secret '"+c.name+"'", err)
		}
		if err == nil && len(s.Data["identity"]) > 0 {
			c.step("taking the key of Secret '%s'", c.name)
			return c.name, nil
		}
	}
	if err := l.make(ctx, c, u); err != nil {
		return "", err
	}
	return c.secret.Name, nil
}

// make gives a creation the Secret for a repository.
func (l *gitLogin) make(ctx context.Context, c *creation, u *url.URL) error {
	data := map[string]string{}
	of := l.overHTTP
	if u.Scheme == "ssh" {
		of = l.overSSH
	}
	if err := of(ctx, c, u, data); err != nil {
		return err
	}
	return c.give(corev1.SecretTypeOpaque, data, readTLS, func(data map[string][]byte) error {
		_, err := auth.Git(u.String(), data)
		return err
	})
}

func (l *gitLogin) overHTTP(_ context.Context, c *creation, _ *url.URL, data map[string]string) error {
	if l.keyFile != "" || l.knownHosts != "" {
		return usagef("keys are for URLs that begin with ssh://")
	}
	if l.bearerToken != "" && l.basicLogin.given() {
		return usagef("--bearer-token is instead of --username and --password")
	}
	var err error
	if l.bearerToken != "" {
		if data["bearerToken"], err = c.private("bearer-token", l.bearerToken); err != nil {
			return err
		}
	}
	if l.basicLogin.given() {
		if err := l.into(c.app, data); err != nil {
			return err
		}
	}
	return (&tlsFiles{ca: l.caFile, caFlag: "ca-crt-file"}).into(data)
}

func (l *gitLogin) overSSH(ctx context.Context, c *creation, u *url.URL, data map[string]string) error {
	if l.username != "" || l.bearerToken != "" || l.caFile != "" {
		return usagef("over ssh the login is a key, and the name stands in the URL, as in ssh://git@HOST/PATH")
	}
	if err := l.identity(c, data); err != nil {
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
		return fmt.Errorf("%w. Correct --url, or give the host's keys by --known-hosts-file", err)
	}
	c.step("%s has these keys, which are trusted from now on; compare them with what its owner publishes:", u.Host)
	for _, fingerprint := range keys.Fingerprints {
		c.step("  %s", fingerprint)
	}
	data["known_hosts"] = string(keys.KnownHosts)
	return nil
}

// identity reads the private key, or makes one, which the host has yet to be told of.
func (l *gitLogin) identity(c *creation, data map[string]string) error {
	if l.keyFile == "" && l.password != "" {
		return usagef("--password is the passphrase of the key in --private-key-file, which is missing")
	}
	var err error
	if l.keyFile != "" {
		if data["identity"], err = readFile("private-key-file", l.keyFile); err != nil {
			return err
		}
		if l.password != "" {
			if data["password"], err = c.private("password", l.password); err != nil {
				return err
			}
		}
	} else {
		if err := l.key.Check(); err != nil {
			return usagef("--ssh-key-algorithm: %w", err)
		}
		private, err := sshkey.Generate(l.key)
		if err != nil {
			return err
		}
		data["identity"] = string(private)
	}
	public, err := sshkey.Public([]byte(data["identity"]), data["password"])
	if err != nil {
		return fmt.Errorf("%w. --private-key-file names the key, --password its passphrase", err)
	}
	data["identity.pub"], c.deployKey = string(public), strings.TrimSpace(string(public))
	return nil
}

// gitSecret is the flags of `create secret git`.
type gitSecret struct {
	url   string
	login gitLogin
}

func (s *gitSecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.url, "url", "", "URL of the repository, over http, https or ssh")
	s.login.bind(f)
	f.StringVar(&s.login.bearerToken, "bearer-token", "",
		"token to log in by, over http and https; - reads it from standard input")
	f.StringVar(&s.login.caFile, "ca-crt-file", "", "file with the host's certificate authority in PEM")
	return "--url ssh://git@example.com/org/app --ssh-key-algorithm ed25519"
}

func (s *gitSecret) make(ctx context.Context, c *creation) error {
	if err := need("url", s.url); err != nil {
		return err
	}
	u, err := gitURL(s.url)
	if err != nil {
		return err
	}
	if u.Scheme != "ssh" && !s.login.given() {
		return usagef("nothing to put in: give --username and --password, --bearer-token or --ca-crt-file")
	}
	return s.login.make(ctx, c, u)
}

// gitURL reads the URL of a repository. The error leaves it out, as it may hold a password.
func gitURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "ssh"}, u.Scheme) {
		return nil, usagef("--url cannot be read: write it as https://HOST/PATH or ssh://git@HOST/PATH")
	}
	if _, has := u.User.Password(); has {
		return nil, usagef("--url holds a password, which everybody who may read the object would see: give it by " +
			"--username and --password")
	}
	return u, nil
}
