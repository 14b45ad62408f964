package migrate

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scope says what Sluice takes over. The zero value is everything.
type Scope struct {
	Controllers []string `json:"controllers,omitempty"` // names of controllers; empty for all that run
	Namespaces  []string `json:"namespaces,omitempty"`  // whose objects move; empty for all
}

// IsComplete reports whether nothing stays with Flux.
func (s Scope) IsComplete() bool { return len(s.Controllers) == 0 && len(s.Namespaces) == 0 }

// Engine migrates one cluster.
type Engine struct {
	Client    client.Client // reads from the API server, see [NewClient]
	Namespace string        // of Flux and of Sluice
	Scope     Scope

	// AllowChanges allows a migration although applied objects would change.
	AllowChanges bool
	// SuspendSync suspends the objects that would deploy Flux again. See [Sync].
	SuspendSync bool

	ClusterDomain string // internal domain of the cluster, such as cluster.local

	// Definitions are our CustomResourceDefinitions.
	Definitions []*unstructured.Unstructured
	// Manifests returns the objects that run our controllers, without definitions.
	Manifests func(Settings) ([]*unstructured.Unstructured, error)
	// Apply applies objects and waits until definitions are served.
	Apply func(ctx context.Context, objects []*unstructured.Unstructured) error
	// Compare returns what our controllers would do to the objects that a Kustomization or HelmRelease applied. Nothing
	// is compared if it is nil.
	Compare func(ctx context.Context, o Object, s Settings) Comparison
	// Flag describes a flag of our controllers, and Gate a feature gate.
	Flag func(name string) FlagInfo
	Gate func(name string) FlagInfo

	// OnStep is called when a step starts, OnWait while a step waits. They may be nil.
	OnStep, OnWait func(message string)
	// ReadyTimeout is how long one wait may take: for Pods, for leases, and for objects to be Ready.
	ReadyTimeout time.Duration
	// PollInterval is the interval between looks at the cluster while a step waits.
	PollInterval time.Duration
	// Now is the clock.
	Now func() time.Time
}

// Settings are what our controllers are started with.
type Settings struct {
	Controllers []string // to run
	Args        []string // in addition to those of an installation

	// Of a FluxInstance, if the command does not set them.
	ClusterDomain   string `json:",omitempty"`
	PullSecret      string `json:",omitempty"`
	NoNetworkPolicy bool   `json:",omitempty"`
}

// Install returns the command that installs our controllers in the same way.
func (s Settings) Install(namespace string) string {
	words := []string{"sluice", "install", "-n", namespace, "--components=" + strings.Join(s.Controllers, ",")}
	if s.ClusterDomain != "" {
		words = append(words, "--cluster-domain="+s.ClusterDomain)
	}
	if s.PullSecret != "" {
		words = append(words, "--image-pull-secret="+s.PullSecret)
	}
	if s.NoNetworkPolicy {
		words = append(words, "--network-policy=false")
	}
	for _, arg := range s.Args {
		words = append(words, "--controller-arg="+arg)
	}
	return strings.Join(words, " ")
}

// FlagInfo describes a flag or a feature gate of our controllers.
type FlagInfo struct {
	Known   bool
	Ignored string // why it has no effect; "" if it has
	Default string
}

// NewClient returns a client for [Engine.Client].
func NewClient(cfg *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandler = rest.NoWarnings{} // they are for authors of manifests
	return client.New(cfg, client.Options{Scheme: scheme})
}

func (e *Engine) step(message string) {
	if e.OnStep != nil {
		e.OnStep(message)
	}
}

func (e *Engine) waiting(message string) {
	if e.OnWait != nil {
		e.OnWait(message)
	}
}
