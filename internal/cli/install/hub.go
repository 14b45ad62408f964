package install

import (
	"errors"
	"fmt"
	"path"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/sluice-gitops/sluice/internal/process/options"
)

// HubComponent is the value of --components that installs a hub.
const HubComponent = "hub"

const (
	hubName   = "sluice-hub"
	hubPeers  = hubName + "-peers" // the headless Service of its replicas
	hubTLSDir = "/etc/sluice-hub"
	// hubSession is the Secret with the key of sessions.
	hubSession = hubName + "-session"
)

// Hub says how a hub runs in the cluster. Without a URL there is none.
type Hub struct {
	URL       string `json:"url,omitempty"`       // by which clusters reach it
	TLSSecret string `json:"tlsSecret,omitempty"` // with tls.crt and tls.key; without it, a proxy provides HTTPS
	Only      bool   `json:"only,omitempty"`      // without definitions and controllers
}

// takeHub removes the hub from the components.
func (o *Options) takeHub() error {
	if slices.Contains(o.Components, HubComponent) {
		if o.Hub.URL == "" {
			return errors.New("--components hub needs --hub-url, the URL by which clusters reach the hub")
		}
		o.Components = slices.DeleteFunc(slices.Clone(o.Components), func(c string) bool { return c == HubComponent })
		o.Hub.Only = len(o.Components) == 0
	}
	return o.Hub.validate()
}

func (h Hub) validate() error {
	if h == (Hub{}) {
		return nil
	}
	if h.URL == "" {
		return errors.New("--hub-tls-secret needs --hub-url, the URL by which clusters reach the hub")
	}
	if problems := validation.IsDNS1123Subdomain(h.TLSSecret); h.TLSSecret != "" && len(problems) > 0 {
		return fmt.Errorf("invalid --hub-tls-secret %q: %s", h.TLSSecret, problems[0])
	}
	o := options.HubOptions{Addr: ":0", ExternalURL: h.URL, LoginOptions: UI{}.login()}
	if err := o.Validate(); err != nil {
		return fmt.Errorf("--hub-url: %w", err)
	}
	return nil
}

// hubDeployment returns the Deployment of the hub. With a storage backend it has several replicas, which share the
// summaries by the bucket.
func (o Options) hubDeployment(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	d := &appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, d); err != nil {
		return nil, err
	}
	d.Spec.Replicas = ptr.To(int32(o.replicas()))
	pod := &d.Spec.Template.Spec
	c := &pod.Containers[0]
	c.Image = o.ImageReference()
	c.Args = append(c.Args, "--external-url="+o.Hub.URL)
	c.Args = append(c.Args, o.backendArgs([]string{options.SourceController})...)
	if o.LogLevel != defaultLogLevel {
		c.Args = append(c.Args, "--log-level="+o.LogLevel)
	}
	c.Args = append(c.Args, o.UI.loginArgs()...)
	if o.Hub.TLSSecret != "" {
		c.Args = append(c.Args, "--tls-cert-file="+path.Join(hubTLSDir, corev1.TLSCertKey),
			"--tls-key-file="+path.Join(hubTLSDir, corev1.TLSPrivateKeyKey))
		mountSecret(pod, "tls", o.Hub.TLSSecret, hubTLSDir)
	}
	o.UI.mountClientSecret(pod)
	if o.Backend.Secret != "" {
		c.EnvFrom = append(c.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: o.Backend.Secret}}})
	}
	o.place(pod)
	configured, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	delete(configured, "status")
	unstructured.RemoveNestedField(configured, "spec", "strategy") // empty
	return &unstructured.Unstructured{Object: configured}, err
}

// isHub reports whether an object belongs to the hub.
func isHub(u *unstructured.Unstructured) bool {
	return slices.Contains([]string{hubName, hubPeers, hubSession}, u.GetName())
}
