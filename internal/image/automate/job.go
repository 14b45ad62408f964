package automate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/message"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/git"
)

const (
	defaultTimeout = time.Minute // of a GitRepository that sets none
	maxTold        = 10          // problems that a message names
)

// job is one pass in the words of git and of package survey.
type job struct {
	pass    *reconcile.Pass[*imagev1.ImageUpdateAutomation]
	memory  *memory
	view    *git.View
	source  *sourcev1.GitRepository
	remote  git.Remote
	target  target
	request *request // nil: what is pushed is all
	timeout time.Duration
	fresh   bool // the remote must be asked

	path     string
	plan     scan.Plan
	why      map[string]string           // a policy chooses its image
	observed map[string]imagev1.ImageRef // by name of the policy
	unknown  []string                    // policies that bindings name and that are not there
	bound    []string                    // what is said if the place of a binding of the plan is nowhere

	message *message.Template
	sign    func([]byte) (string, error)

	asked *Request // of a release that somebody asked for; nil of what policies choose by themselves

	told   []string // what is not as it should be
	pushed []pushed
	waits  time.Duration
}

// pushed is a commit that was pushed.
type pushed struct{ revision, message string }

// prepare reads all that a pass is about. What cannot be helped by a retry is told before anything is fetched.
func (a *Automation) prepare(ctx context.Context, obj *imagev1.ImageUpdateAutomation) (*job, error) {
	j := &job{memory: a.remember(obj.UID)}
	if err := j.declared(obj); err != nil {
		return nil, err
	}
	if err := a.choose(ctx, j, obj); err != nil {
		return nil, err
	}
	key := sourceOf(obj)
	if a.NoCrossNamespaceRefs && key.Namespace != obj.Namespace {
		return nil, fault.New(meta.AccessDeniedReason,
			"spec.sourceRef names GitRepository '%s' of another namespace", key).
			WithHint("References into other namespaces are off (--no-cross-namespace-refs): use a GitRepository of "+
				"the namespace '%s'", obj.Namespace).Final()
	}
	j.source = &sourcev1.GitRepository{}
	if err := a.Objects.Get(ctx, key, j.source); apierrors.IsNotFound(err) {
		return nil, &waitsFor{imagev1.SourceManagerFailedReason,
			fmt.Sprintf("GitRepository '%s' not found. Create it, or correct spec.sourceRef", key)}
	} else if err != nil {
		return nil, fault.New(imagev1.SourceManagerFailedReason, "cannot read GitRepository '%s'", key).Because(err)
	}
	var err error
	if j.target, err = targetOf(obj, j.source); err != nil {
		return nil, err
	}
	j.target.keep = a.KeepPushBranch
	j.timeout = defaultTimeout
	if t := j.source.Spec.Timeout; t != nil && t.Duration > 0 {
		j.timeout = t.Duration
	}
	j.timeout *= maxTries // of each operation, as a source has it
	if j.remote, err = a.Remotes.Remote(ctx, j.source); err != nil {
		return nil, err
	}
	if j.request, err = a.requestOf(ctx, j, obj); err != nil {
		return nil, err
	}
	if key := obj.Spec.GitSpec.Commit.SigningKey; key != nil {
		data, err := a.Secrets.Data(ctx, obj.Namespace, &key.SecretRef, "spec.git.commit.signingKey.secretRef")
		if err != nil {
			return nil, err
		}
		if j.sign, err = git.ReadSigningKey(key.Type, data, a.Clock.Now); err != nil {
			return nil, err
		}
	}
	j.view = a.Mirrors.View(owner(obj.UID))
	return j, nil
}

// declared reads what stands in the object alone.
func (j *job) declared(obj *imagev1.ImageUpdateAutomation) error {
	if obj.Spec.GitSpec == nil {
		return fault.New(imagev1.InvalidSourceConfigurationReason, "spec.git is not set").
			WithHint("Say who commits: set spec.git.commit.author").Final()
	}
	if u := obj.Spec.Update; u != nil {
		if u.Strategy != "" && u.Strategy != imagev1.UpdateSetters {
			return fault.New(imagev1.InvalidUpdateStrategyReason, "spec.update.strategy '%s' is not known", u.Strategy).
				WithHint("Set it to %s", imagev1.UpdateSetters).Final()
		}
		j.path = u.Path
	}
	var err error
	j.message, err = message.Parse(cmp.Or(obj.Spec.GitSpec.Commit.MessageTemplate, message.Default))
	return templateFault("spec.git.commit.messageTemplate", err)
}

func templateFault(field string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, message.ErrRemoved):
		return fault.New(imagev1.RemovedTemplateFieldReason, "%s cannot be used", field).Because(err).Final()
	}
	return fault.New(imagev1.UpdateFailedReason, "%s cannot be used", field).Because(err).
		WithHint("Correct the template").Final()
}

