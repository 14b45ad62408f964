package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/text/diff"
	"github.com/sluice-gitops/sluice/internal/ui"
)

// addCompatible adds tools under the names that the MCP server of Flux Operator gives them, with its arguments.
func (s *Server) addCompatible() {
	add(s, tool{name: "get_flux_instance", title: "State of the controllers",
		text: "Get the version of Sluice and Kubernetes, why the controllers may not work, and counts of objects by " +
			"state.",
		output: fields(map[string]*jsonschema.Schema{"version": text(""), "kubernetes": text(""),
			"problems": list("why the controllers may not work", text("")), "overview": fields(nil)}),
	}, s.instance)
	add(s, tool{name: "get_kubernetes_resources", title: "Get objects of any kind",
		text: "Get objects of any kind with spec and status, as the user may read them. Secrets are masked.",
		output: fields(map[string]*jsonschema.Schema{"objects": list("", fields(nil)),
			"events": list("of a single object", fields(nil))})}, s.resources)
	add(s, logsTool("get_kubernetes_logs"), func(ctx context.Context, u *ui.User, in struct {
		Pod       string `json:"pod_name"`
		Namespace string `json:"pod_namespace"`
		Container string `json:"container_name"`
		Limit     int    `json:"limit,omitempty" jsonschema:"lines, at most 1000; 100 by default"`
		Previous  bool   `json:"previous,omitempty"`
	}) (found, error) {
		return s.logs(ctx, u, logsIn{Namespace: in.Namespace, Pod: in.Pod, Container: in.Container, Lines: in.Limit,
			Previous: in.Previous})
	})
	add(s, metricsTool("metrics"), s.metrics)
	add(s, metricsTool("get_kubernetes_metrics"), func(ctx context.Context, u *ui.User, in struct {
		Namespace string `json:"pod_namespace"`
		Pod       string `json:"pod_name,omitempty"`
		Selector  string `json:"pod_selector,omitempty" jsonschema:"labels, as key=value,key=value"`
		Limit     int    `json:"limit,omitempty"`
	}) (found, error) {
		return s.metrics(ctx, u, metricsIn{Namespace: in.Namespace, Pod: in.Pod, Selector: in.Selector,
			page: page{Limit: in.Limit}})
	})
	add(s, tool{name: "get_kubernetes_api_versions", title: "Versions of kinds",
		text:   "List the preferred apiVersion of each kind that the cluster serves.",
		output: fields(map[string]*jsonschema.Schema{"versions": fields(nil)})}, s.versions)
	add(s, s.searchTool("search_flux_docs"), s.searchDocs)
}

func (s *Server) instance(ctx context.Context, u *ui.User, _ struct{}) (found, error) {
	problems, err := s.UI.Read(ctx, u, "controllers", ui.Object{}, nil)
	if err != nil {
		return found{}, err
	}
	out, err := object(problems)
	if err != nil {
		return found{}, err
	}
	if out["overview"], err = s.UI.Read(ctx, u, "overview", ui.Object{}, nil); err != nil {
		return found{}, err
	}
	out["version"], out["kubernetes"] = s.Version, s.UI.Kubernetes
	return found{value: out}, nil
}

// maxListed bounds a list of objects with their whole content.
const maxListed = 100

