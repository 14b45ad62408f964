package change

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/message"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/source/git"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// pullRequest is spec.pullRequest, ready for use.
type pullRequest struct {
	spec                *imagev1.PullRequest
	into                string // name of the branch to merge into
	host                *githost.Client
	branch, title, body *message.Template // nil: the documented default
}

// pullRequestOf reads spec.pullRequest; nil if it is not set.
func (o *Opener) pullRequestOf(ctx context.Context, obj *imagev1.ImageUpdateAutomation, t target,
	remote git.Remote) (*pullRequest, error) {
	spec := obj.Spec.PullRequest
	if spec == nil {
		return nil, nil
	}
	r := &pullRequest{spec: spec, into: branchOf(t.checkout)}
	if r.into == "" {
		return nil, fault.New(imagev1.InvalidSourceConfigurationReason, "no branch to merge a pull request into").
			WithHint(notBranchHint, "spec.git.checkout.ref.branch").Final()
	}
	for _, t := range []struct {
		field, text string
		template    **message.Template
	}{
		{field: "branch", text: spec.Branch, template: &r.branch},
		{field: "title", text: spec.Title, template: &r.title},
		{field: "body", text: spec.Body, template: &r.body},
	} {
		if t.text == "" {
			continue
		}
		var err error
		if *t.template, err = message.Parse(t.text); err != nil {
			return nil, templateFault("spec.pullRequest."+t.field, err)
		}
	}
	var err error
	r.host, err = o.gitHost(ctx, obj, remote)
	return r, err
}

// gitHost returns a client of the git host of the remote. It logs in with spec.pullRequest.secretRef, or with the
// credentials of the source if that is not set.
func (o *Opener) gitHost(ctx context.Context, obj *imagev1.ImageUpdateAutomation, remote git.Remote) (*githost.Client,
	error) {
	spec, login := obj.Spec.PullRequest, remote.Credentials
	repository, err := githost.Parse(githost.Kind(spec.Provider), remote.URL)
	if err != nil {
		return nil, pullRequestFault("cannot open pull requests for GitRepository '%s'", SourceOf(obj), err)
	}
	data, err := o.Secrets.Data(ctx, obj.Namespace, spec.SecretRef, "spec.pullRequest.secretRef")
	if err != nil {
		return nil, err
	}
	if spec.SecretRef != nil {
		login = auth.GitCredentials{CA: login.CA, ClientCert: login.ClientCert, ClientKey: login.ClientKey}
	}
	options := egress.Options{TLS: auth.TLS{CA: login.CA, Cert: login.ClientCert, Key: login.ClientKey}}
	if tls, err := auth.TLSFrom(data); err == nil && len(tls.CA) > 0 {
		options.TLS.CA = tls.CA
	}
	if remote.ProxyURL != "" {
		if options.Proxy, err = url.Parse(remote.ProxyURL); err != nil {
			return nil, fault.New(imagev1.InvalidSourceConfigurationReason,
				"the proxy address of the source is not a URL").
				Final()
		}
	}
	transport, err := cmp.Or(remote.Egress, &egress.Policy{}).Transport(options)
	if err != nil {
		return nil, err
	}
	host, err := githost.New(githost.Options{Repository: repository, Secret: data, Git: login, Apps: &o.apps,
		Transport: transport, Clock: o.Clock})
	if err != nil {
		return nil, pullRequestFault("cannot open pull requests on '%s'", repository.Base.Host, err)
	}
	return host, nil
}

func pullRequestFault(format string, about any, err error) error {
	f := fault.New(fault.Reason(err, imagev1.InvalidSourceConfigurationReason), format, about).Because(err)
	if cause := fault.As(err); cause != nil && cause.Terminal {
		f = f.Final()
	}
	return f
}

// branchName returns the name of the branch that the changes are pushed to.
func (r *pullRequest) branchName(obj *imagev1.ImageUpdateAutomation, changes []edit.Change) (string, error) {
	branch := "image-updates/" + obj.Namespace + "/" + obj.Name
	if push := obj.Spec.GitSpec.Push; push != nil && push.Branch != "" {
		branch = push.Branch
	}
	if r.branch != nil {
		var err error
		if branch, err = r.branch.Execute(templateData(obj, changes)); err != nil {
			return "", templateFault("spec.pullRequest.branch", err)
		}
	}
	return strings.TrimPrefix(branch, branchPrefix), nil
}

// OpenPullRequest opens the pull request of a branch, or updates the open one, and returns its address. It must not be
// called unless [Writer.OpensPullRequests].
func (w *Writer) OpenPullRequest(ctx context.Context, b Branch, changes []edit.Change, by Attribution) (
	string, error) {
	r, data := w.pullRequest, templateData(w.automation, changes)
	text, err := w.commitMessage(changes, by)
	if err != nil {
		return "", err
	}
	title, _, _ := strings.Cut(text, "\n")
	body := text
	for _, t := range []struct {
		field    string
		template *message.Template
		result   *string
	}{{field: "title", template: r.title, result: &title}, {field: "body", template: r.body, result: &body}} {
		if t.template == nil {
			continue
		}
		if *t.result, err = t.template.Execute(data); err != nil {
			return "", templateFault("spec.pullRequest."+t.field, err)
		}
	}
	address, err := r.host.OpenRequest(ctx, githost.Request{Head: b.Name(), Base: r.into, Title: title, Body: body,
		Labels: r.spec.Labels})
	if err != nil {
		return "", pullRequestFault("cannot open the pull request of branch '%s'", b.Name(), err)
	}
	return address, nil
}
