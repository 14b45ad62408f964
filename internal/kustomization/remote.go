package kustomization

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Remote reads how to reach other clusters.
type Remote struct {
	Reader     client.Reader    // past the cache: what it reads are Secrets
	Identities *auth.Identities // at clouds
	// Token makes a token of a ServiceAccount for audiences.
	Token func(ctx context.Context, account types.NamespacedName,
		audiences []string) (*authenticationv1.TokenRequestStatus, error)
	// Self tells which ServiceAccount the controller runs as.
	Self func(ctx context.Context) (types.NamespacedName, error)
	// DefaultAccount is the ServiceAccount, in the namespace of each Kustomization, of ConfigMaps that name
	// none; the controller's when empty.
	DefaultAccount string
	// AllowExec lets kubeconfigs run programs, AllowInsecureTLS lets them skip the check of the server's certificate.
	AllowExec, AllowInsecureTLS bool
	Reach                       *Reach // the ways to other clusters
}

// access is a way to a cluster.
type access struct {
	config *rest.Config
	id     string                          // changes with all that it is made of, but tokens that come and go
	login  func(ctx context.Context) error // tries whether there are credentials; may be nil
}

// access reads spec.kubeConfig.
func (r *Remote) access(ctx context.Context, obj *kustomizev1.Kustomization) (*access, error) {
	read := r.fromSecret
	if obj.Spec.KubeConfig.SecretRef == nil {
		read = r.fromConfigMap
	}
	a, err := read(ctx, obj)
	if err != nil {
		return nil, err
	}
	if a.config, err = r.Reach.by(a.config); err != nil {
		return nil, fault.New(meta.AuthenticationFailedReason,
			"the address, certificates or keys of spec.kubeConfig cannot be used").Because(err).Final()
	}
	return a, nil
}

func (r *Remote) fromSecret(ctx context.Context, obj *kustomizev1.Kustomization) (*access, error) {
	namespace, ref := obj.Namespace, obj.Spec.KubeConfig.SecretRef
	about := fmt.Sprintf("Secret '%s/%s' of spec.kubeConfig", namespace, ref.Name)
	var secret corev1.Secret
	if err := r.read(ctx, namespace, ref.Name, &secret, about); err != nil {
		return nil, err
	}
	keys := []string{"value", "value.yaml"}
	if ref.Key != "" {
		keys = []string{ref.Key}
	}
	for _, k := range keys {
		if raw := secret.Data[k]; len(raw) > 0 {
			cfg, err := r.parse(raw)
			if err != nil {
				return nil, fault.New(meta.AuthenticationFailedReason, "the kubeconfig in the key %s of %s is refused",
					k, about).Because(err).
					WithHint("It must hold all it needs by itself: server, certificate-authority-data, and a token " +
						"or client certificate data").Final()
			}
			return &access{config: cfg, id: "kubeconfig " + string(raw)}, nil
		}
	}
	return nil, fault.New(meta.AuthenticationFailedReason, "%s has no key %s", about, strings.Join(keys, " or ")).
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
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 ||
		len(u.ImpersonateUserExtra) > 0:
		return fmt.Errorf("it impersonates by itself; use spec.serviceAccountName")
	}
	return nil
}

func (r *Remote) read(ctx context.Context, namespace, name string, into client.Object, about string) error {
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return fault.New(meta.AuthenticationFailedReason, "%s not found", about).Because(errRemoteGone).
			WithHint("Create it, or correct spec.kubeConfig")
	}
	if err != nil {
		return fault.New(meta.AuthenticationFailedReason, "cannot read %s", about).Because(err)
	}
	return nil
}

// errRemoteGone says that what described the cluster is no longer there.
var errRemoteGone = errors.New("there is no such object")
