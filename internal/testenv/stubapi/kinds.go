package stubapi

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a kind that the server serves, in one version.
type kind struct {
	schema.GroupVersionKind
	resource   string
	namespaced bool
	hasStatus  bool // a subresource
	generation bool // counts changes of what is not metadata or status
	virtual    bool // answered, but not stored
}

func (k *kind) gvr() schema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.resource)
}

const (
	coreGroup           = ""
	appsGroup           = "apps"
	authenticationGroup = "authentication.k8s.io"
	authorizationGroup  = "authorization.k8s.io"
)

// builtin returns the kinds of Kubernetes that are served.
func builtin() []*kind {
	named := func(group, name, resource string) *kind {
		return &kind{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: name},
			resource: resource, namespaced: true}
	}
	deployment := named(appsGroup, "Deployment", "deployments")
	ingress := named("networking.k8s.io", "Ingress", "ingresses")
	service := named(coreGroup, "Service", "services")
	namespace := named(coreGroup, "Namespace", "namespaces")
	definition := named("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions")
	for _, k := range []*kind{deployment, ingress, definition} {
		k.hasStatus, k.generation = true, true
	}
	service.hasStatus, namespace.hasStatus = true, true
	namespace.namespaced, definition.namespaced = false, false
	all := []*kind{deployment, ingress, service, namespace, definition,
		named(coreGroup, "ConfigMap", "configmaps"), named(coreGroup, "Secret", "secrets"),
		named(coreGroup, "ServiceAccount", "serviceaccounts"), named(coreGroup, "Event", "events"),
		named("events.k8s.io", "Event", "events"), named("coordination.k8s.io", "Lease", "leases")}
	for _, review := range []*kind{
		named(authenticationGroup, "TokenReview", "tokenreviews"),
		named(authenticationGroup, "SelfSubjectReview", "selfsubjectreviews"),
		named(authorizationGroup, "SubjectAccessReview", "subjectaccessreviews"),
		named(authorizationGroup, "SelfSubjectAccessReview", "selfsubjectaccessreviews"),
	} {
		review.virtual, review.namespaced = true, false
		all = append(all, review)
	}
	return all
}

// defined returns the kind of a CustomResourceDefinition in the version v1, or else the one that is stored.
func defined(definition *unstructured.Unstructured) *kind {
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(definition.Object, append([]string{"spec"}, fields...)...)
		return s
	}
	k := &kind{resource: text("names", "plural"), namespaced: text("scope") == "Namespaced", generation: true}
	k.Group, k.Kind = text("group"), text("names", "kind")
	versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
	for _, v := range versions {
		v, _ := v.(map[string]any)
		if v["name"] == "v1" || v["storage"] == true && k.Version == "" {
			k.Version, _ = v["name"].(string)
			_, k.hasStatus, _ = unstructured.NestedMap(v, "subresources", "status")
		}
	}
	return k
}

// groups returns the answer to a request for /apis.
func (s *Server) groups() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, k := range s.kinds {
		if k.Group == coreGroup || slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool {
			return g.Name == k.Group
		}) {
			continue
		}
		version := metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: k.Group, PreferredVersion: version,
			Versions: []metav1.GroupVersionForDiscovery{version}})
	}
	return list
}

// resources returns the answer to a request for the resources of a group and version; nil if it is not served.
func (s *Server) resources(gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String()}
	for _, k := range s.kinds {
		if k.GroupVersion() != gv {
			continue
		}
		r := metav1.APIResource{Name: k.resource, Namespaced: k.namespaced, Kind: k.Kind,
			Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}}
		if k.virtual {
			r.Verbs = metav1.Verbs{"create"}
		}
		list.APIResources = append(list.APIResources, r)
		if k.hasStatus {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.resource + "/status",
				Namespaced: k.namespaced, Kind: k.Kind, Verbs: metav1.Verbs{"get", "patch", "update"}})
		}
	}
	if len(list.APIResources) == 0 {
		return nil
	}
	return list
}
