package gate

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/gate/promotion"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxMembers bounds how many objects a check of revisions may select.
const maxMembers = 500

// membersPerPage bounds how many objects are in memory at a time: a Kustomization with a large inventory can be large.
const membersPerPage = 50

// Members implements [Prober]. In the cluster of the gate, objects are read with the rights of the gate's service
// account; in another one with those of the kubeconfig.
func (p *Probes) Members(ctx context.Context, g *gatingv1.Gate, c *gatingv1.RevisionCheck) ([]promotion.Member,
	error) {
	namespace := cmp.Or(c.Namespace, g.Namespace)
	if c.KubeConfig == nil {
		if err := p.checkNamespace(g, namespace); err != nil {
			return nil, err
		}
	}
	kind, known := promotion.KindOf(c.Kind)
	if !known {
		return nil, fmt.Errorf("kind '%s' has no revisions", c.Kind)
	}
	reader, err := p.readerFor(ctx, g, c.KubeConfig)
	if err != nil {
		return nil, err
	}
	read := memberReader{objects: reader.client.Resource(kind.GroupVersionResource).Namespace(namespace),
		kind: c.Kind, namespace: namespace, user: reader.user}
	if c.Selector != nil {
		return read.list(ctx, c.Selector)
	}
	return read.get(ctx, c.Name)
}

// checkNamespace returns an error if checks of a gate may not read objects of a namespace.
func (p *Probes) checkNamespace(g *gatingv1.Gate, namespace string) error {
	if p.NoCrossNamespaceRefs && namespace != g.Namespace {
		return fault.New(meta.AccessDeniedReason,
			"the object is in namespace '%s': cross-namespace references have been blocked", namespace)
	}
	return nil
}

// accountReader reads objects with the rights of one account.
type accountReader struct {
	client dynamic.Interface
	user   string // for messages
}

// readerFor returns the reader of a cluster: that of the gate without a kubeconfig.
func (p *Probes) readerFor(ctx context.Context, g *gatingv1.Gate, ref *meta.KubeConfigReference) (accountReader,
	error) {
	if ref == nil {
		account := accountOf(g)
		c, err := p.clientAs(account)
		return accountReader{client: c, user: "service account '" + account.String() + "'"}, err
	}
	if p.Remote == nil || ref.SecretRef == nil && ref.ConfigMapRef == nil {
		return accountReader{}, fmt.Errorf("revision.kubeConfig names no credentials")
	}
	cfg, id, err := p.Remote(ctx, g.Namespace, ref)
	if err != nil {
		return accountReader{}, err
	}
	c, err := p.remotes.client(id, cfg)
	return accountReader{client: c, user: "the account of revision.kubeConfig"}, err
}

// accountOf returns the service account that reads the objects of a gate's checks.
func accountOf(g *gatingv1.Gate) types.NamespacedName {
	return types.NamespacedName{Namespace: g.Namespace, Name: cmp.Or(g.Spec.ServiceAccountName, "default")}
}

// memberReader reads the objects of a check.
type memberReader struct {
	objects   dynamic.ResourceInterface
	kind      gatingv1.PromotingKind
	namespace string
	user      string
}

func (r memberReader) get(ctx context.Context, name string) ([]promotion.Member, error) {
	object, err := r.objects.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, r.explain(err, fmt.Sprintf("get %s '%s/%s'", r.kind, r.namespace, name))
	}
	return []promotion.Member{r.member(object)}, nil
}

func (r memberReader) list(ctx context.Context, s *metav1.LabelSelector) ([]promotion.Member, error) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, err
	}
	var members []promotion.Member
	options := metav1.ListOptions{LabelSelector: selector.String(), Limit: membersPerPage}
	for {
		page, err := r.objects.List(ctx, options)
		if err != nil {
			return nil, r.explain(err, fmt.Sprintf("list %ss in namespace '%s'", r.kind, r.namespace))
		}
		for i := range page.Items {
			members = append(members, r.member(&page.Items[i]))
		}
		if len(members) > maxMembers {
			return nil, fmt.Errorf("revision.selector selects more than %d objects; select fewer", maxMembers)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return members, nil
		}
	}
}

// member returns an object as a member. The kind is missing in the items of lists of some servers.
func (r memberReader) member(o *unstructured.Unstructured) promotion.Member {
	o.SetKind(string(r.kind))
	return promotion.MemberOf(o)
}

// explain describes an error without the text of the server, which may quote what the account may not read.
func (r memberReader) explain(err error, what string) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s is not allowed to %s", r.user, what)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("cannot %s: the cluster has no such kind", what)
	}
	return fmt.Errorf("cannot %s: %s", what, cmp.Or(string(apierrors.ReasonForError(err)), "the request failed"))
}

// remoteClients caches clients of other clusters, by what identifies their connection. It is safe for concurrent use.
type remoteClients struct {
	mu   sync.Mutex
	byID map[string]dynamic.Interface
}

func (r *remoteClients) client(id string, cfg *rest.Config) (dynamic.Interface, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.byID[id]; c != nil {
		return c, nil
	}
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fault.New(meta.AuthenticationFailedReason, "cannot use the cluster's address or credentials").
			Because(err)
	}
	if r.byID == nil || len(r.byID) >= maxAccounts {
		r.byID = map[string]dynamic.Interface{}
	}
	r.byID[id] = c
	return c, nil
}
