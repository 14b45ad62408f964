package sync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Remote reads how to reach other clusters.
type Remote struct {
	Reader client.Reader // past the cache: what it reads are Secrets
	// Token makes a token of a ServiceAccount for an audience.
	Token func(ctx context.Context, account types.NamespacedName, audiences []string) (*authenticationv1.TokenRequestStatus, error)
	// AllowExec lets kubeconfigs run programs, AllowInsecureTLS lets them skip the check of the server's certificate.
	AllowExec, AllowInsecureTLS bool
}

// Config returns the client configuration of spec.kubeConfig, and an ID that changes with all that it is made of.
func (r *Remote) Config(ctx context.Context, obj *kustomizev1.Kustomization) (*rest.Config, string, error) {
	if ref := obj.Spec.KubeConfig.SecretRef; ref != nil {
		return r.fromSecret(ctx, obj.Namespace, *ref)
	}
	return r.fromConfigMap(ctx, obj.Namespace, obj.Spec.KubeConfig.ConfigMapRef.Name)
}

func (r *Remote) fromSecret(ctx context.Context, namespace string, ref meta.SecretKeyReference) (*rest.Config, string, error) {
	about := fmt.Sprintf("Secret '%s/%s' of spec.kubeConfig", namespace, ref.Name)
	var secret corev1.Secret
	if err := r.read(ctx, namespace, ref.Name, &secret, about); err != nil {
		return nil, "", err
	}
	keys := []string{"value", "value.yaml"}
	if ref.Key != "" {
		keys = []string{ref.Key}
	}
	for _, k := range keys {
		if raw := secret.Data[k]; len(raw) > 0 {
			cfg, err := r.parse(raw)
			if err != nil {
				return nil, "", fault.New(meta.AuthenticationFailedReason, "the kubeconfig in the key %s of %s is refused", k, about).Because(err).
					WithHint("It must hold all it needs by itself: server, certificate-authority-data, and a token or client certificate data").Final()
			}
			return cfg, "kubeconfig " + string(raw), nil
		}
	}
	return nil, "", fault.New(meta.AuthenticationFailedReason, "%s has no key %s", about, strings.Join(keys, " or ")).
		WithHint("Put the kubeconfig there, or name its key in spec.kubeConfig.secretRef.key")
}

// parse reads a kubeconfig. One that names programs or files is refused: they would be run and read as the controller
// (CVE-2022-24817).
func (r *Remote) parse(raw []byte) (*rest.Config, error) {
	loaded, err := clientcmd.Load(raw)
	if err != nil {
		return nil, fmt.Errorf("it is no kubeconfig") // the parser's own error quotes from it
	}
	for _, u := range loaded.AuthInfos {
		if err := r.checkUser(u); err != nil {
			return nil, err
		}
	}
	for _, c := range loaded.Clusters {
		switch {
		case c.CertificateAuthority != "":
			return nil, fmt.Errorf("it names the file certificate-authority")
		case c.InsecureSkipTLSVerify && !r.AllowInsecureTLS:
			return nil, fmt.Errorf("insecure-skip-tls-verify is not allowed without --insecure-kubeconfig-tls")
		}
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*loaded, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("its current-context does not lead to a cluster and a user")
	}
	return cfg, nil
}

func (r *Remote) checkUser(u *clientcmdapi.AuthInfo) error {
	switch {
	case u.Exec != nil && !r.AllowExec:
		return fmt.Errorf("it runs a program (user.exec), which is not allowed without --insecure-kubeconfig-exec")
	case u.AuthProvider != nil:
		return fmt.Errorf("it uses user.auth-provider, which Kubernetes no longer has")
	case u.TokenFile != "" || u.ClientCertificate != "" || u.ClientKey != "":
		return fmt.Errorf("it names a file: tokenFile, client-certificate or client-key")
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 || len(u.ImpersonateUserExtra) > 0:
		return fmt.Errorf("it impersonates by itself; use spec.serviceAccountName")
	}
	return nil
}

// fromConfigMap makes a configuration whose credentials are tokens of a ServiceAccount that the cluster trusts by OIDC.
func (r *Remote) fromConfigMap(ctx context.Context, namespace, name string) (*rest.Config, string, error) {
	about := fmt.Sprintf("ConfigMap '%s/%s' of spec.kubeConfig", namespace, name)
	var cm corev1.ConfigMap
	if err := r.read(ctx, namespace, name, &cm, about); err != nil {
		return nil, "", err
	}
	get := func(key string) string { return strings.TrimSpace(cm.Data[key]) }
	if p := get("provider"); p != "generic" {
		return nil, "", fault.New(meta.AuthenticationFailedReason, "%s has the provider '%s'", about, p).
			WithHint("Set provider to generic, with address, ca.crt and audiences: every managed Kubernetes service can trust the issuer of this cluster's tokens by OIDC. Or use spec.kubeConfig.secretRef").Final()
	}
	if !strings.HasPrefix(get("address"), "https://") {
		return nil, "", fault.New(meta.AuthenticationFailedReason, "%s needs the key address, an https URL", about).Final()
	}
	account := types.NamespacedName{Namespace: namespace, Name: get("serviceAccountName")}
	if account.Name == "" {
		account.Name = "default"
	}
	audiences := strings.Fields(strings.ReplaceAll(strings.NewReplacer("- ", " ", ",", " ").Replace(cm.Data["audiences"]), "\n", " "))
	if len(audiences) == 0 {
		audiences = []string{get("address")}
	}
	cfg := &rest.Config{Host: get("address"), TLSClientConfig: rest.TLSClientConfig{CAData: []byte(cm.Data["ca.crt"])}}
	cfg.Wrap(transport.TokenSourceWrapTransport(transport.NewCachedTokenSource(&accountTokens{r, account, audiences})))
	return cfg, strings.Join(append([]string{"oidc", get("address"), cm.Data["ca.crt"], account.String()}, audiences...), "\x00"), nil
}

func (r *Remote) read(ctx context.Context, namespace, name string, into client.Object, about string) error {
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return fault.New(meta.AuthenticationFailedReason, "%s not found", about).Because(errRemoteGone).WithHint("Create it, or correct spec.kubeConfig")
	}
	if err != nil {
		return fault.New(meta.AuthenticationFailedReason, "cannot read %s", about).Because(err)
	}
	return nil
}

// tokenTimeout bounds the making of one token.
const tokenTimeout = 30 * time.Second

// errRemoteGone says that what described the cluster is no longer there.
var errRemoteGone = errors.New("there is no such object")

// accountTokens makes tokens of a ServiceAccount.
type accountTokens struct {
	remote    *Remote
	account   types.NamespacedName
	audiences []string
}

// Token implements [oauth2.TokenSource].
func (a *accountTokens) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tokenTimeout)
	defer cancel()
	t, err := a.remote.Token(ctx, a.account, a.audiences)
	if err != nil {
		return nil, fmt.Errorf("cannot make a token of ServiceAccount '%s': %w", a.account, err)
	}
	return &oauth2.Token{AccessToken: t.Token, Expiry: t.ExpirationTimestamp.Time}, nil
}
