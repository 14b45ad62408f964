package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/pflag"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/policy"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createImageRepository holds the flags of `create image repository`.
type createImageRepository struct {
	spec        imagev1.ImageRepositorySpec
	scanTimeout time.Duration
}

func (r *createImageRepository) bind(f *pflag.FlagSet) string {
	f.StringVar(&r.spec.Image, "image", "", "image without a tag, such as ghcr.io/org/app")
	refVar(f, &r.spec.SecretRef, "secret-ref", "Secret with the credentials of the registry")
	refVar(f, &r.spec.CertSecretRef, "cert-ref", "Secret with the CA certificate of the registry, or with a client "+
		"certificate")
	refVar(f, &r.spec.ProxySecretRef, "proxy-secret-ref", "Secret with the address of a proxy")
	f.StringVar(&r.spec.ServiceAccountName, "service-account", "",
		"service account whose pull secrets or identity are used")
	f.StringVar(&r.spec.Provider, "provider", "", "identity to log in with: generic, aws, azure or gcp")
	f.DurationVar(&r.scanTimeout, "scan-timeout", 0, "timeout of a scan (default: 1m)")
	f.StringSliceVar(&r.spec.ExclusionList, "exclusion-list", nil,
		"regular expressions of tags to ignore (default: those of cosign signatures)")
	f.BoolVar(&r.spec.Insecure, "insecure", false, "use HTTP instead of HTTPS")
	return "--image ghcr.io/org/app"
}

func (r *createImageRepository) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := require("image", r.spec.Image); err != nil {
		return nil, err
	}
	if ref := edit.ParseRef(r.spec.Image); ref.Tag != "" || ref.Digest != "" || !ref.Valid() {
		return nil, usagef("invalid --image %q: use a name without scheme, tag and digest, such as ghcr.io/org/app",
			r.spec.Image)
	}
	if err := optionalOneOf("provider", r.spec.Provider, sourcev1.ProviderGeneric, sourcev1.ProviderAWS,
		sourcev1.ProviderAzure, sourcev1.ProviderGCP); err != nil {
		return nil, err
	}
	r.spec.Interval, r.spec.Timeout = c.interval, optionalDuration(r.scanTimeout)
	return &imagev1.ImageRepository{Spec: r.spec}, nil
}

var ascOrDesc = []string{imagev1.OrderAscending, imagev1.OrderDescending}

// createImagePolicy holds the flags of `create image policy`.
type createImagePolicy struct {
	repository                          string
	semver, alpha, numeric, createdAt   string
	cel, filterCEL                      string
	filterRegex, filterExtract, reflect string
}

func (p *createImagePolicy) bind(f *pflag.FlagSet) string {
	f.StringVar(&p.repository, "image-ref", "", "ImageRepository to select a tag from")
	f.StringVar(&p.semver, "select-semver", "", "select the highest version in this range, such as '>=1.0.0'")
	f.StringVar(&p.alpha, "select-alpha", "", "select the last tag by name (asc) or the first (desc)")
	f.StringVar(&p.numeric, "select-numeric", "", "select the highest number (asc) or the lowest (desc)")
	f.StringVar(&p.createdAt, "select-created", "", "select the newest or the oldest image")
	f.StringVar(&p.cel, "select-cel", "", "select the tag with the greatest value of this CEL expression over tag, "+
		"extracted, digest, labels, platforms and created")
	f.StringVar(&p.filterCEL, "filter-cel", "",
		"only tags for which this CEL expression is true, such as 'platforms.exists(p, p == \"linux/arm64\")'")
	f.StringVar(&p.filterRegex, "filter-regex", "", "only tags that match this regular expression")
	f.StringVar(&p.filterExtract, "filter-extract", "",
		"text to compare instead of the tag, from groups of --filter-regex, such as '$ts'")
	f.StringVar(&p.reflect, "reflect-digest", "",
		"whether to include the digest: Never, IfNotPresent, or Always (updated at each --interval)")
	return "--image-ref app --select-semver '>=1.0.0'"
}

func (p *createImagePolicy) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := require("image-ref", p.repository); err != nil {
		return nil, err
	}
	spec := imagev1.ImagePolicySpec{ImageRepositoryRef: meta.NamespacedName{Name: p.repository},
		DigestReflectionPolicy: p.reflect}
	if err := p.setOrder(&spec); err != nil {
		return nil, err
	}
	if p.filterCEL != "" {
		spec.Policy.CEL = &imagev1.CELPolicy{Filter: p.filterCEL, Order: p.cel}
	}
	if p.filterExtract != "" && p.filterRegex == "" {
		return nil, usagef("--filter-extract needs a --filter-regex")
	}
	if p.filterRegex != "" {
		spec.FilterTags = &imagev1.TagFilter{Pattern: p.filterRegex, Extract: p.filterExtract}
	}
	if err := optionalOneOf("reflect-digest", p.reflect, imagev1.ReflectAlways, imagev1.ReflectIfNotPresent,
		imagev1.ReflectNever); err != nil {
		return nil, err
	}
	if p.reflect == imagev1.ReflectAlways {
		spec.Interval = &c.interval
	}
	if _, err := policy.New(spec); err != nil {
		return nil, usageError{err}
	}
	return &imagev1.ImagePolicy{Spec: spec}, nil
}

