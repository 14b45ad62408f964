package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/verify/notation"
)

// secretKind is a kind of Secret that the controllers read. A new one is one more entry in secretKinds.
type secretKind struct {
	words []string
	short string
	new   func() secretMaker
}

// secretMaker makes a Secret: flags to data.
type secretMaker interface {
	// bind adds the flags, and returns an example of them that makes a Secret.
	bind(f *pflag.FlagSet) string
	// make gives the creation its Secret.
	make(ctx context.Context, c *creation) error
}

var secretKinds = []secretKind{
	{[]string{"git"}, "the login to a git server", func() secretMaker { return &gitSecret{} }},
	{[]string{"oci"}, "the login to an OCI registry", func() secretMaker { return &ociSecret{} }},
	{[]string{"helm"}, "the login to a Helm repository", func() secretMaker { return &helmSecret{} }},
	{[]string{"tls"}, "certificates", func() secretMaker { return &tlsSecret{} }},
	{[]string{"proxy"}, "a proxy and the login to it", func() secretMaker { return &proxySecret{} }},
	{[]string{"githubapp", "github-app"}, "a GitHub App", func() secretMaker { return &githubAppSecret{} }},
	{[]string{"notation"}, "the trust policy and certificates of Notation",
		func() secretMaker { return &notationSecret{} }},
	{[]string{"receiver"}, "the token of a Receiver's webhook", func() secretMaker { return &receiverSecret{} }},
}

func (a *app) createSecret(o *createOptions) *cobra.Command {
	c := group("secret", "Create or update a Secret that the controllers read",
		`  sluice create secret git login --url ssh://git@example.com/org/app
  sluice create secret oci login --url registry.example.com --username me --password - --export`)
	c.Long = `Create or update a Secret that the controllers read. A value of - is read from a line of standard input, so that it stands
neither in the shell's history nor in the list of processes. Nothing private is printed, but by --export.`
	for _, k := range secretKinds {
		m := k.new()
		sub := &cobra.Command{
			Use:               k.words[0] + " NAME",
			Aliases:           k.words[1:],
			Short:             "Create or update a Secret with " + k.short,
			Args:              oneNewName,
			ValidArgsFunction: cobra.NoFileCompletions,
			RunE: func(cmd *cobra.Command, args []string) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
				defer cancel()
				c := &creation{app: a, name: args[0], labels: o.labels, export: o.export}
				if err := m.make(ctx, c); err != nil {
					return err
				}
				if c.export {
					return a.printDeclared(c.secret)
				}
				return a.storeSecret(ctx, c)
			},
		}
		sub.Example = fmt.Sprintf("  sluice create secret %s NAME %s", k.words[0], m.bind(sub.Flags()))
		c.AddCommand(sub)
	}
	return c
}

// storeSecret stores the Secret of a creation, and shows the public half of its key.
func (a *app) storeSecret(ctx context.Context, c *creation) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	cluster, err := a.client()
	if err != nil {
		return err
	}
	if _, err := a.put(ctx, cluster, c.secret); err != nil {
		return err
	}
	if c.deployKey != "" {
		fmt.Fprintln(a.out, c.deployKey)
		a.step("above is the public key: the repository's host must know it as a deploy key")
	}
	return nil
}

// give makes the Secret of a creation. What the controllers cannot read, by any of the readers, is refused.
func (c *creation) give(kind corev1.SecretType, data map[string]string,
	readers ...func(map[string][]byte) error) error {
	stored := map[string][]byte{}
	for key, value := range data {
		stored[key] = []byte(value)
	}
	for _, read := range readers {
		if err := read(stored); err != nil {
			return err
		}
	}
	c.secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: c.namespace(), Labels: c.labels},
		Type:       kind, StringData: data,
	}
	return nil
}

// private returns the value of a flag that may be - for a line of standard input, which a terminal does not show.
func (a *app) private(flag, value string) (string, error) {
	if value != "-" {
		return value, nil
	}
	var line string
	var err error
	if a.terminal != nil {
		fmt.Fprintf(a.err, "--%s: ", flag)
		var typed []byte
		typed, err = term.ReadPassword(int(a.terminal.Fd()))
		line = string(typed)
		fmt.Fprintln(a.err)
	} else {
		line, err = a.in.ReadString('\n')
	}
	if line = strings.TrimRight(line, "\r\n"); line != "" {
		return line, nil
	}
	return "", fmt.Errorf("standard input holds no value for --%s: %w", flag,
		cmp.Or(err, errors.New("the line is empty")))
}

// readFile reads the file that a flag names.
func readFile(flag, file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	return string(b), nil
}

// ociSecret is the flags of `create secret oci`.
type ociSecret struct {
	url   string
	login basicLogin
}

func (s *ociSecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.url, "url", "", "address of the registry, such as registry.example.com")
	s.login.bind(f)
	return "--url registry.example.com --username me --password -"
}

func (s *ociSecret) make(_ context.Context, c *creation) error {
	if err := errors.Join(need("url", s.url), need("username", s.login.username),
		need("password", s.login.password)); err != nil {
		return err
	}
	data, err := s.login.registry(c.app, s.url)
	if err != nil {
		return err
	}
	return c.give(corev1.SecretTypeDockerConfigJson, data)
}

