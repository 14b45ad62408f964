package alert

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/api/notification/v1beta3"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/provider"
)

// maxHeaders is how many headers a Secret may add to requests.
const maxHeaders = 64

// secrets is the data of what a Provider refers to.
type secrets struct {
	login, certificates, proxy map[string][]byte
	versions                   string
}

func (r *Resolver) read(ctx context.Context, p *v1beta3.Provider) (secrets, error) {
	var s secrets
	for _, ref := range []struct {
		field string
		ref   *meta.LocalObjectReference
		into  *map[string][]byte
	}{
		{"spec.secretRef", p.Spec.SecretRef, &s.login},
		{"spec.certSecretRef", p.Spec.CertSecretRef, &s.certificates},
		{"spec.proxySecretRef", p.Spec.ProxySecretRef, &s.proxy},
	} {
		if ref.ref == nil {
			continue
		}
		var secret corev1.Secret
		err := r.Secrets.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: ref.ref.Name}, &secret)
		if apierrors.IsNotFound(err) {
			return s, fault.New(v1beta3.TokenNotFoundReason, "Secret '%s/%s' not found", p.Namespace, ref.ref.Name).
				WithHint("Create it, or correct %s", ref.field)
		}
		if err != nil {
			return s, fault.New(v1beta3.TokenNotFoundReason, "cannot read Secret '%s/%s' of %s", p.Namespace,
				ref.ref.Name, ref.field).Because(err)
		}
		*ref.into = secret.Data
		s.versions += fmt.Sprintf("%s/%s ", secret.UID, secret.ResourceVersion)
	}
	return s, nil
}

// options puts a Provider in the words of its type.
func (r *Resolver) options(p *v1beta3.Provider, s secrets) (provider.Options, error) {
	o := provider.Options{
		Type: p.Spec.Type, Address: p.Spec.Address, Channel: p.Spec.Channel, Username: p.Spec.Username,
		Secret: s.login, CommitStatus: p.Spec.CommitStatusExpr, UID: string(p.UID), Clock: r.Clock,
		Identity: r.identity(p),
		Dial:     r.Egress.Dialer().DialContext,
	}
	if name := strings.TrimSpace(string(s.login["username"])); name != "" {
		o.Username = name
	}
	var err error
	if o.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(p); err != nil {
		return o, err
	}
	if o.Headers, err = headers(s.login["headers"]); err != nil {
		return o, err
	}
	certificates := s.certificates
	if p.Spec.CertSecretRef == nil {
		certificates = s.login
	}
	if o.TLS, err = auth.TLSFrom(certificates); err != nil {
		return o, unusable(err)
	}
	proxy, err := proxyOf(p, s)
	if err != nil {
		return o, err
	}
	// What a host says to one Provider is not held against another that sends to it.
	o.Transport, err = r.Egress.Transport(egress.Options{TLS: o.TLS, Proxy: proxy, Caller: "provider " + string(p.UID) +
		" " + s.versions})
	if err != nil {
		return o, unusable(err)
	}
	return o, nil
}

// proxyOf returns the URL of the proxy: of the Secret for it, else of the older places, else nil.
func proxyOf(p *v1beta3.Provider, s secrets) (*url.URL, error) {
	from, data := "the Secret of spec.proxySecretRef", s.proxy
	if p.Spec.ProxySecretRef == nil {
		address := []byte(p.Spec.Proxy)
		from = "spec.proxy"
		if len(s.login["proxy"]) > 0 {
			from, address = "the key proxy of the Secret of spec.secretRef", s.login["proxy"]
		}
		if len(address) == 0 {
			return nil, nil
		}
		data = map[string][]byte{"address": []byte(strings.TrimSpace(string(address)))}
	}
	u, err := auth.ProxyFrom(data)
	if err != nil {
		return nil, fault.New(v1beta3.ValidationFailedReason, "the proxy cannot be used that %s names", from).
			Because(err)
	}
	return u, nil
}

// headers reads the YAML of the key headers.
func headers(text []byte) (http.Header, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var all map[string]string
	if yaml.UnmarshalStrict(text, &all) != nil { // the error would quote them
		return nil, fault.New(v1beta3.ValidationFailedReason,
			"the key headers of the Secret is no YAML of names and values").
			WithHint("Write each header in a line, as NAME: VALUE")
	}
	if len(all) > maxHeaders {
		return nil, fault.New(v1beta3.ValidationFailedReason, "the key headers of the Secret has more than %d headers",
			maxHeaders).WithHint("Leave some out")
	}
	h := http.Header{}
	for name, value := range all {
		h.Set(name, strings.TrimSpace(value))
	}
	return h, nil
}

// unusable says of the Secrets what is wrong with them.
func unusable(err error) error {
	return fault.New(v1beta3.ValidationFailedReason, "the certificates of the Provider cannot be used").Because(err)
}
