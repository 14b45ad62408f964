package localsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/offline/lookup"
)

// errIdentity is the reason why a source with workload identity is not fetched.
var errIdentity = errors.New("it uses the workload identity of its controller")

// login is what decides where credentials are sent.
type login struct {
	url, provider, account string
	secret, cert, proxy    *meta.LocalObjectReference
	insecure, pass         bool
}

// loginOf returns the login that a source declares. The path of the URL does not count.
func loginOf(o any) (a login, ok bool) {
	switch s := o.(type) {
	case *sourcev1.HelmRepository:
		a = login{url: s.Spec.URL, provider: s.Spec.Provider, secret: s.Spec.SecretRef, cert: s.Spec.CertSecretRef,
			insecure: s.Spec.Insecure, pass: s.Spec.PassCredentials}
	case *sourcev1.OCIRepository:
		a = login{url: s.Spec.URL, provider: s.Spec.Provider, account: s.Spec.ServiceAccountName,
			secret: s.Spec.SecretRef, cert: s.Spec.CertSecretRef, proxy: s.Spec.ProxySecretRef,
			insecure: s.Spec.Insecure}
	case *sourcev1.GitRepository:
		a = login{url: s.Spec.URL, provider: s.Spec.Provider, account: s.Spec.ServiceAccountName,
			secret: s.Spec.SecretRef, proxy: s.Spec.ProxySecretRef}
	default:
		return a, false
	}
	if u, err := url.Parse(a.url); err == nil {
		a.url = u.Scheme + "://" + u.Host
	}
	a.provider = cmp.Or(a.provider, sourcev1.ProviderGeneric)
	return a, true
}

// withoutCredentials returns a copy of a declared source without a status. It has credentials only if the cluster has
// the source with the same host and the same credentials: otherwise a change that is not reviewed yet could send them
// anywhere.
func withoutCredentials[T client.Object](declared T, live any) (T, error) {
	out := declared.DeepCopyObject().(T)
	if s, ok := any(out).(sourcev1.Source); ok {
		if o, ok := s.(interface{ SetArtifact(*meta.Artifact) }); ok {
			o.SetArtifact(nil)
		}
	}
	out.SetUID("")
	wanted, ok := loginOf(out)
	if !ok {
		return out, nil
	}
	if wanted.provider != sourcev1.ProviderGeneric && wanted.secret == nil {
		return out, errIdentity
	}
	if has, ok := loginOf(live); ok && reflect.DeepEqual(has, wanted) {
		return out, nil
	}
	switch s := any(out).(type) {
	case *sourcev1.HelmRepository:
		s.Spec.SecretRef, s.Spec.PassCredentials, s.Spec.Provider = nil, false, ""
	case *sourcev1.OCIRepository:
		s.Spec.SecretRef, s.Spec.ServiceAccountName, s.Spec.ProxySecretRef, s.Spec.Provider = nil, "", nil, ""
	case *sourcev1.GitRepository:
		s.Spec.SecretRef, s.Spec.ServiceAccountName, s.Spec.ProxySecretRef, s.Spec.Provider = nil, "", nil, ""
	}
	return out, nil
}

func specOf(o any) any {
	switch s := o.(type) {
	case *sourcev1.GitRepository:
		return s.Spec
	case *sourcev1.OCIRepository:
		return s.Spec
	case *sourcev1.Bucket:
		return s.Spec
	case *sourcev1.HelmChart:
		return s.Spec
	case *sourcev1.HelmRepository:
		return s.Spec
	}
	return nil
}

// overlay reads sources as the change declares them, without credentials that it must not use, and Secrets of the
// cluster.
type overlay struct{ options Options }

// Get implements [client.Reader].
func (o *overlay) Get(ctx context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	repository, ok := into.(*sourcev1.HelmRepository)
	if !ok {
		return o.options.Live.Get(ctx, key, into)
	}
	live := &sourcev1.HelmRepository{}
	err := o.options.Live.Get(ctx, key, live)
	wanted := live
	if o.options.Declared != nil {
		if d, ok := o.options.Declared(sourcev1.HelmRepositoryKind, key).(*sourcev1.HelmRepository); ok {
			wanted = d
		}
	}
	if err != nil && wanted == live {
		return lookup.Explain(fmt.Sprintf("cannot get HelmRepository '%s'", key), err)
	}
	safe, err := withoutCredentials(wanted, live)
	if err != nil {
		return err
	}
	safe.DeepCopyInto(repository)
	return nil
}

// List implements [client.Reader]. Only HelmRepositories are listed: those of dependencies.
func (o *overlay) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ok := list.(*sourcev1.HelmRepositoryList); !ok {
		return nil
	}
	if o.options.Live == nil {
		return errors.New("dependencies in other repositories are not fetched without a cluster")
	}
	return o.options.Live.List(ctx, list, options...)
}
