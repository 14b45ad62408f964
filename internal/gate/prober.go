package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/build/expression"
	"github.com/sluice-gitops/sluice/internal/gate/probe"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
)

// maxAccounts bounds how many clients are cached, one per service account.
const maxAccounts = 1000

// Probes is the [Prober] that reads the cluster and calls endpoints. It is safe for concurrent use.
type Probes struct {
	Config               *rest.Config // to read objects, impersonating the gate's service account
	Mapper               apimeta.RESTMapper
	Secrets              client.Reader
	Egress               *egress.Policy
	NoCrossNamespaceRefs bool
	Hub                  Hub // that the cluster reports to; nil if there is none
	// Remote returns the connection to another cluster by what an object in a namespace refers to, and what identifies
	// the connection.
	Remote func(ctx context.Context, namespace string, ref *meta.KubeConfigReference) (*rest.Config, string, error)

	remotes  remoteClients
	mu       sync.Mutex
	accounts map[types.NamespacedName]dynamic.Interface
}

// Probe implements [Prober].
func (p *Probes) Probe(ctx context.Context, g *gatingv1.Gate, c gatingv1.Check) (string, error) {
	ctx = guard.WithOwner(ctx, g.Namespace)
	switch {
	case c.Object != nil:
		return p.probeObject(ctx, g, c.Object)
	case c.HTTP != nil:
		transport, login, err := p.access(ctx, g, c.HTTP.SecretRef, c.HTTP.CertSecretRef)
		if err != nil {
			return "", err
		}
		return probe.HTTP(ctx, transport, c.HTTP.URL, login)
	case c.Prometheus != nil:
		transport, login, err := p.access(ctx, g, c.Prometheus.SecretRef, c.Prometheus.CertSecretRef)
		if err != nil {
			return "", err
		}
		below, err := strconv.ParseFloat(c.Prometheus.Below, 64)
		if err != nil {
			return "", errors.New("below is not a number")
		}
		return probe.Prometheus(ctx, transport, c.Prometheus.Address, c.Prometheus.Query, below, login)
	}
	return "", errors.New("set one of object, http, prometheus, revision and clusters")
}

// probeObject reads an object with the rights of the gate's service account, so that a check does not reveal
// objects that the account may not read.
func (p *Probes) probeObject(ctx context.Context, g *gatingv1.Gate, c *gatingv1.ObjectCheck) (string, error) {
	compiled, err := expression.Compile(c.Expression, "object")
	if err != nil {
		return "", err
	}
	namespace := cmp.Or(c.Namespace, g.Namespace)
	if err := p.checkNamespace(g, namespace); err != nil {
		return "", err
	}
	gvk := schema.FromAPIVersionAndKind(c.APIVersion, c.Kind)
	mapping, err := p.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return "", fmt.Errorf("the cluster has no kind %s of %s", c.Kind, c.APIVersion)
	}
	account := accountOf(g)
	objects, err := p.clientAs(account)
	if err != nil {
		return "", err
	}
	read := dynamic.ResourceInterface(objects.Resource(mapping.Resource))
	if mapping.Scope.Name() == apimeta.RESTScopeNameNamespace {
		read = objects.Resource(mapping.Resource).Namespace(namespace)
	}
	object, err := read.Get(ctx, c.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("service account '%s' is not allowed to get %s '%s'", account, c.Kind, c.Name)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("%s '%s' not found", c.Kind, c.Name)
	case err != nil:
		return "", fmt.Errorf("cannot read %s '%s': %s", c.Kind, c.Name, apierrors.ReasonForError(err))
	}
	return probe.Object(ctx, compiled, object.Object)
}

// clientAs returns a client that impersonates a service account.
func (p *Probes) clientAs(account types.NamespacedName) (dynamic.Interface, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.accounts[account]; c != nil {
		return c, nil
	}
	cfg := rest.CopyConfig(p.Config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + account.Namespace + ":" +
		account.Name}
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	if p.accounts == nil || len(p.accounts) >= maxAccounts {
		p.accounts = map[types.NamespacedName]dynamic.Interface{}
	}
	p.accounts[account] = c
	return c, nil
}

// access returns the transport to an endpoint, and the login.
func (p *Probes) access(ctx context.Context, g *gatingv1.Gate, secret,
	certs *meta.LocalObjectReference) (http.RoundTripper, probe.Login, error) {
	data, err := p.secret(ctx, g, secret)
	if err != nil {
		return nil, probe.Login{}, err
	}
	login, err := probe.LoginFrom(data)
	if err != nil {
		return nil, probe.Login{}, err
	}
	if data, err = p.secret(ctx, g, certs); err != nil {
		return nil, probe.Login{}, err
	}
	tls, err := auth.TLSFrom(data)
	if err != nil {
		return nil, probe.Login{}, err
	}
	transport, err := p.Egress.Transport(egress.Options{TLS: tls, Caller: g.Namespace + "/" + g.Name})
	return transport, login, err
}

// secret returns the data of a Secret in the gate's namespace; nil if ref is nil.
func (p *Probes) secret(ctx context.Context, g *gatingv1.Gate, ref *meta.LocalObjectReference) (map[string][]byte,
	error) {
	if ref == nil {
		return nil, nil
	}
	var s corev1.Secret
	if err := p.Secrets.Get(ctx, types.NamespacedName{Namespace: g.Namespace, Name: ref.Name}, &s); err != nil {
		return nil, fmt.Errorf("cannot read Secret '%s': %s", ref.Name, apierrors.ReasonForError(err))
	}
	return s.Data, nil
}
