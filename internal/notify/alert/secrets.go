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
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/notify/provider"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// maxHeaders is the maximum number of headers that a Secret may add to requests.
const maxHeaders = 64

// secretData is the data of the Secrets that a Provider refers to.
type secretData struct {
	login, certificates, proxy map[string][]byte
	versions                   string // UIDs and resource versions of all Secrets
}

func (r *Resolver) readSecrets(ctx context.Context, p *notificationv1.Provider) (secretData, error) {
	var s secretData
	for _, ref := range []struct {
		field string
		ref   *meta.LocalObjectReference
		into  *map[string][]byte
	}{
		{field: "spec.secretRef", ref: p.Spec.SecretRef, into: &s.login},
		{field: "spec.certSecretRef", ref: p.Spec.CertSecretRef, into: &s.certificates},
		{field: "spec.proxySecretRef", ref: p.Spec.ProxySecretRef, into: &s.proxy},
	} {
		if ref.ref == nil {
			continue
		}
		var secret corev1.Secret
		err := r.Secrets.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: ref.ref.Name}, &secret)
		if apierrors.IsNotFound(err) {
			return s, fault.New(notificationv1.TokenNotFoundReason, "Secret '%s/%s' not found", p.Namespace,
				ref.ref.Name).WithHint("Create it or correct %s", ref.field)
		}
		if err != nil {
			return s, fault.New(notificationv1.TokenNotFoundReason, "cannot read Secret '%s/%s' of %s", p.Namespace,
				ref.ref.Name, ref.field).Because(err)
		}
		*ref.into = secret.Data
		s.versions += fmt.Sprintf("%s/%s ", secret.UID, secret.ResourceVersion)
	}
	return s, nil
}

// options returns the options of the sender.
func (r *Resolver) options(p *notificationv1.Provider, s secretData) (provider.Options, error) {
	o := provider.Options{
		Type: p.Spec.Type, Address: p.Spec.Address, Channel: p.Spec.Channel, Username: p.Spec.Username,
		Secret: s.login, CommitStatus: p.Spec.CommitStatusExpr, UID: string(p.UID), Clock: r.Clock,
		Dial: r.Egress.Dialer().DialContext,
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
		return o, invalidCertificates(err)
	}
	o.Identity = r.identity(p, o.TLS)
	proxy, err := proxyOf(p, s)
	if err != nil {
		return o, err
	}
	// The caller separates rate limits of the host by Provider: one Provider must not block another.
	o.Transport, err = r.Egress.Transport(egress.Options{TLS: o.TLS, Proxy: proxy, Caller: "provider " + string(p.UID) +
		" " + s.versions})
	if err != nil {
		return o, invalidCertificates(err)
	}
	return o, nil
}

// proxyOf returns the URL of the proxy, or nil. The order is spec.proxySecretRef, the Secret of spec.secretRef, and
// spec.proxy; the last two are deprecated.
func proxyOf(p *notificationv1.Provider, s secretData) (*url.URL, error) {
	field, data := "the Secret of spec.proxySecretRef", s.proxy
	if p.Spec.ProxySecretRef == nil {
		address := []byte(p.Spec.Proxy)
		field = "spec.proxy"
		if len(s.login["proxy"]) > 0 {
			field, address = "the key proxy of the Secret of spec.secretRef", s.login["proxy"]
		}
		if len(address) == 0 {
			return nil, nil
		}
		data = map[string][]byte{"address": []byte(strings.TrimSpace(string(address)))}
	}
	u, err := auth.ProxyFrom(data)
	if err != nil {
		return nil, fault.New(notificationv1.ValidationFailedReason, "the proxy in %s is not valid", field).
			Because(err)
	}
	return u, nil
}

// headers parses the YAML of the key headers.
func headers(text []byte) (http.Header, error) {
	if len(text) == 0 {
		return nil, nil
	}
	var all map[string]string
	// The error would quote the content.
	if yamlsize.Check(text) != nil || yaml.UnmarshalStrict(text, &all) != nil {
		return nil, fault.New(notificationv1.ValidationFailedReason,
			"the key headers of the Secret is not a YAML map of strings").
			WithHint("Write one line NAME: VALUE for each header")
	}
	if len(all) > maxHeaders {
		return nil, fault.New(notificationv1.ValidationFailedReason,
			"the key headers of the Secret has more than %d headers", maxHeaders).WithHint("Remove headers that the " +
			"service does not need")
	}
	h := http.Header{}
	for name, value := range all {
		h.Set(name, strings.TrimSpace(value))
	}
	return h, nil
}

func invalidCertificates(err error) error {
	return fault.New(notificationv1.ValidationFailedReason, "the certificates of the Provider are not valid").
		Because(err)
}
