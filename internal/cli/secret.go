package cli

import (
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/credentials/verify/notation"
	"github.com/sluice-gitops/sluice/internal/network/auth"
)

// secretType is a type of Secret that `sluice create secret` creates. A new type is one more entry in secretTypes.
type secretType struct {
	words    []string
	content  string // for help
	newFlags func() secretFlags
}

// secretFlags are the flags for one type of Secret.
type secretFlags interface {
	// bind adds the flags. It returns an example of them that is sufficient to create a Secret.
	bind(f *pflag.FlagSet) string
	// build sets the Secret of the creation.
	build(ctx context.Context, c *creation) error
}

var secretTypes = []secretType{
	{
		words: []string{"git"}, content: "credentials for a git server",
		newFlags: func() secretFlags { return &gitSecret{} },
	},
	{
		words: []string{"oci"}, content: "credentials for an OCI registry",
		newFlags: func() secretFlags { return &ociSecret{} },
	},
	{
		words: []string{"helm"}, content: "credentials for a Helm repository",
		newFlags: func() secretFlags { return &helmSecret{} },
	},
	{
		words: []string{"tls"}, content: "TLS certificates",
		newFlags: func() secretFlags { return &tlsSecret{} },
	},
	{
		words: []string{"proxy"}, content: "the address of a proxy and credentials for it",
		newFlags: func() secretFlags { return &proxySecret{} },
	},
	{
		words: []string{"githubapp", "github-app"}, content: "the private key of a GitHub App",
		newFlags: func() secretFlags { return &githubAppSecret{} },
	},
	{
		words: []string{"notation"}, content: "a Notation trust policy and certificates",
		newFlags: func() secretFlags { return &notationSecret{} },
	},
	{
		words: []string{"receiver"}, content: "the token of a Receiver's webhook",
		newFlags: func() secretFlags { return &receiverSecret{} },
	},
}

func newCreateSecretCommand(e *env, o *createOptions) *cobra.Command {
	c := newGroup("secret", "Create or update a Secret for the controllers",
		`  sluice create secret git login --url ssh://git@example.com/org/app
  sluice create secret oci login --url registry.example.com \
    --username me --password - --export`)
	c.Long = `Create or update a Secret for the controllers.

If the value of a secret flag is -, it is read from a line of standard input, so
that it does not appear in the shell history and the process list. Secret values
are printed only with --export.`
	for _, t := range secretTypes {
		flags := t.newFlags()
		sub := &cobra.Command{
			Use:               t.words[0] + " NAME",
			Aliases:           t.words[1:],
			Short:             "Create or update a Secret with " + t.content,
			Args:              oneNewName,
			ValidArgsFunction: cobra.NoFileCompletions,
			RunE: e.bounded(func(ctx context.Context, args []string) error {
				c := &creation{env: e, createOptions: *o, name: args[0]}
				if err := flags.build(ctx, c); err != nil {
					return err
				}
				if c.export {
					return c.printDeclarations(c.secret)
				}
				return c.storeSecret(ctx)
			}),
		}
		sub.Example = fmt.Sprintf("  sluice create secret %s NAME %s", t.words[0], flags.bind(sub.Flags()))
		c.AddCommand(sub)
	}
	return c
}

// storeSecret stores the Secret of the creation, and prints the public half of its SSH key.
func (c *creation) storeSecret(ctx context.Context) error {
	ctx, cancel := c.WithTimeout(ctx)
	defer cancel()
	cl, err := c.Client()
	if err != nil {
		return err
	}
	if _, err := c.put(ctx, cl, c.secret); err != nil {
		return err
	}
	if c.deployKey != "" {
		c.printDeployKey(c.deployKey)
	}
	return nil
}

// printDeployKey prints the public key that the git host needs.
func (c *creation) printDeployKey(public string) {
	fmt.Fprintln(c.Out, strings.TrimSpace(public))
	c.Step("this is the public key: add it to the git host as a deploy key")
}

// setSecret sets the Secret of the creation. It returns an error if one of the readers, with which the controllers read
// it, does.
func (c *creation) setSecret(kind corev1.SecretType, data map[string]string,
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
		ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: c.Namespace(), Labels: c.labels},
		Type:       kind, StringData: data,
	}
	return nil
}

// readSecret returns the value of a flag, or a line of standard input if the value is -.
func (e *env) readSecret(flag, value string) (string, error) {
	if value != "-" {
		return value, nil
	}
	line, err := e.ReadSecret("--" + flag)
	if err != nil {
		return "", fmt.Errorf("cannot read --%s from standard input: %w", flag, err)
	}
	return line, nil
}

// readFile returns the content of the file that a flag names.
func readFile(flag, file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	return string(b), nil
}

// ociSecret holds the flags of `create secret oci`.
type ociSecret struct {
	url   string
	login basicLogin
}

func (s *ociSecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.url, "url", "", "address of the registry, such as registry.example.com")
	s.login.bind(f)
	return "--url registry.example.com --username me --password -"
}