// setOrder sets how tags are compared, from the one flag for that which must be set.
func (p *createImagePolicy) setOrder(spec *imagev1.ImagePolicySpec) error {
	given := 0
	for _, o := range []struct {
		flag, value string
		choices     []string
		set         func()
	}{
		{
			flag: "select-semver", value: p.semver,
			set: func() { spec.Policy.SemVer = &imagev1.SemVerPolicy{Range: p.semver} },
		},
		{
			flag: "select-alpha", value: p.alpha, choices: ascOrDesc,
			set: func() { spec.Policy.Alphabetical = &imagev1.OrderPolicy{Order: p.alpha} },
		},
		{
			flag: "select-numeric", value: p.numeric, choices: ascOrDesc,
			set: func() { spec.Policy.Numerical = &imagev1.OrderPolicy{Order: p.numeric} },
		},
		{
			flag: "select-created", value: p.createdAt, choices: []string{imagev1.OrderNewest, imagev1.OrderOldest},
			set: func() { spec.Policy.CreatedAt = &imagev1.CreatedAtPolicy{Order: p.createdAt} },
		},
		{
			flag: "select-cel", value: p.cel,
			set: func() { spec.Policy.CEL = &imagev1.CELPolicy{Order: p.cel} },
		},
	} {
		if o.value == "" {
			continue
		}
		if o.choices != nil {
			if err := oneOf(o.flag, o.value, o.choices...); err != nil {
				return err
			}
		}
		o.set()
		given++
	}
	if given != 1 {
		return usagef("set one of --select-semver, --select-alpha, --select-numeric, --select-created and " +
			"--select-cel")
	}
	return nil
}

// pullRequestHosts are the types of git hosts that pull requests can be opened on.
var pullRequestHosts = []string{
	string(githost.GitHub), string(githost.GitLab), string(githost.Gitea), string(githost.Bitbucket),
	string(githost.BitbucketServer), string(githost.AzureDevOps),
}

// createImageUpdate holds the flags of `create image update`.
type createImageUpdate struct {
	repository, namespace, path string
	checkout, push              string
	template, author, email     string
	signingKey, signingType     string
	provider, providerSecret    string
}

func (u *createImageUpdate) bind(f *pflag.FlagSet) string {
	f.StringVar(&u.repository, "git-repo-ref", "", "GitRepository to commit to")
	f.StringVar(&u.namespace, "git-repo-namespace", "", "namespace of the GitRepository (default: the same)")
	f.StringVar(&u.path, "git-repo-path", "", "directory whose files are updated (default: all)")
	f.StringVar(&u.checkout, "checkout-branch", "", "branch to base commits on (default: that of the GitRepository)")
	f.StringVar(&u.push, "push-branch", "", "branch to push to (default: that of --checkout-branch)")
	f.StringVar(&u.template, "commit-template", "", "template of the commit message")
	f.StringVar(&u.author, "author-name", "", "name of the commit author")
	f.StringVar(&u.email, "author-email", "", "e-mail address of the commit author")
	f.StringVar(&u.signingKey, "signing-key-secret", "", "Secret with the key to sign commits with")
	f.StringVar(&u.signingType, "signing-key-type", "", "type of the signing key: gpg or ssh (default: gpg)")
	f.StringVar(&u.provider, "pull-request", "", "open a pull request on a host of this type: "+
		strings.Join(pullRequestHosts, ", "))
	f.StringVar(&u.providerSecret, "pull-request-secret", "",
		"Secret with credentials for the API of that host (default: that of the GitRepository)")
	return "--git-repo-ref app --git-repo-path ./deploy --author-email sluice@example.com"
}

func (u *createImageUpdate) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := errors.Join(require("git-repo-ref", u.repository), require("author-email", u.email)); err != nil {
		return nil, err
	}
	git := &imagev1.GitSpec{Commit: imagev1.CommitSpec{Author: imagev1.CommitUser{Name: u.author, Email: u.email},
		MessageTemplate: u.template}}
	if u.checkout != "" {
		git.Checkout = &imagev1.GitCheckoutSpec{Reference: sourcev1.GitRepositoryRef{Branch: u.checkout}}
	}
	if u.push != "" {
		git.Push = &imagev1.PushSpec{Branch: u.push}
	}
	switch {
	case u.signingKey != "":
		if err := optionalOneOf("signing-key-type", u.signingType, imagev1.SigningKeyGPG,
			imagev1.SigningKeySSH); err != nil {
			return nil, err
		}
		git.Commit.SigningKey = &imagev1.SigningKey{SecretRef: *localRef(u.signingKey), Type: u.signingType}
	case u.signingType != "":
		return nil, usagef("--signing-key-type needs --signing-key-secret")
	}
	var request *imagev1.PullRequest
	switch {
	case u.provider != "":
		if err := oneOf("pull-request", u.provider, pullRequestHosts...); err != nil {
			return nil, err
		}
		request = &imagev1.PullRequest{Provider: u.provider}
		if u.providerSecret != "" {
			request.SecretRef = localRef(u.providerSecret)
		}
	case u.providerSecret != "":
		return nil, usagef("--pull-request-secret needs --pull-request")
	}
	return &imagev1.ImageUpdateAutomation{Spec: imagev1.ImageUpdateAutomationSpec{
		PullRequest: request,
		SourceRef: imagev1.SourceReference{Kind: sourcev1.GitRepositoryKind, Name: u.repository,
			Namespace: u.namespace},
		GitSpec: git, Interval: c.interval,
		Update: &imagev1.UpdateStrategy{Strategy: imagev1.UpdateSetters, Path: u.path},
	}}, nil
}
