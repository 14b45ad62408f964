package rollout

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

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// RemoteClusters connects to other clusters, as specified by spec.kubeConfig.
type RemoteClusters struct {
	Reader     client.Reader    // reads Secrets and ConfigMaps, without a cache
	Identities *auth.Identities // for clusters of clouds
	// Token requests a token of a ServiceAccount for audiences.
	Token func(ctx context.Context, account types.NamespacedName,
		audiences []string) (*authenticationv1.TokenRequestStatus, error)
	// Self returns the ServiceAccount that the controller runs as.
	Self func(ctx context.Context) (types.NamespacedName, error)
	// DefaultAccount is the ServiceAccount, in the namespace of the owner, for ConfigMaps that do not name one.
	// When it is empty, the ServiceAccount of the controller is used.
	DefaultAccount string
	// AllowExec allows kubeconfigs to run programs.
	AllowExec bool
	// AllowInsecureTLS allows kubeconfigs to skip the verification of the server's certificate.
	AllowInsecureTLS bool
	Transports       *Transports
}

// connection is how to connect to a cluster.
type connection struct {
	config *rest.Config
	// namespace is that of objects that declare none; empty if they are refused.
	namespace string
	id        string                          // changes with everything but short-lived tokens; may hold secrets
	login     func(ctx context.Context) error // checks that a token can be obtained; may be nil
}

// connect reads what spec.kubeConfig of an object in the namespace refers to.
func (r *RemoteClusters) connect(ctx context.Context, namespace string,
	ref *meta.KubeConfigReference) (*connection, error) {
	var c *connection
	var err error
	if ref.SecretRef != nil {
		c, err = r.fromSecret(ctx, namespace, *ref.SecretRef)
	} else {
		c, err = r.fromConfigMap(ctx, namespace, ref.ConfigMapRef.Name)
	}
	if err != nil {
		return nil, err
	}
	if c.config, err = r.Transports.configure(c.config); err != nil {
		return nil, fault.New(meta.AuthenticationFailedReason,
			"the address, certificates or keys of spec.kubeConfig cannot be used").Because(err).Final()
	}
	return c, nil
}

// Config returns the connection to the cluster of a spec.kubeConfig of an object in the namespace, and a digest that
// changes with everything but short-lived tokens.
func (r *RemoteClusters) Config(ctx context.Context, namespace string, ref *meta.KubeConfigReference) (*rest.Config,
	string, error) {
	c, err := r.connect(ctx, namespace, ref)
	if err != nil {
		return nil, "", err
	}
	return c.config, digestOf(c.id), nil
}

// fromSecret connects with the kubeconfig in a Secret.
func (r *RemoteClusters) fromSecret(ctx context.Context, namespace string,
	ref meta.SecretKeyReference) (*connection, error) {
	name := fmt.Sprintf("Secret '%s/%s' of spec.kubeConfig", namespace, ref.Name)
	var secret corev1.Secret
	if err := r.read(ctx, namespace, ref.Name, &secret, name); err != nil {
		return nil, err
	}
	keys := []string{"value", "value.yaml"}
	if ref.Key != "" {
		keys = []string{ref.Key}
	}
	for _, k := range keys {
		if raw := secret.Data[k]; len(raw) > 0 {
			cfg, namespace, err := r.parse(ctx, raw)
			if err != nil {
				return nil, fault.New(meta.AuthenticationFailedReason, "the kubeconfig in key '%s' of %s is rejected",
					k, name).Because(err).
					WithHint("It must contain the server, certificate-authority-data, and a token or client " +
						"certificate data").Final()
			}
			return &connection{config: cfg, namespace: namespace, id: "kubeconfig " + string(raw)}, nil
		}
	}
	return nil, fault.New(meta.AuthenticationFailedReason, "%s has no key %s", name, strings.Join(keys, " or ")).
		WithHint("Put the kubeconfig there, or name its key in spec.kubeConfig.secretRef.key")
}

// parse reads a kubeconfig, and returns the namespace of its current context, which may be empty. It rejects programs
// and files, because the controller would run and read them (CVE-2022-24817). Errors do not contain parts of the
// kubeconfig.
func (r *RemoteClusters) parse(ctx context.Context, raw []byte) (*rest.Config, string, error) {
	lease, err := yamlsize.Acquire(ctx, "reading a kubeconfig", raw)
	if err != nil {
		return nil, "", err
	}
	defer lease.Release()
	loaded, err := clientcmd.Load(raw)
	if err != nil {
		return nil, "", fmt.Errorf("it is not a valid kubeconfig") // the parser's error quotes the content
	}
	for _, u := range loaded.AuthInfos {
		if err := r.checkUser(u); err != nil {
			return nil, "", err
		}
	}
	for _, c := range loaded.Clusters {
		switch {
		case c.CertificateAuthority != "":
			return nil, "", fmt.Errorf("certificate-authority names a file, which is not allowed")
		case c.InsecureSkipTLSVerify && !r.AllowInsecureTLS:
			return nil, "", fmt.Errorf("insecure-skip-tls-verify is not allowed without --insecure-kubeconfig-tls")
		}
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*loaded, nil).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("its current-context does not name an existing cluster and user")
	}
	namespace := ""
	if c := loaded.Contexts[loaded.CurrentContext]; c != nil {
		namespace = c.Namespace
	}
	return cfg, namespace, nil
}

func (r *RemoteClusters) checkUser(u *clientcmdapi.AuthInfo) error {
	switch {
	case u.Exec != nil && !r.AllowExec:
		return fmt.Errorf("user.exec runs a program, which is not allowed without --insecure-kubeconfig-exec")
	case u.AuthProvider != nil:
		return fmt.Errorf("user.auth-provider is not supported: Kubernetes removed it")
	case u.TokenFile != "" || u.ClientCertificate != "" || u.ClientKey != "":
		return fmt.Errorf("tokenFile, client-certificate or client-key names a file, which is not allowed")
	case u.Impersonate != "" || u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 ||
		len(u.ImpersonateUserExtra) > 0:
		return fmt.Errorf("user.as impersonates a user, which is not allowed; use spec.serviceAccountName")
	}
	return nil
}

// read reads a Secret or ConfigMap. name is how errors name it.
func (r *RemoteClusters) read(ctx context.Context, namespace, objectName string, into client.Object,
	name string) error {
	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: objectName}, into)
	if apierrors.IsNotFound(err) {
		return credentialsNotFound{fault.New(meta.ReconciliationFailedReason, "%s not found", name).
			WithHint("Create it, or correct spec.kubeConfig")}
	}
	if err != nil {
		return fault.New(meta.AuthenticationFailedReason, "cannot read %s", name).Because(err)
	}
	return nil
}

// credentialsNotFound is the error when the Secret or ConfigMap of spec.kubeConfig does not exist.
type credentialsNotFound struct{ fault *fault.Fault }

func (e credentialsNotFound) Error() string { return e.fault.Error() }

func (e credentialsNotFound) Unwrap() error { return e.fault }

// IsCredentialsNotFound reports whether err is due to a Secret or ConfigMap of spec.kubeConfig that does not exist.
func IsCredentialsNotFound(err error) bool { return errors.As(err, new(credentialsNotFound)) }
