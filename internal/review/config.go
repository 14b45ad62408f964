// Package review reviews open pull requests: it previews what each one would do, says so on its git host, and keeps the
// results for the web UI. It reads, and asks the cluster to try writes without making them.
package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/review/proposal"
)

// Config is the file of --review-config. It is not read from a repository, so no pull request can change it.
type Config struct {
	Repositories []*Repository `json:"repositories"`
	// Interval is the time between two looks at the pull requests of a repository. A webhook needs no look.
	Interval metav1.Duration `json:"interval,omitempty"`
}

// Repository is a repository whose pull requests are reviewed.
type Repository struct {
	Name string       `json:"name"` // in addresses
	URL  string       `json:"url"`
	Type githost.Kind `json:"type"`
	// Files are relative to the directory of the configuration.
	TokenFile         string     `json:"tokenFile,omitempty"`
	GitHubApp         *GitHubApp `json:"githubApp,omitempty"` // instead of a token
	WebhookSecretFile string     `json:"webhookSecretFile,omitempty"`
	Branches          []string   `json:"branches,omitempty"` // that pull requests are reviewed for; all if empty
	Authors           []string   `json:"authors,omitempty"`  // who are allowed, by login
	Sources           []string   `json:"sources,omitempty"`  // as --source of `sluice preview`
	FailOn            string     `json:"failOn,omitempty"`
	Comment           *bool      `json:"comment,omitempty"` // default: true
	Status            *bool      `json:"status,omitempty"`  // default: true

	repository     githost.Repository
	secret         map[string][]byte // as that of a Provider
	app            *auth.GitHubApp   // nil with a token
	webhookSecret  string
	failOn         risk.Level
	comment, tells bool
}

// GitHubApp is a login as an installation of a GitHub App.
type GitHubApp struct {
	ID             int64  `json:"id"`
	InstallationID int64  `json:"installationID"`
	PrivateKeyFile string `json:"privateKeyFile"`
}

