package change

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/discover/plan"
	"github.com/sluice-gitops/sluice/internal/image/edit"
	"github.com/sluice-gitops/sluice/internal/image/scan"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxProblems bounds the problems that a message lists.
const maxProblems = 10

// Set is the images to write, and where.
type Set struct {
	Plan    scan.Plan
	Reasons map[string]string // why a policy chooses its image, by "namespace:name" of the policy
}

// Images returns the images by "namespace:name" of their policy, those of bindings included.
func (s Set) Images() map[string]edit.Ref {
	all := maps.Clone(s.Plan.Images)
	if all == nil {
		all = map[string]edit.Ref{}
	}
	for _, b := range s.Plan.Bindings {
		all[b.Policy] = b.Image
	}
	return all
}

// Selection is the images that the policies of an automation choose.
type Selection struct {
	Set
	// Observed is the chosen images by name of the policy.
	Observed map[string]imagev1.ImageRef

	namespace       string
	hasSelector     bool
	unknownPolicies []string // a problem for each binding whose policy does not exist
	notFound        []string // the problem to report if a file has no place for a binding, by index of the binding
}

// selectImages lists the policies that an automation selects or binds, and the images that they choose.
func selectImages(ctx context.Context, r client.Reader, obj *imagev1.ImageUpdateAutomation) (*Selection, error) {
	selector := labels.Everything()
	if obj.Spec.PolicySelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(obj.Spec.PolicySelector); err != nil {
			return nil, fault.New(imagev1.InvalidPolicySelectorReason, "spec.policySelector is not a label selector").
				Because(err).Final()
		}
	}
	var all imagev1.ImagePolicyList
	if err := r.List(ctx, &all, client.InNamespace(obj.Namespace)); err != nil {
		return nil, fault.New(imagev1.UpdateFailedReason, "cannot list the ImagePolicies in namespace '%s'",
			obj.Namespace).Because(err)
	}
	s := &Selection{
		Set:       Set{Plan: scan.Plan{Images: map[string]edit.Ref{}}, Reasons: map[string]string{}},
		Observed:  map[string]imagev1.ImageRef{},
		namespace: obj.Namespace, hasSelector: obj.Spec.PolicySelector != nil,
	}
	policies := map[string]*imagev1.ImagePolicy{}
	for i := range all.Items {
		p := &all.Items[i]
		policies[p.Name] = p
		if image := LatestImage(p); image.Name != "" && selector.Matches(labels.Set(p.Labels)) {
			s.observe(p)
			s.Plan.Images[policyName(p)] = refOf(image)
		}
	}
	bound := s.bindAll(obj.Spec.Bindings, policies)
	for i := range all.Items {
		if p := &all.Items[i]; !bound[p.Name] && s.Plan.Images[policyName(p)].Name != "" {
			s.bindDiscovered(p)
		}
	}
	return s, nil
}

// LatestImage returns the image that a policy chooses, the zero value if it has not chosen one.
func LatestImage(p *imagev1.ImagePolicy) imagev1.ImageRef {
	if p.Status.LatestRef == nil {
		return imagev1.ImageRef{}
	}
	return *p.Status.LatestRef
}

// observe records the image of a policy that has one.
func (s *Selection) observe(p *imagev1.ImagePolicy) {
	s.Reasons[policyName(p)] = reasonOf(p)
	s.Observed[p.Name] = LatestImage(p)
}

// bindAll adds the bindings of an automation, and returns the names of the policies that they refer to.
func (s *Selection) bindAll(bindings []imagev1.Binding, policies map[string]*imagev1.ImagePolicy) map[string]bool {
	bound := map[string]bool{}
	for i, b := range bindings {
		p := policies[b.PolicyRef.Name]
		bound[b.PolicyRef.Name] = true
		if p == nil {
			s.unknownPolicies = append(s.unknownPolicies, fmt.Sprintf("ImagePolicy '%s' of binding %d not found",
				b.PolicyRef.Name, i+1))
			continue
		}
		if image := LatestImage(p); image.Name != "" {
			s.observe(p)
			s.bind(bindingOf(policyName(p), refOf(image), b), notFoundMessage(i+1, b))
		}
	}
	return bound
}

func (s *Selection) bind(b edit.Binding, notFound string) {
	s.Plan.Bindings, s.notFound = append(s.Plan.Bindings, b), append(s.notFound, notFound)
}

// bindDiscovered binds a policy that discovery created for a workload with automated updates to the container of that
// workload.
func (s *Selection) bindDiscovered(p *imagev1.ImagePolicy) {
	kind, name, found := strings.Cut(p.Annotations[plan.Of], "/")
	container := p.Annotations[plan.Container]
	if p.Labels[plan.Automated] != "true" || !found || kind == "" || name == "" || container == "" {
		return
	}
	w := &edit.Workload{Kind: kind, Name: name, Namespace: p.Namespace, Container: container, Implied: true}
	s.bind(edit.Binding{Policy: policyName(p), Image: s.Plan.Images[policyName(p)], Workload: w},
		fmt.Sprintf("no file has container '%s' of %s '%s', which ImagePolicy '%s' updates", container, kind, name,
			p.Name))
}

func notFoundMessage(number int, b imagev1.Binding) string {
	if b.Workload != nil {
		return fmt.Sprintf("binding %d: no file has the container of %s '%s'", number, b.Workload.Kind,
			b.Workload.Name)
	}
	return fmt.Sprintf("binding %d: file '%s' does not exist", number, b.ValuesFile.File)
}

func policyName(p *imagev1.ImagePolicy) string { return p.Namespace + ":" + p.Name }

func refOf(r imagev1.ImageRef) edit.Ref { return edit.Ref{Name: r.Name, Tag: r.Tag, Digest: r.Digest} }

// reasonOf describes the rule by which a policy chooses.
func reasonOf(p *imagev1.ImagePolicy) string {
	switch c := p.Spec.Policy; {
	case c.SemVer != nil:
		return fmt.Sprintf("highest version in range '%s'", c.SemVer.Range)
	case c.Alphabetical != nil:
		return fmt.Sprintf("last in alphabetical order (%s)", cmp.Or(c.Alphabetical.Order, imagev1.OrderAscending))
	case c.Numerical != nil:
		return fmt.Sprintf("last in numerical order (%s)", cmp.Or(c.Numerical.Order, imagev1.OrderAscending))
	case c.CreatedAt != nil:
		return fmt.Sprintf("%s by creation time", cmp.Or(c.CreatedAt.Order, imagev1.OrderNewest))
	case c.CEL != nil:
		return "first by CEL expression"
	}
	return ""
}

func bindingOf(policy string, image edit.Ref, b imagev1.Binding) edit.Binding {
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

// Problems lists what a scan could not set, at most 10 entries and a count of the others. Markers of other namespaces
// and of policies that are not selected belong to other automations and are not listed.
func (s *Selection) Problems(result scan.Result) []string {
	all := slices.Clone(s.unknownPolicies)
	for _, p := range result.Problems {
		if p.Policy == "" || strings.HasPrefix(p.Policy, s.namespace+":") && !s.hasSelector {
			all = append(all, p.String())
		}
	}
	for _, i := range result.Missing {
		b := s.Plan.Bindings[i]
		implied := b.Workload != nil && b.Workload.Implied
		if !implied || !slices.Contains(result.Policies, b.Policy) { // a marker replaces an implied binding
			all = append(all, s.notFound[i])
		}
	}
	if len(all) > maxProblems {
		return append(all[:maxProblems:maxProblems], fmt.Sprintf("and %d more", len(all)-maxProblems))
	}
	return all
}
