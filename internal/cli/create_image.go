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

// createImageRepository is the flags of `create image repository`.
type createImageRepository struct {
	image, provider           string
	secretRef, certRef, proxy string
	serviceAccount            string
	scanTimeout               time.Duration
	exclude                   []string
	insecure                  bool
}

func (r *createImageRepository) bind(f *pflag.FlagSet) string {
	f.StringVar(&r.image, "image", "", "the image without a tag, such as ghcr.io/org/app")
	f.StringVar(&r.secretRef, "secret-ref", "", "Secret with the registry's login")
	f.StringVar(&r.certRef, "cert-ref", "", "Secret with the registry's certificate authority, or a certificate to "+
		"log in by")
	f.StringVar(&r.proxy, "proxy-secret-ref", "", "Secret with the proxy")
	f.StringVar(&r.serviceAccount, "service-account", "", "account whose pull secrets or identity are used")
	f.StringVar(&r.provider, "provider", "", "whose identity to log in by: generic, aws, azure or gcp")
	f.DurationVar(&r.scanTimeout, "scan-timeout", 0, "how long a scan may take (default: 1m)")
	f.StringSliceVar(&r.exclude, "exclusion-list", nil,
		"regular expressions of tags to leave out (default: those of cosign's signatures)")
	f.BoolVar(&r.insecure, "insecure", false, "speak to the registry over HTTP")
	return "--image ghcr.io/org/app"
}

func (r *createImageRepository) make(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := need("image", r.image); err != nil {
		return nil, err
	}
	if ref := edit.ParseRef(r.image); ref.Tag != "" || ref.Digest != "" || !ref.Valid() {
		return nil, usagef("--image %q: write it without scheme, tag and digest, such as ghcr.io/org/app", r.image)
	}
	if r.provider != "" {
		if err := oneOf("provider", r.provider, sourcev1.ProviderGeneric, sourcev1.ProviderAWS, sourcev1.ProviderAzure,
			sourcev1.ProviderGCP); err != nil {
			return nil, err
		}
	}
	return &imagev1.ImageRepository{Spec: imagev1.ImageRepositorySpec{
		Image: r.image, Interval: c.interval, Timeout: orUnset(r.scanTimeout), Provider: r.provider,
		ServiceAccountName: r.serviceAccount,
		SecretRef:          refer(r.secretRef), CertSecretRef: refer(r.certRef), ProxySecretRef: refer(r.proxy),
		ExclusionList: r.exclude, Insecure: r.insecure,
	}}, nil
}

var ascOrDesc = []string{imagev1.OrderAscending, imagev1.OrderDescending}

// createImagePolicy is the flags of `create image policy`.
type createImagePolicy struct {
	repository                          string
	semver, alpha, numeric, createdAt   string
	cel, filterCEL                      string
	filterRegex, filterExtract, reflect string
}

func (p *createImagePolicy) bind(f *pflag.FlagSet) string {
	f.StringVar(&p.repository, "image-ref", "", "ImageRepository whose tags are ordered")
	f.StringVar(&p.semver, "select-semver", "", "range of versions to take the highest of, such as '>=1.0.0'")
	f.StringVar(&p.alpha, "select-alpha", "", "take the last tag by name: asc, or the first: desc")
	f.StringVar(&p.numeric, "select-numeric", "", "take the highest number: asc, or the lowest: desc")
	f.StringVar(&p.createdAt, "select-created", "", "take the newest image, or the oldest")
	f.StringVar(&p.cel, "select-cel", "", "take the tag with the greatest value of a CEL expression over tag, "+
		"extracted, digest, labels, platforms and created")
	f.StringVar(&p.filterCEL, "filter-cel", "",
		"CEL expression that is true for the tags that count, such as 'platforms.exists(p, p == \"linux/arm64\")'")
	f.StringVar(&p.filterRegex, "filter-regex", "", "regular expression of the tags that count")
	f.StringVar(&p.filterExtract, "filter-extract", "",
		"what is ordered in place of the tag, with groups of --filter-regex, such as '$ts'")
	f.StringVar(&p.reflect, "reflect-digest", "",
		"whether to tell the image's digest: Never, IfNotPresent, or Always, again at each --interval")
	return "--image-ref app --select-semver '>=1.0.0'"
}