func (s *Server) resources(ctx context.Context, u *ui.User, in struct {
	APIVersion string `json:"apiVersion" jsonschema:"such as apps/v1"`
	Kind       string `json:"kind" jsonschema:"such as Deployment"`
	Name       string `json:"name,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Selector   string `json:"selector,omitempty" jsonschema:"labels, as key=value,key=value"`
	Limit      int    `json:"limit,omitempty" jsonschema:"at most 100; 50 by default"`
	Cursor     string `json:"cursor,omitempty" jsonschema:"the field next of the previous answer"`
}) (found, error) {
	gvk := schema.FromAPIVersionAndKind(in.APIVersion, in.Kind)
	if in.Name == "" {
		return s.listResources(ctx, u, gvk, in.Namespace, in.Selector,
			page{Limit: min(max(in.Limit, 0), maxListed), Cursor: in.Cursor})
	}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	if err := u.Client.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: in.Name}, o); err != nil {
		return found{}, err
	}
	out := map[string]any{"objects": []any{shown(o)}}
	named := ui.Object{Kind: in.Kind, Namespace: in.Namespace, Name: in.Name}
	if events, err := s.UI.Events(ctx, u, named); err == nil {
		out["events"] = events
	}
	return found{value: out}, nil
}

func (s *Server) listResources(ctx context.Context, u *ui.User, gvk schema.GroupVersionKind, namespace,
	selector string, p page) (found, error) {

	objects, next, err := listed(ctx, u, gvk, namespace, selector, p)
	if err != nil {
		return found{}, err
	}
	all := []any{}
	for n := range objects {
		all = append(all, shown(&objects[n]))
	}
	return found{value: map[string]any{"objects": all}, next: next}, nil
}

// listed returns a page of objects. The cursor is that of the API server.
func listed(ctx context.Context, u *ui.User, gvk schema.GroupVersionKind, namespace, selector string, p page) (
	[]unstructured.Unstructured, string, error) {

	size, after, err := p.bounds()
	if err != nil {
		return nil, "", err
	}
	chosen, err := labels.Parse(selector)
	if err != nil {
		return nil, "", fmt.Errorf("the selector cannot be read: %w", err)
	}
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	err = u.Client.List(ctx, all, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: chosen},
		client.Limit(int64(size)), client.Continue(after))
	return all.Items, cursorOf(all.GetContinue()), err
}

// shown returns an object without what the API server adds for itself, and without the values of a Secret.
func shown(o *unstructured.Unstructured) map[string]any {
	o.SetManagedFields(nil)
	if o.GetKind() == "Secret" && o.GetAPIVersion() == "v1" {
		for _, field := range []string{"data", "stringData"} {
			if values, ok := o.Object[field]; ok {
				o.Object[field] = diff.Masked(values, true)
			}
		}
	}
	return o.Object
}

type metricsIn struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod,omitempty"`
	Selector  string `json:"selector,omitempty" jsonschema:"labels, as key=value,key=value"`
	page
}

func metricsTool(name string) tool {
	return tool{name: name, title: "CPU and memory of pods", isOffline: true,
		text: "Get CPU and memory of the containers of pods, from metrics-server.",
		output: fields(map[string]*jsonschema.Schema{"pods": list("", fields(map[string]*jsonschema.Schema{
			"name": text(""), "at": text("time"), "containers": list("name, cpu and memory", fields(nil))}))})}
}

func (s *Server) metrics(ctx context.Context, u *ui.User, in metricsIn) (found, error) {
	if err := required("namespace", in.Namespace); err != nil {
		return found{}, err
	}
	gvk := schema.GroupVersionKind{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics"}
	objects, next, err := listed(ctx, u, gvk, in.Namespace, in.Selector, in.page)
	if apimeta.IsNoMatchError(err) {
		return found{}, errors.New("the cluster serves no metrics: metrics-server is not installed")
	}
	if err != nil {
		return found{}, err
	}
	pods := []any{}
	for _, o := range objects {
		if in.Pod != "" && o.GetName() != in.Pod {
			continue
		}
		containers := []any{}
		found, _, _ := unstructured.NestedSlice(o.Object, "containers")
		for _, v := range found {
			c, _ := v.(map[string]any)
			usage, _ := c["usage"].(map[string]any)
			containers = append(containers, map[string]any{"name": c["name"], "cpu": usage["cpu"],
				"memory": usage["memory"]})
		}
		pods = append(pods, map[string]any{"name": o.GetName(), "at": o.Object["timestamp"], "containers": containers})
	}
	return found{value: map[string]any{"pods": pods}, next: next}, nil
}

func (s *Server) versions(_ context.Context, u *ui.User, _ struct{}) (found, error) {
	lists, err := u.Cluster.Discovery().ServerPreferredResources()
	if err != nil && len(lists) == 0 {
		return found{}, err
	}
	versions := map[string][]string{}
	for _, l := range lists {
		for _, r := range l.APIResources {
			if !strings.Contains(r.Name, "/") {
				versions[r.Kind] = append(versions[r.Kind], l.GroupVersion)
			}
		}
	}
	for kind := range maps.Keys(versions) {
		slices.Sort(versions[kind])
		versions[kind] = slices.Compact(versions[kind])
	}
	return found{value: map[string]any{"versions": versions}}, nil
}

// addCompatibleWrites adds the tools that write under the names of Flux Operator.
func (s *Server) addCompatibleWrites() {
	type named struct {
		Name       string `json:"name"`
		Namespace  string `json:"namespace"`
		WithSource bool   `json:"with_source,omitempty" jsonschema:"reconcile its source first"`
	}
	for name, kind := range map[string]string{"reconcile_flux_kustomization": "Kustomization",
		"reconcile_flux_helmrelease": "HelmRelease", "reconcile_flux_resourceset": "ResourceSet"} {
		add(s, tool{name: name, title: "Reconcile a " + kind, output: done(), writes: true,
			text: "Request a reconcile of a " + kind + " now. It does not wait for the result."},
			func(ctx context.Context, u *ui.User, in named) (found, error) {
				o := ui.Object{Kind: kind, Namespace: in.Namespace, Name: in.Name}
				if in.WithSource {
					if err := s.reconcileSource(ctx, u, o); err != nil {
						return found{}, err
					}
				}
				return doneWith("reconcile", o), s.UI.Reconcile(ctx, u, o)
			})
	}
	add(s, tool{name: "reconcile_flux_source", title: "Reconcile a source", output: done(), writes: true,
		text: "Request a reconcile of a source now. It does not wait for the result."},
		func(ctx context.Context, u *ui.User, in reference) (found, error) {
			return doneWith("reconcile", in.object()), s.UI.Reconcile(ctx, u, in.object())
		})
	type typed struct {
		APIVersion string `json:"apiVersion"`
		reference
	}
	add(s, tool{name: "suspend_flux_reconciliation", title: "Suspend an object", output: done(), writes: true,
		text: "Suspend an object. Unlike the tool of Flux Operator, it needs a reason, which others see."},
		func(ctx context.Context, u *ui.User, in struct {
			typed
			Reason string `json:"reason" jsonschema:"why, for others"`
		}) (found, error) {
			return doneWith("suspend", in.object()), s.UI.Suspend(ctx, u, in.object(), in.Reason)
		})
	add(s, tool{name: "resume_flux_reconciliation", title: "Resume an object", output: done(), writes: true,
		text: "Resume a suspended object."},
		func(ctx context.Context, u *ui.User, in typed) (found, error) {
			return doneWith("resume", in.object()), s.UI.Resume(ctx, u, in.object())
		})
}

// reconcileSource requests a reconcile of the first source of an object.
func (s *Server) reconcileSource(ctx context.Context, u *ui.User, o ui.Object) error {
	may, err := u.See(ctx, s.UI.Model.Scopes())
	if err != nil {
		return err
	}
	i := s.UI.Model.Get(o.Kind+"/"+o.Namespace+"/"+o.Name, may)
	if i == nil || len(i.Sources) == 0 {
		return errors.New("the object has no source that you may see")
	}
	parts := strings.Split(i.Sources[0], "/")
	source := ui.Object{Kind: parts[0], Namespace: parts[1], Name: parts[2]}
	if k := kind.ByName(source.Kind); k == nil || k.ReadOnly {
		return fmt.Errorf("the source %s cannot be reconciled", i.Sources[0])
	}
	return s.UI.Reconcile(ctx, u, source)
}
