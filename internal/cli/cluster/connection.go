// Package cluster is how the command line reads and changes objects of a cluster. It never prints.
package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
)

// DefaultNamespace is where the controllers run, and the namespace of commands without --namespace.
const DefaultNamespace = "flux-system"

const namespaceEnv = "SLUICE_NAMESPACE"

// Connection is access to a cluster as the global flags describe it.
type Connection struct {
	// Timeout bounds a whole command, except the time that a person takes to answer.
	Timeout time.Duration
	// OnRequest is called after each request to the API server if --verbose is set.
	OnRequest func(method, uri, result string)

	flags          *genericclioptions.ConfigFlags
	verbose        bool
	qps            float32
	burst          int
	timeoutSet     bool // --timeout is on the command line
	followsContext bool // use the namespace of the kubeconfig's context
}

// NewConnection returns a connection with default settings.
func NewConnection() *Connection {
	c := &Connection{flags: genericclioptions.NewConfigFlags(true)}
	c.flags.Timeout = nil // --timeout bounds the command, not a request
	*c.flags.Namespace = DefaultNamespace
	if namespace := os.Getenv(namespaceEnv); namespace != "" {
		*c.flags.Namespace = namespace
	}
	return c
}

// AddFlags adds the global flags.
func (c *Connection) AddFlags(f *pflag.FlagSet) {
	kube := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.flags.AddFlags(kube)
	kube.Lookup("namespace").Usage = "namespace of the objects, or of the controllers for install and uninstall"
	kube.Lookup("server").Shorthand = "" // -s is short for --silent
	f.AddFlagSet(kube)
	f.BoolVar(&c.followsContext, "ns-follows-kube-context", false,
		"use the namespace of the kubeconfig context if --namespace is not set")
	f.DurationVar(&c.Timeout, "timeout", 5*time.Minute,
		"maximum duration of the command; a watch ends after it only if it is set")
	f.BoolVar(&c.verbose, "verbose", false, "print every request to the Kubernetes API")
	f.Float32Var(&c.qps, "kube-api-qps", 50, "maximum requests per second to the Kubernetes API")
	f.IntVar(&c.burst, "kube-api-burst", 300, "maximum burst of requests to the Kubernetes API")
}

// Complete sets the namespace from the kubeconfig context if the user asked for that and did not set --namespace.
func (c *Connection) Complete(f *pflag.FlagSet) error {
	c.timeoutSet = f.Changed("timeout")
	if !c.followsContext || f.Changed("namespace") {
		return nil
	}
	*c.flags.Namespace = "" // otherwise it overrides the context
	namespace, _, err := c.flags.ToRawKubeConfigLoader().Namespace()
	*c.flags.Namespace = namespace
	return err
}

// Namespace returns the namespace of the command.
func (c *Connection) Namespace() string { return *c.flags.Namespace }

// NamespaceOr returns the namespace of the command, or "" for all namespaces.
func (c *Connection) NamespaceOr(all bool) string {
	if all {
		return ""
	}
	return c.Namespace()
}

// Getter returns the connection in the form that kubectl's libraries use.
func (c *Connection) Getter() genericclioptions.RESTClientGetter { return c.flags }

// ContextName returns the name of the context of the kubeconfig that is used; empty if there is none.
func (c *Connection) ContextName() string {
	if name := *c.flags.Context; name != "" {
		return name
	}
	raw, err := c.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return "" // whoever connects reports it
	}
	return raw.CurrentContext
}

// KubeconfigFile returns the file of --kubeconfig; empty if it is not set.
func (c *Connection) KubeconfigFile() string { return *c.flags.KubeConfig }

// WithTimeout returns a context that ends after --timeout.
func (c *Connection) WithTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.Timeout)
}

// ForWatch returns a context that ends after --timeout if the user set it. Without it, a watch has no end.
func (c *Connection) ForWatch(ctx context.Context) (context.Context, context.CancelFunc) {
	if !c.timeoutSet {
		return context.WithCancel(ctx)
	}
	return c.WithTimeout(ctx)
}

// Config returns the configuration of clients.
func (c *Connection) Config() (*rest.Config, error) {
	if missing := c.missingKubeconfig(); missing != "" {
		return nil, fmt.Errorf("no cluster configured: kubeconfig '%s' does not exist. Set --kubeconfig or $KUBECONFIG",
			missing)
	}
	cfg, err := c.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster configured: %w. Set --kubeconfig or $KUBECONFIG", err)
	}
	cfg.QPS, cfg.Burst = c.qps, c.burst
	cfg.UserAgent = "sluice-cli"
	if c.verbose && c.OnRequest != nil {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return observedTransport{c.OnRequest, next} })
	}
	return cfg, nil
}

// missingKubeconfig returns the kubeconfigs that would be read if none of them exists and nothing else names a cluster:
// the API server of kubectl's default, localhost:8080, is never meant. It returns "" if there is one.
func (c *Connection) missingKubeconfig() string {
	if *c.flags.APIServer != "" || *c.flags.KubeConfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		return ""
	}
	files := clientcmd.NewDefaultClientConfigLoadingRules().GetLoadingPrecedence()
	if *c.flags.KubeConfig != "" {
		files = []string{*c.flags.KubeConfig}
	}
	for _, file := range files {
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			return ""
		}
	}
	return strings.Join(files, "', '")
}

// Client returns a client for all kinds of Sluice that can watch.
func (c *Connection) Client() (client.WithWatch, error) {
	cfg, err := c.Config()
	if err != nil {
		return nil, err
	}
	log.SetLogger(logr.Discard()) // controller-runtime warns if no logger is set
	cl, err := client.NewWithWatch(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		return nil, Explain("cannot reach the cluster", err)
	}
	return cl, nil
}

// observedTransport reports each request to onRequest.
type observedTransport struct {
	onRequest func(method, uri, result string)
	next      http.RoundTripper
}

func (t observedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	result := "no response"
	if err == nil {
		result = resp.Status
	}
	t.onRequest(r.Method, r.URL.RequestURI(), result)
	return resp, err
}
