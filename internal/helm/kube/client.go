// Package kube does the cluster work of Helm's actions with our apply and our health checks.
package kube

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	helmkube "helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kubectl/pkg/validation"

	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/cluster/health"
	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/rollout"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

// FieldManager is the field manager of objects that releases own. Other implementations use the same one.
const FieldManager = "helm-controller"

// Helm's client writes by this manager what is not applied server-side.
func init() { helmkube.ManagedFieldsManager = FieldManager } //nolint:gochecknoinits // a global of the library

// Options describe the release of an action.
type Options struct {
	Target *rollout.Target
	Owner  reconcile.Ref
	// Namespace is the namespace of the release: that of objects which name none.
	Namespace string
	// ReleaseName guards objects of other releases against deletion.
	ReleaseName string
	// ServerSide applies objects server-side. Otherwise Helm's client writes them.
	ServerSide bool
	Force      bool // re-create objects when an immutable field changes
	// Abandoned are the manifests of failed upgrades since the release that is deployed. Their objects are deleted if
	// they are not part of the next release.
	Abandoned []string
	// Stored are manifests of earlier releases that the action compares with. An object of a kind that the cluster no
	// longer serves does not exist: it is left out of them, and a warning names it. IsRemoval does so for all
	// manifests.
	Stored    []string
	IsRemoval bool
	Ignore    []apply.Ignored
	Veil      *redact.Veil // hides what comes from secrets in changes; may be nil
	MaxDiffs  int

	Checks     []*health.Check // instead of kstatus
	Legacy     bool            // wait only for the kinds that Helm 3 waited for
	NoWait     bool            // do not wait for the health of objects, only for hooks
	NoFailFast bool
	// Timeout bounds an apply that waits for the cluster, such as for a namespace that is being deleted.
	Timeout time.Duration
	// Defer is asked before a wait for the health of objects that takes longer. If it returns true, the wait ends with
	// [rollout.ErrUnhealthyYet], and a later pass continues it.
	Defer func() (bool, error)
}

// deferAfter is how long a wait for the health of objects may take before it is left to a later pass.
const deferAfter = 2 * time.Second

// Client does the cluster work of one action. See [Client.Guarded].
type Client struct {
	Options

	ctx     context.Context
	helm    *helmkube.Client // updates objects client-side
	clients sync.Map         // REST clients, by group and version
	typed   kubernetes.Interface

	mu       sync.Mutex
	changes  []apply.Change
	warnings []string
	deferred bool    // the wait for the health of objects is left to a later pass
	problems []error // of deletions, which Helm leaves out of its errors
	versions map[health.Target]string
	mapped   bool // discovery was read again for a kind that was not found
}

// New returns a client for one action. All requests and waits end with ctx.
func New(ctx context.Context, o Options) (*Client, error) {
	typed, err := kubernetes.NewForConfig(o.Target.Config)
	if err != nil {
		return nil, err
	}
	c := &Client{Options: o, ctx: ctx, typed: typed, versions: map[health.Target]string{},
		helm: &helmkube.Client{Factory: factory{o.Target, typed}, Namespace: o.Namespace}}
	c.helm.SetLogger(slog.DiscardHandler)
	return c, nil
}

// Changes returns what the action changed in the cluster.
func (c *Client) Changes() []apply.Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

// Warnings returns the warnings of the API server.
func (c *Client) Warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.warnings
}

// isReachable reports only the end of the action. Its first request reports a cluster that cannot be reached.
func (c *Client) isReachable() error { return context.Cause(c.ctx) }

// Build returns the objects of manifests. The API server validates them when they are applied.
func (c *Client) Build(text string) (helmkube.ResourceList, error) {
	objects, err := Decode(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	isStored := c.takeStored(text)
	var list helmkube.ResourceList
	for _, o := range objects {
		info, err := c.info(o)
		if isStored && errors.As(err, new(*notServedError)) && c.isGone(o.GroupVersionKind()) {
			c.warnGone(o.GroupVersionKind(), o.GetName())
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, nil
}

// takeStored reports whether manifests are of an earlier release. The same manifests may come again as those of the
// next one, so each counts once.
func (c *Client) takeStored(text string) bool {
	if c.IsRemoval {
		return true
	}
	if !slices.Contains(c.Stored, text) {
		return false
	}
	c.Stored = slices.DeleteFunc(slices.Clone(c.Stored), func(s string) bool { return s == text })
	return true
}

// isGone reports whether the API server says that it does not serve a kind. An API whose server is only unavailable is
// not gone: its objects still exist.
func (c *Client) isGone(gvk schema.GroupVersionKind) bool {
	served, err := c.typed.Discovery().ServerResourcesForGroupVersion(gvk.GroupVersion().String())
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == gvk.Kind })
}

// warnGone warns of an object of a kind that the cluster no longer serves.
func (c *Client) warnGone(gvk schema.GroupVersionKind, name string) {
	text := fmt.Sprintf("%s '%s' of the release is left out: the cluster no longer serves kind %s of %s", gvk.Kind,
		name, gvk.Kind, gvk.GroupVersion())
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.warnings, text) {
		c.warnings = append(c.warnings, text)
	}
}