// helmSecret is the flags of `create secret helm`.
type helmSecret struct {
	login basicLogin
	tls   tlsFiles
}

func (s *helmSecret) bind(f *pflag.FlagSet) string {
	s.login.bind(f)
	s.tls.bind(f, "ca-crt-file", "tls-crt-file", "tls-key-file")
	return "--username me --password -"
}

func (s *helmSecret) make(_ context.Context, c *creation) error {
	if !s.login.given() && !s.tls.given() {
		return usagef("nothing to put in: give --username and --password, or certificates")
	}
	data := map[string]string{}
	if s.login.given() {
		if err := s.login.into(c.app, data); err != nil {
			return err
		}
	}
	if err := s.tls.into(data); err != nil {
		return err
	}
	return c.give(corev1.SecretTypeOpaque, data, readTLS)
}

// tlsSecret is the flags of `create secret tls`.
type tlsSecret struct{ files tlsFiles }

func (s *tlsSecret) bind(f *pflag.FlagSet) string {
	s.files.bind(f, "ca-crt-file", "tls-crt-file", "tls-key-file")
	return "--ca-crt-file ca.crt --tls-crt-file client.crt --tls-key-file client.key"
}

func (s *tlsSecret) make(_ context.Context, c *creation) error {
	if !s.files.given() {
		return usagef("nothing to put in: give --ca-crt-file, or --tls-crt-file and --tls-key-file, or all")
	}
	data := map[string]string{}
	if err := s.files.into(data); err != nil {
		return err
	}
	return c.give(corev1.SecretTypeOpaque, data, readTLS)
}

// proxySecret is the flags of `create secret proxy`.
type proxySecret struct {
	address string
	login   basicLogin
}

func (s *proxySecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.address, "address", "", "URL of the proxy, such as http://proxy.example.com:3128")
	s.login.bind(f)
	return "--address http://proxy.example.com:3128 --username me --password -"
}

func (s *proxySecret) make(_ context.Context, c *creation) error {
	if err := need("address", s.address); err != nil {
		return err
	}
	if u, err := url.Parse(s.address); err == nil && u.User != nil {
		return usagef("--address holds a login: give it by --username and --password")
	}
	data := map[string]string{"address": s.address}
	if s.login.given() {
		if err := s.login.into(c.app, data); err != nil {
			return err
		}
	}
	return c.give(corev1.SecretTypeOpaque, data, func(data map[string][]byte) error {
		_, err := auth.ProxyFrom(data)
		return err
	})
}

// githubAppSecret is the flags of `create secret githubapp`.
type githubAppSecret struct{ id, installation, owner, key, baseURL string }

func (s *githubAppSecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.id, "app-id", "", "ID of the app")
	f.StringVar(&s.installation, "app-installation-id", "", "ID of the installation")
	f.StringVar(&s.owner, "app-installation-owner", "", "organization or user of the installation, instead of its ID")
	f.StringVar(&s.key, "app-private-key", "", "file with the app's private key in PEM")
	f.StringVar(&s.baseURL, "app-base-url", "",
		"API of a GitHub Enterprise Server, such as https://github.example.com/api/v3")
	return "--app-id 1 --app-installation-id 2 --app-private-key app.pem"
}

func (s *githubAppSecret) make(_ context.Context, c *creation) error {
	if err := errors.Join(need("app-id", s.id), need("app-private-key", s.key)); err != nil {
		return err
	}
	key, err := readFile("app-private-key", s.key)
	if err != nil {
		return err
	}
	data := map[string]string{"githubAppID": s.id, "githubAppPrivateKey": key}
	for name, value := range map[string]string{
		"githubAppInstallationID": s.installation, "githubAppInstallationOwner": s.owner, "githubAppBaseURL": s.baseURL,
	} {
		if value != "" {
			data[name] = value
		}
	}
	return c.give(corev1.SecretTypeOpaque, data, func(data map[string][]byte) error {
		_, err := auth.GitHubAppFrom(data)
		return err
	})
}

// notationSecret is the flags of `create secret notation`.
type notationSecret struct {
	policy string
	cas    []string
}

func (s *notationSecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.policy, "trust-policy-file", "", "file with the trust policy in JSON")
	f.StringSliceVar(&s.cas, "ca-cert-file", nil, "files with root certificates, .crt or .pem")
	return "--trust-policy-file policy.json --ca-cert-file root.crt"
}

func (s *notationSecret) make(_ context.Context, c *creation) error {
	if err := errors.Join(need("trust-policy-file", s.policy),
		need("ca-cert-file", strings.Join(s.cas, ""))); err != nil {
		return err
	}
	policy, err := readFile("trust-policy-file", s.policy)
	if err != nil {
		return err
	}
	data := map[string]string{"trustpolicy.json": policy}
	for _, file := range s.cas {
		name := filepath.Base(file)
		if ext := filepath.Ext(name); ext != ".crt" && ext != ".pem" {
			return usagef("--ca-cert-file %s: only names that end in .crt or .pem are read", file)
		}
		if data[name] != "" {
			return usagef("--ca-cert-file: two files are named %s", name)
		}
		if data[name], err = readFile("ca-cert-file", file); err != nil {
			return err
		}
	}
	return c.give(corev1.SecretTypeOpaque, data, func(data map[string][]byte) error {
		_, err := notation.New(data, http.DefaultTransport)
		return err
	})
}