const (
	maxConfig       = 1 << 20 // bytes
	maxSecret       = 64 << 10
	defaultInterval = time.Minute
	minInterval     = 10 * time.Second
	minSecret       = 16 // characters of the secret of a webhook
)

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ReadConfig reads the configuration and the files that it names. FailOn is the level for repositories without one.
func ReadConfig(file string, failOn risk.Level) (*Config, error) {
	content, err := readFile(file, maxConfig)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	if err := yaml.UnmarshalStrict(content, c); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if err := c.complete(filepath.Dir(file), failOn); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

func (c *Config) complete(dir string, failOn risk.Level) error {
	c.Interval.Duration = cmp.Or(c.Interval.Duration, defaultInterval)
	if c.Interval.Duration < minInterval {
		return fmt.Errorf("interval is %s: set %s or more", c.Interval.Duration, minInterval)
	}
	if len(c.Repositories) == 0 {
		return errors.New("repositories is empty: name the repositories to review")
	}
	seen := map[string]bool{}
	for n, r := range c.Repositories {
		if r == nil || !validName.MatchString(r.Name) || seen[r.Name] {
			return fmt.Errorf("repositories[%d].name must be set, unique, and consist of at most 63 lower-case "+
				"letters, digits and hyphens", n)
		}
		seen[r.Name] = true
		if err := r.complete(dir, failOn); err != nil {
			return fmt.Errorf("repository '%s': %w", r.Name, err)
		}
	}
	return nil
}

func (r *Repository) complete(dir string, failOn risk.Level) (err error) {
	if r.repository, err = githost.Parse(r.Type, r.URL); err != nil {
		return err
	}
	if r.failOn = failOn; r.FailOn != "" {
		if r.failOn, err = risk.ParseLevel(r.FailOn); err != nil {
			return fmt.Errorf("failOn: %w", err)
		}
	}
	if err := r.readLogin(dir); err != nil {
		return err
	}
	r.comment, r.tells = r.Comment == nil || *r.Comment, r.Status == nil || *r.Status
	if r.WebhookSecretFile == "" {
		return nil
	}
	if r.webhookSecret, err = readSecret(dir, r.WebhookSecretFile); err != nil {
		return fmt.Errorf("webhookSecretFile: %w", err)
	}
	if len(r.webhookSecret) < minSecret {
		return fmt.Errorf("webhookSecretFile: the secret has fewer than %d characters", minSecret)
	}
	return nil
}

// readLogin reads the token, or the key of the app.
func (r *Repository) readLogin(dir string) error {
	switch {
	case (r.TokenFile == "") == (r.GitHubApp == nil):
		return errors.New("set either tokenFile, a file with a token of the git host, or githubApp")
	case r.GitHubApp == nil:
		token, err := readSecret(dir, r.TokenFile)
		if err != nil {
			return fmt.Errorf("tokenFile: %w", err)
		}
		r.secret = map[string][]byte{"token": []byte(token)}
		return nil
	case r.Type != githost.GitHub:
		return errors.New("githubApp needs type github")
	}
	key, err := readSecret(dir, r.GitHubApp.PrivateKeyFile)
	if err != nil {
		return fmt.Errorf("githubApp.privateKeyFile: %w", err)
	}
	r.secret = map[string][]byte{"githubAppID": fmt.Append(nil, r.GitHubApp.ID),
		"githubAppInstallationID": fmt.Append(nil, r.GitHubApp.InstallationID), "githubAppPrivateKey": []byte(key)}
	if base := r.repository.Base; base.Host != "github.com" {
		r.secret["githubAppBaseURL"] = []byte(base.Scheme + "://" + base.Host + "/api/v3")
	}
	r.app, err = auth.GitHubAppFrom(r.secret)
	return err
}

// cloneLogin returns the login to fetch with.
func (r *Repository) cloneLogin(apps *auth.GitHubApps, to http.RoundTripper) func(context.Context) (
	transport.AuthMethod, error) {
	return func(ctx context.Context) (transport.AuthMethod, error) {
		c, err := r.gitLogin(ctx, apps, to)
		if c.BearerToken != "" {
			return &githttp.TokenAuth{Token: c.BearerToken}, err
		}
		return &githttp.BasicAuth{Username: c.Username, Password: c.Password}, err
	}
}

// gitLogin returns the login of git.
func (r *Repository) gitLogin(ctx context.Context, apps *auth.GitHubApps, to http.RoundTripper) (
	c auth.GitCredentials, err error) {
	if r.app != nil {
		return apps.Git(ctx, r.app, to)
	}
	c.Username, c.Password, c.BearerToken = r.Type.GitLogin(string(r.secret["token"]))
	return c, nil
}

func readSecret(dir, name string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	content, err := readFile(name, maxSecret)
	if err != nil {
		return "", err
	}
	if secret := strings.TrimSpace(string(content)); secret != "" {
		return secret, nil
	}
	return "", fmt.Errorf("%s is empty", name)
}

func readFile(name string, limit int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return os.ReadFile(name)
}

// reviews reports whether pull requests for a branch are reviewed.
func (r *Repository) reviews(base string) bool {
	return len(r.Branches) == 0 || slices.Contains(r.Branches, base)
}

// cloneURL returns the address to fetch from with the token.
func (r *Repository) cloneURL() string {
	if u, err := url.Parse(r.URL); err == nil && u.User == nil && (u.Scheme == "https" || u.Scheme == "http") {
		return r.URL
	}
	return r.repository.CloneURL()
}

// allows reports whether the author of a pull request is in the list. What an agent proposes has the login of the
// server as its author, and no person has read it yet.
func (r *Repository) allows(login, branch string) bool {
	return login != "" && !strings.HasPrefix(branch, proposal.BranchPrefix) &&
		slices.ContainsFunc(r.Authors, func(a string) bool { return strings.EqualFold(a, login) })
}