// Decode returns the objects of a YAML stream. Items of lists are returned one by one.
func Decode(reader io.Reader) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	documents := yaml.NewYAMLReader(bufio.NewReader(reader))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(document)) == 0 {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := yamlsize.Check(document); err != nil {
			return nil, fmt.Errorf("a manifest cannot be used: %w", err)
		}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			return nil, fmt.Errorf("a manifest is not valid YAML: %w", err)
		}
		switch {
		case len(o.Object) == 0: // only comments
		case o.GetKind() == "" || o.GetAPIVersion() == "":
			return nil, fmt.Errorf("a manifest has no apiVersion or kind: %.200s", document)
		case o.IsList():
			if err := o.EachListItem(func(item runtime.Object) error {
				objects = append(objects, item.(*unstructured.Unstructured))
				return nil
			}); err != nil {
				return nil, err
			}
		default:
			objects = append(objects, o)
		}
	}
}

// info returns an object with its resource and a client for it.
func (c *Client) info(o *unstructured.Unstructured) (*resource.Info, error) {
	gvk := o.GroupVersionKind()
	mapping, err := c.mapping(gvk)
	if err != nil {
		return nil, err
	}
	client, err := c.client(gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	info := &resource.Info{Client: client, Mapping: mapping, Name: o.GetName(), Object: o}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if o.GetNamespace() == "" {
			o.SetNamespace(c.Namespace)
		}
		info.Namespace = o.GetNamespace()
	}
	return info, nil
}

func (c *Client) mapping(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapper := c.Target.Cluster.Mapper()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) && !c.mapped {
		c.mapped = true
		mapper.Reset() // the kind may be newer than the cached discovery
		mapping, err = mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	if meta.IsNoMatchError(err) {
		return nil, &notServedError{gvk: gvk, err: err}
	}
	return mapping, err
}

// notServedError is the error for an object of a kind that the cluster does not serve.
type notServedError struct {
	gvk schema.GroupVersionKind
	err error
}

func (e *notServedError) Error() string {
	return fmt.Sprintf("the cluster does not serve kind %s of %s: install its CustomResourceDefinition first, such as "+
		"by another HelmRelease in spec.dependsOn", e.gvk.Kind, e.gvk.GroupVersion())
}

func (e *notServedError) Unwrap() error { return e.err }

// client returns a client for the objects of a group and version.
func (c *Client) client(gv schema.GroupVersion) (resource.RESTClient, error) {
	if found, ok := c.clients.Load(gv); ok {
		return found.(resource.RESTClient), nil
	}
	cfg := rest.CopyConfig(c.Target.Config)
	cfg.ContentConfig = resource.UnstructuredPlusDefaultContentConfig()
	cfg.GroupVersion = &gv
	cfg.APIPath = "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, err
	}
	c.clients.Store(gv, client)
	return client, nil
}

// factory gives Helm's client the connections of the target.
type factory struct {
	target *rollout.Target
	typed  *kubernetes.Clientset
}

func (f factory) ToRESTConfig() (*rest.Config, error) { return f.target.Config, nil }

func (f factory) ToRawKubeConfigLoader() clientcmd.ClientConfig { return nil }

func (f factory) DynamicClient() (dynamic.Interface, error) { return f.target.Cluster.Dynamic(), nil }

func (f factory) KubernetesClientSet() (*kubernetes.Clientset, error) { return f.typed, nil }

func (f factory) NewBuilder() *resource.Builder { return nil } // only used by Build, which is replaced

func (f factory) Validator(string) (validation.Schema, error) { return validation.NullSchema{}, nil }