func (p *createImagePolicy) make(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := need("image-ref", p.repository); err != nil {
		return nil, err
	}
	spec := imagev1.ImagePolicySpec{ImageRepositoryRef: meta.NamespacedName{Name: p.repository},
		DigestReflectionPolicy: p.reflect}
	given := 0
	for _, o := range []struct {
		flag, value string
		choices     []string
		set         func()
	}{
		{"select-semver", p.semver, nil, func() { spec.Policy.SemVer = &imagev1.SemVerPolicy{Range: p.semver} }},
		{"select-alpha", p.alpha, ascOrDesc, func() {
			spec.Policy.Alphabetical = &imagev1.OrderPolicy{Order: p.alpha}
		}},
		{"select-numeric", p.numeric, ascOrDesc,
			func() { spec.Policy.Numerical = &imagev1.OrderPolicy{Order: p.numeric} }},
		{"select-created", p.createdAt, []string{imagev1.OrderNewest, imagev1.OrderOldest},
			func() { spec.Policy.CreatedAt = &imagev1.CreatedAtPolicy{Order: p.createdAt} }},
		{"select-cel", p.cel, nil, func() { spec.Policy.CEL = &imagev1.CELPolicy{Order: p.cel} }},
	} {
		if o.value == "" {
			continue
		}
		if o.choices != nil {
			if err := oneOf(o.flag, o.value, o.choices...); err != nil {
				return nil, err
			}
		}
		o.set()
		given++
	}
	if given != 1 {
		return nil, usagef("give one of --select-semver, --select-alpha, --select-numeric, --select-created and " +
			"--select-cel")
	}
	if p.filterCEL != "" {
		spec.Policy.CEL = &imagev1.CELPolicy{Filter: p.filterCEL, Order: p.cel}
	}
	if p.filterExtract != "" && p.filterRegex == "" {
		return nil, usagef("--filter-extract takes groups of a --filter-regex")
	}
	if p.filterRegex != "" {
		spec.FilterTags = &imagev1.TagFilter{Pattern: p.filterRegex, Extract: p.filterExtract}
	}
	if p.reflect != "" {
		if err := oneOf("reflect-digest", p.reflect, imagev1.ReflectAlways, imagev1.ReflectIfNotPresent,
			imagev1.ReflectNever); err != nil {
			return nil, err
		}
	}
	if p.reflect == imagev1.ReflectAlways {
		spec.Interval = &c.interval
	}
	if _, err := policy.New(spec); err != nil {
		return nil, usageError{err}
	}
	return &imagev1.ImagePolicy{Spec: spec}, nil
}

// requestHosts are the types of hosts that can be asked to merge.
var requestHosts = []string{
	string(githost.GitHub), string(githost.GitLab), string(githost.Gitea), string(githost.Bitbucket),
	string(githost.BitbucketServer), string(githost.AzureDevOps),
}

// createImageUpdate is the flags of `create image update`.
type createImageUpdate struct {
	repository, namespace, path string
	checkout, push              string
	template, author, email     string
	signingKey, signingType     string
	provider, providerSecret    string
}

func (u *createImageUpdate) bind(f *pflag.FlagSet) string {
	f.StringVar(&u.repository, "git-repo-ref", "", "GitRepository to commit to")
	f.StringVar(&u.namespace, "git-repo-namespace", "", "namespace of the GitRepository, when it is another")
	f.StringVar(&u.path, "git-repo-path", "", "directory whose files are updated (default: all)")
	f.StringVar(&u.checkout, "checkout-branch", "", "branch to commit upon (default: that of the GitRepository)")
	f.StringVar(&u.push, "push-branch", "", "branch to push to (default: the one that is committed upon)")
	f.StringVar(&u.template, "commit-template", "", "template of the commit's message")
	f.StringVar(&u.author, "author-name", "", "name of the commit's author")
	f.StringVar(&u.email, "author-email", "", "e-mail address of the commit's author")
	f.StringVar(&u.signingKey, "signing-key-secret", "", "Secret with the key that signs the commit")
	f.StringVar(&u.signingType, "signing-key-type", "", "type of that key: gpg or ssh (default: gpg)")
	f.StringVar(&u.provider, "pull-request", "", "ask to merge what is pushed, at a host of this type: "+
		strings.Join(requestHosts, ", "))
	f.StringVar(&u.providerSecret, "pull-request-secret", "",
		"Secret with the login to that host's API (default: that of the GitRepository)")
	return "--git-repo-ref app --git-repo-path ./deploy --author-email sluice@example.com"
}

func (u *createImageUpdate) make(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := errors.Join(need("git-repo-ref", u.repository), need("author-email", u.email)); err != nil {
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
		if u.signingType != "" {
			if err := oneOf("signing-key-type", u.signingType, imagev1.SigningKeyGPG,
				imagev1.SigningKeySSH); err != nil {
				return nil, err
			}
		}
		git.Commit.SigningKey = &imagev1.SigningKey{SecretRef: *refer(u.signingKey), Type: u.signingType}
	case u.signingType != "":
		return nil, usagef("--signing-key-type is for the key of --signing-key-secret")
	}
	var request *imagev1.PullRequest
	switch {
	case u.provider != "":
		if err := oneOf("pull-request", u.provider, requestHosts...); err != nil {
			return nil, err
		}
		request = &imagev1.PullRequest{Provider: u.provider}
		if u.providerSecret != "" {
			request.SecretRef = refer(u.providerSecret)
		}
	case u.providerSecret != "":
		return nil, usagef("--pull-request-secret is for the host of --pull-request")
	}
	return &imagev1.ImageUpdateAutomation{Spec: imagev1.ImageUpdateAutomationSpec{
		PullRequest: request,
		SourceRef: imagev1.SourceReference{Kind: sourcev1.GitRepositoryKind, Name: u.repository,
			Namespace: u.namespace},
		GitSpec: git, Interval: c.interval,
		Update: &imagev1.UpdateStrategy{Strategy: imagev1.UpdateSetters, Path: u.path},
	}}, nil
}
