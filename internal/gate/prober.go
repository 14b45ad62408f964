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
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/expression"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/gate/probe"
)

// maxAccounts bounds how many accounts' clients are kept.
const maxAccounts = 1000

// Probes tries checks for real.
type Probes struct {
	Config               *rest.Config // objects are read by it, as the gate's service account
	Mapper               apimeta.RESTMapper
	Secrets              client.Reader // of the gate's namespace
	Egress               *egress.Policy
	NoCrossNamespaceRefs bool

	mu       sync.Mutex
	accounts map[types.NamespacedName]dynamic.Interface
}

// Probe implements [Prober].
func (p *Probes) Probe(ctx context.Context, g *gatingv1.Gate, c gatingv1.Check) (string, error) {
	switch {
	case c.Object != nil:
		return p.object(ctx, g, c.Object)
	case c.HTTP != nil:
		via, login, err := p.access(ctx, g, c.HTTP.SecretRef, c.HTTP.CertSecretRef)
		if err != nil {
			return "", err
		}
		return probe.HTTP(ctx, via, c.HTTP.URL, login)
	case c.Prometheus != nil:
		via, login, err := p.access(ctx, g, c.Prometheus.SecretRef, c.Prometheus.CertSecretRef)
		if err != nil {
			return "", err
		}
		below, err := strconv.ParseFloat(c.Prometheus.Below, 64)
		if err != nil {
			return "", errors.New("below is no number")
		}
		return probe.Prometheus(ctx, via, c.Prometheus.Address, c.Prometheus.Query, below, login)
	}
	return "", errors.New("the check is of no kind")
}

// object reads an object as the gate's account, so that nobody learns by a gate what the account may not see.
func (p *Probes) object(ctx context.Context, g *gatingv1.Gate, c *gatingv1.ObjectCheck) (string, error) {
	compiled, err := expression.Compile(c.Expression, "object")
	if err != nil {
		return "", err
	}
	namespace := cmp.Or(c.Namespace, g.Namespace)
	if p.NoCrossNamespaceRefs && namespace != g.Namespace {
		return "", fault.New(meta.AccessDeniedReason,
			"the object is in namespace '%s': cross-namespace references have been blocked", namespace)
	}
	gvk := schema.FromAPIVersionAndKind(c.APIVersion, c.Kind)
	mapping, err := p.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return "", fmt.Errorf("the cluster has no kind %s of %s", c.Kind, c.APIVersion)
	}
	account := types.NamespacedName{Namespace: g.Namespace, Name: cmp.Or(g.Spec.ServiceAccountName, "default")}
	as, err := p.as(account)
	if err != nil {
		return "", err
	}
	read := dynamic.ResourceInterface(as.Resource(mapping.Resource))
	if mapping.Scope.Name() == apimeta.RESTScopeNameNamespace {
		read = as.Resource(mapping.Resource).Namespace(namespace)
	}
	object, err := read.Get(ctx, c.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("service account '%s' may not get %s '%s'", account, c.Kind, c.Name)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("%s '%s' is not found", c.Kind, c.Name)
	case err != nil:
		return "", fmt.Errorf("%s '%s' cannot be read: %s", c.Kind, c.Name, apierrors.ReasonForError(err))
	}
	return probe.Object(ctx, compiled, object.Object)
}

// as returns a client with the rights of a service account.
func (p *Probes) as(account types.NamespacedName) (dynamic.Interface, error) {
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

// access returns the way to an endpoint, and the login there.
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
	via, err := p.Egress.Transport(egress.Options{TLS: tls, Caller: g.Namespace + "/" + g.Name})
	return via, login, err
}

// secret returns the data of a Secret in the gate's namespace; none when none is named.
func (p *Probes) secret(ctx context.Context, g *gatingv1.Gate, named *meta.LocalObjectReference) (map[string][]byte,
	error) {
	if named == nil {
		return nil, nil
	}
	var s corev1.Secret
	if err := p.Secrets.Get(ctx, types.NamespacedName{Namespace: g.Namespace, Name: named.Name}, &s); err != nil {
		return nil, fmt.Errorf("Secret '%s' cannot be read: %s", named.Name, apierrors.ReasonForError(err))
	}
	return s.Data, nil
}