// choose lists the policies that count, and makes of them and the bindings what is wanted.
func (a *Automation) choose(ctx context.Context, j *job, obj *imagev1.ImageUpdateAutomation) error {
	selector := labels.Everything()
	if obj.Spec.PolicySelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(obj.Spec.PolicySelector); err != nil {
			return fault.New(imagev1.InvalidPolicySelectorReason, "spec.policySelector is no selector of labels").
				Because(err).Final()
		}
	}
	var all imagev1.ImagePolicyList
	if err := a.Objects.List(ctx, &all, client.InNamespace(obj.Namespace)); err != nil {
		return fault.New(imagev1.UpdateFailedReason, "cannot list the ImagePolicies of the namespace").Because(err)
	}
	j.plan.Images, j.why, j.observed = map[string]edit.Ref{}, map[string]string{}, map[string]imagev1.ImageRef{}
	policies := map[string]*imagev1.ImagePolicy{}
	for i := range all.Items {
		p := &all.Items[i]
		policies[p.Name] = p
		if selector.Matches(labels.Set(p.Labels)) {
			j.observe(p)
		}
	}
	bound := map[string]bool{}
	for i, b := range obj.Spec.Bindings {
		p := policies[b.PolicyRef.Name]
		bound[b.PolicyRef.Name] = true
		if p == nil {
			j.unknown = append(j.unknown, fmt.Sprintf("ImagePolicy '%s' of binding %d not found",
				b.PolicyRef.Name, i+1))
			continue
		}
		if image := refOf(p); image.Name != "" {
			j.why[policyName(p)] = why(p)
			j.observed[p.Name] = image
			j.bind(binding(policyName(p), refToEdit(image), b), missing(i+1, b))
		}
	}
	for i := range all.Items {
		if p := &all.Items[i]; !bound[p.Name] && j.plan.Images[policyName(p)].Name != "" {
			j.imply(p)
		}
	}
	return nil
}

func (j *job) bind(b edit.Binding, missing string) {
	j.plan.Bindings, j.bound = append(j.plan.Bindings, b), append(j.bound, missing)
}

// imply binds a policy that discovery made of a workload which asks for updates to the workload's container.
func (j *job) imply(p *imagev1.ImagePolicy) {
	kind, name, found := strings.Cut(p.Annotations[plan.Of], "/")
	container := p.Annotations[plan.Container]
	if p.Labels[plan.Automated] != "true" || !found || kind == "" || name == "" || container == "" {
		return
	}
	w := &edit.Workload{Kind: kind, Name: name, Namespace: p.Namespace, Container: container, Implied: true}
	j.bind(edit.Binding{Policy: policyName(p), Image: j.plan.Images[policyName(p)], Workload: w},
		fmt.Sprintf("no file has the container '%s' of the %s '%s', which ImagePolicy '%s' is for", container, kind,
			name, p.Name))
}

// missing says that the place of a binding is nowhere.
func missing(number int, b imagev1.Binding) string {
	if b.Workload != nil {
		return fmt.Sprintf("no file has the container of binding %d, of the %s '%s'", number, b.Workload.Kind,
			b.Workload.Name)
	}
	return fmt.Sprintf("the file '%s' of binding %d is not there", b.ValuesFile.File, number)
}

func (j *job) observe(p *imagev1.ImagePolicy) {
	image := refOf(p)
	if image.Name == "" {
		return // it chose none yet
	}
	j.plan.Images[policyName(p)] = refToEdit(image)
	j.why[policyName(p)] = why(p)
	j.observed[p.Name] = image
}

func policyName(p *imagev1.ImagePolicy) string { return p.Namespace + ":" + p.Name }

func refToEdit(r imagev1.ImageRef) edit.Ref {
	return edit.Ref{Name: r.Name, Tag: r.Tag, Digest: r.Digest}
}

// why says by which rule a policy chooses.
func why(p *imagev1.ImagePolicy) string {
	switch c := p.Spec.Policy; {
	case c.SemVer != nil:
		return fmt.Sprintf("the highest version in the range '%s'", c.SemVer.Range)
	case c.Alphabetical != nil:
		return fmt.Sprintf("the latest by the alphabet (%s)", cmp.Or(c.Alphabetical.Order, imagev1.OrderAscending))
	case c.Numerical != nil:
		return fmt.Sprintf("the latest by number (%s)", cmp.Or(c.Numerical.Order, imagev1.OrderAscending))
	case c.CreatedAt != nil:
		return fmt.Sprintf("the %s by creation time", cmp.Or(c.CreatedAt.Order, imagev1.OrderNewest))
	case c.CEL != nil:
		return "the first by CEL"
	}
	return ""
}

func binding(policy string, image edit.Ref, b imagev1.Binding) edit.Binding {
	out := edit.Binding{Policy: policy, Image: image}
	if w := b.Workload; w != nil {
		out.Workload = &edit.Workload{Kind: w.Kind, Name: w.Name, Namespace: w.Namespace, Container: w.Container}
	}
	if v := b.ValuesFile; v != nil {
		out.Values = &edit.Values{File: v.File, Path: v.Path, Registry: v.Registry, Repository: v.Repository,
			Tag: v.Tag, Digest: v.Digest}
	}
	return out
}

// problems tells what could not be followed. Markers of other namespaces, and of policies that are not
// selected, are the business of other automations.
func (j *job) problems(result scan.Result) {
	all := slices.Clone(j.unknown)
	namespace := j.pass.Object.Namespace + ":"
	for _, p := range result.Problems {
		if p.Policy == "" || strings.HasPrefix(p.Policy, namespace) && j.pass.Object.Spec.PolicySelector == nil {
			all = append(all, p.String())
		}
	}
	for _, i := range result.Missing {
		b := j.plan.Bindings[i]
		// else a marker does
		if implied := b.Workload != nil && b.Workload.Implied; !implied || !slices.Contains(result.Policies, b.Policy) {
			all = append(all, j.bound[i])
		}
	}
	j.told = all
	if len(all) > maxTold {
		j.told = append(all[:maxTold:maxTold], fmt.Sprintf("and %d more", len(all)-maxTold))
	}
}