func (s *ociSecret) build(_ context.Context, c *creation) error {
	if err := errors.Join(require("url", s.url), require("username", s.login.username),
		require("password", s.login.password)); err != nil {
		return err
	}
	data, err := s.login.registry(c.env, s.url)
	if err != nil {
		return err
	}
	return c.setSecret(corev1.SecretTypeDockerConfigJson, data)
}

// helmSecret holds the flags of `create secret helm`.
type helmSecret struct {
	login basicLogin
	tls   tlsFiles
}

func (s *helmSecret) bind(f *pflag.FlagSet) string {
	s.login.bind(f)
	s.tls.bind(f, "ca-crt-file", "tls-crt-file", "tls-key-file")
	return "--username me --password -"
}

func (s *helmSecret) build(_ context.Context, c *creation) error {
	if !s.login.isSet() && !s.tls.isSet() {
		return usagef("nothing to store: set --username and --password, or certificates")
	}
	data := map[string]string{}
	if s.login.isSet() {
		if err := s.login.addTo(c.env, data); err != nil {
			return err
		}
	}
	if err := s.tls.addTo(data); err != nil {
		return err
	}
	return c.setSecret(corev1.SecretTypeOpaque, data, checkTLS)
}

// tlsSecret holds the flags of `create secret tls`.
type tlsSecret struct{ files tlsFiles }

func (s *tlsSecret) bind(f *pflag.FlagSet) string {
	s.files.bind(f, "ca-crt-file", "tls-crt-file", "tls-key-file")
	return "--ca-crt-file ca.crt --tls-crt-file client.crt --tls-key-file client.key"
}

func (s *tlsSecret) build(_ context.Context, c *creation) error {
	if !s.files.isSet() {
		return usagef("nothing to store: set --ca-crt-file, or --tls-crt-file and --tls-key-file")
	}
	data := map[string]string{}
	if err := s.files.addTo(data); err != nil {
		return err
	}
	return c.setSecret(corev1.SecretTypeOpaque, data, checkTLS)
}

// proxySecret holds the flags of `create secret proxy`.
type proxySecret struct {
	address string
	login   basicLogin
}

func (s *proxySecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.address, "address", "", "URL of the proxy, such as http://proxy.example.com:3128")
	s.login.bind(f)
	return "--address http://proxy.example.com:3128 --username me --password -"
}

func (s *proxySecret) build(_ context.Context, c *creation) error {
	if err := require("address", s.address); err != nil {
		return err
	}
	if u, err := url.Parse(s.address); err == nil && u.User != nil {
		return usagef("--address contains credentials: use --username and --password instead")
	}
	data := map[string]string{"address": s.address}
	if s.login.isSet() {
		if err := s.login.addTo(c.env, data); err != nil {
			return err
		}
	}
	return c.setSecret(corev1.SecretTypeOpaque, data, func(data map[string][]byte) error {
		_, err := auth.ProxyFrom(data)
		return err
	})
}

// githubAppSecret holds the flags of `create secret githubapp`.
type githubAppSecret struct{ id, installation, owner, key, baseURL string }

func (s *githubAppSecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.id, "app-id", "", "ID of the GitHub App")
	f.StringVar(&s.installation, "app-installation-id", "", "ID of the installation")
	f.StringVar(&s.owner, "app-installation-owner", "", "organization or user of the installation, instead of its ID")
	f.StringVar(&s.key, "app-private-key", "", "PEM file with the private key of the app")
	f.StringVar(&s.baseURL, "app-base-url", "",
		"API URL of GitHub Enterprise Server, such as https://github.example.com/api/v3")
	return "--app-id 1 --app-installation-id 2 --app-private-key app.pem"
}

func (s *githubAppSecret) build(_ context.Context, c *creation) error {
	if err := errors.Join(require("app-id", s.id), require("app-private-key", s.key)); err != nil {
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
	return c.setSecret(corev1.SecretTypeOpaque, data, func(data map[string][]byte) error {
		_, err := auth.GitHubAppFrom(data)
		return err
	})
}

// notationSecret holds the flags of `create secret notation`.
type notationSecret struct {
	policy string
	cas    []string
}

func (s *notationSecret) bind(f *pflag.FlagSet) string {
	f.StringVar(&s.policy, "trust-policy-file", "", "JSON file with the trust policy")
	f.StringSliceVar(&s.cas, "ca-cert-file", nil, "files with root certificates, named .crt or .pem")
	return "--trust-policy-file policy.json --ca-cert-file root.crt"
}

func (s *notationSecret) build(_ context.Context, c *creation) error {
	if err := errors.Join(require("trust-policy-file", s.policy),
		require("ca-cert-file", strings.Join(s.cas, ""))); err != nil {
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
			return usagef("invalid --ca-cert-file %s: the name must end in .crt or .pem", file)
		}
		if data[name] != "" {
			return usagef("invalid --ca-cert-file: two files are named %s", name)
		}
		if data[name], err = readFile("ca-cert-file", file); err != nil {
			return err
		}
	}
	return c.setSecret(corev1.SecretTypeOpaque, data, func(data map[string][]byte) error {
		_, err := notation.New(data, http.DefaultTransport)
		return err
	})
}
