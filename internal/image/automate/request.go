package automate

import (
	"cmp"
	"context"
	"net/url"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/githost"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/message"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

// request is spec.pullRequest: updates go to a branch of their own, and a change request asks to merge it.
type request struct {
	spec                *imagev1.PullRequest
	into                string // the branch that is checked out
	host                *githost.Client
	branch, title, body *message.Template // nil: as documented
}

// requestOf reads spec.pullRequest; nil when it is not set.
func (a *Automation) requestOf(ctx context.Context, j *job, obj *imagev1.ImageUpdateAutomation) (*request, error) {
	spec := obj.Spec.PullRequest
	if spec == nil {
		return nil, nil
	}
	j.target.keep = false // the branch is made anew of what is checked out, so that it holds this update and no other
	r := &request{spec: spec, into: branchOf(j.target.checkout)}
	if r.into == "" {
		return nil, fault.New(imagev1.InvalidSourceConfigurationReason,
			"there is no branch that a change request could be merged into").
			WithHint("What is checked out is no branch: set spec.git.checkout.ref.branch").Final()
	}
	for _, t := range []struct {
		field, text string
		into        **message.Template
	}{{"branch", spec.Branch, &r.branch}, {"title", spec.Title, &r.title}, {"body", spec.Body, &r.body}} {
		if t.text == "" {
			continue
		}
		var err error
		if *t.into, err = message.Parse(t.text); err != nil {
			return nil, templateFault("spec.pullRequest."+t.field, err)
		}
	}
	var err error
	r.host, err = a.hostOf(ctx, j, obj)
	return r, err
}

// hostOf is the client of the host of the source's repository, by the login of spec.pullRequest.secretRef,
// else by that of the source.
func (a *Automation) hostOf(ctx context.Context, j *job, obj *imagev1.ImageUpdateAutomation) (*githost.Client, error) {
	spec, login := obj.Spec.PullRequest, j.remote.Credentials
	repository, err := githost.Parse(githost.Kind(spec.Provider), j.remote.URL)
	if err != nil {
		return nil, requestFault("the repository of '%s' cannot be used", sourceOf(obj), err)
	}
	data, err := a.Secrets.Data(ctx, obj.Namespace, spec.SecretRef, "spec.pullRequest.secretRef")
	if err != nil {
		return nil, err
	}
	if spec.SecretRef != nil {
		login = auth.GitCredentials{CA: login.CA, ClientCert: login.ClientCert, ClientKey: login.ClientKey}
	}
	way := egress.Options{TLS: auth.TLS{CA: login.CA, Cert: login.ClientCert, Key: login.ClientKey}}
	if tls, err := auth.TLSFrom(data); err == nil && len(tls.CA) > 0 {
		way.TLS.CA = tls.CA
	}
	if j.remote.ProxyURL != "" {
		if way.Proxy, err = url.Parse(j.remote.ProxyURL); err != nil {
			return nil, fault.New(imagev1.InvalidSourceConfigurationReason, "the proxy of the source is no URL").Final()
		}
	}
	transport, err := cmp.Or(j.remote.Egress, &egress.Policy{}).Transport(way)
	if err != nil {
		return nil, err
	}
	host, err := githost.New(githost.Options{Repository: repository, Secret: data, Git: login, Apps: &a.apps,
		Transport: transport, Clock: a.Clock})
	if err != nil {
		return nil, requestFault("'%s' cannot be asked for change requests", repository.Base.Host, err)
	}
	return host, nil
}

func requestFault(format string, about any, err error) error {
	f := fault.New(fault.Reason(err, imagev1.InvalidSourceConfigurationReason), format, about).Because(err)
	if cause := fault.As(err); cause != nil && cause.Terminal {
		f = f.Final()
	}
	return f
}

// aim says which branch the changes go to.
func (j *job) aim(ctx context.Context, b *base, obj *imagev1.ImageUpdateAutomation, changes []edit.Change) error {
	r := j.request
	if r == nil || len(changes) == 0 {
		return nil
	}
	branch := "image-updates/" + obj.Namespace + "/" + obj.Name
	if push := obj.Spec.GitSpec.Push; push != nil && push.Branch != "" {
		branch = push.Branch
	}
	if r.branch != nil {
		var err error
		if branch, err = r.branch.Execute(dataOf(obj, changes)); err != nil {
			return templateFault("spec.pullRequest.branch", err)
		}
	}
	if branch = strings.TrimPrefix(branch, branchPrefix); j.asked != nil {
		branch += "-" + j.asked.Name // else the automation would take it for its own, and make it anew
	}
	if branch == r.into {
		return fault.New(imagev1.InvalidSourceConfigurationReason,
			"spec.pullRequest.branch is the branch that it is to be merged into").
			WithHint("Give it another name than '%s'", r.into).Final()
	}
	if err := git.CheckRef(branchPrefix + branch); err != nil {
		return fault.New(imagev1.InvalidSourceConfigurationReason, "spec.pullRequest.branch cannot be used").
			Because(err).Final()
	}
	j.target.branch, j.target.apart = branchPrefix+branch, true
	return j.tip(ctx, b)
}

// ask opens the change request of what was pushed, or brings the open one up to date. It is asked once for
// the same images, so that people may close it.
func (j *job) ask(ctx context.Context, obj *imagev1.ImageUpdateAutomation, changes []edit.Change) error {
	r := j.request
	if r == nil || obj.Status.PullRequest != "" && obj.Status.ObservedGeneration == obj.Generation {
		return nil
	}
	data := dataOf(obj, changes)
	said, err := j.text(obj, changes)
	if err != nil {
		return err
	}
	title, _, _ := strings.Cut(said, "\n")
	body := said
	for _, t := range []struct {
		field    string
		template *message.Template
		into     *string
	}{{"title", r.title, &title}, {"body", r.body, &body}} {
		if t.template == nil {
			continue
		}
		if *t.into, err = t.template.Execute(data); err != nil {
			return templateFault("spec.pullRequest."+t.field, err)
		}
	}
	address, err := r.host.OpenRequest(ctx, githost.Request{Head: j.target.name(), Base: r.into, Title: title,
		Body: body, Labels: r.spec.Labels})
	if err != nil {
		return requestFault("the change request of '%s' was not opened", j.target.name(), err)
	}
	obj.Status.PullRequest = address
	if n := len(j.pushed); n > 0 {
		j.pushed[n-1].message += "\nchange request: " + address
	}
	return nil
}

func dataOf(obj *imagev1.ImageUpdateAutomation, changes []edit.Change) message.Data {
	return message.DataOf(client.ObjectKeyFromObject(obj), changes, obj.Spec.GitSpec.Commit.MessageTemplateValues)
}
