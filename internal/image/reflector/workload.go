package reflector

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/policy"
)

// workloads lists the supported kinds by lower-case name, with the path of the pod spec.
var workloads = map[string]struct {
	kind schema.GroupVersionKind
	spec []string
}{
	"deployment": {kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		spec: []string{"spec", "template", "spec"}},
	"statefulset": {kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		spec: []string{"spec", "template", "spec"}},
	"daemonset": {kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"},
		spec: []string{"spec", "template", "spec"}},
	"replicaset": {kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
		spec: []string{"spec", "template", "spec"}},
	"job": {kind: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
		spec: []string{"spec", "template", "spec"}},
	"cronjob": {kind: schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"},
		spec: []string{"spec", "jobTemplate", "spec", "template", "spec"}},
	"pod": {kind: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, spec: []string{"spec"}},
}

// WorkloadImages is the images of a workload.
type WorkloadImages struct {
	Kind       string           `json:"kind"`
	Namespace  string           `json:"namespace"`
	Name       string           `json:"name"`
	Containers []ContainerImage `json:"containers"`
}

// ContainerImage is the image of a container, with the policies of its repository.
type ContainerImage struct {
	Name     string         `json:"name"`
	Init     bool           `json:"init,omitempty"`
	Image    string         `json:"image"`
	Policies []PolicyStatus `json:"policies"`
}

// PolicyStatus compares the image of a container with the order of a policy.
type PolicyStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Latest    string `json:"latest,omitempty"`
	// Newer is the number of tags before that of the container; unset if the policy does not select that tag.
	Newer *int `json:"newer,omitempty"`
}

func (s *Server) images(r *http.Request, c caller) (any, error) {
	kind, namespace, workload := strings.ToLower(r.PathValue("kind")), r.PathValue("namespace"), r.PathValue("name")
	w, ok := workloads[kind]
	if !ok {
		return nil, rejectf(http.StatusNotFound, "workload kind '%s' is not supported", kind)
	}
	if err := c.may(r.Context(), kind, namespace, workload); err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(w.kind)
	if err := s.Workloads.Get(r.Context(), client.ObjectKey{Namespace: namespace, Name: workload}, obj); err != nil {
		return nil, err
	}
	statusesOf, err := s.policyStatuses(r.Context(), c)
	if err != nil {
		return nil, err
	}
	found := WorkloadImages{Kind: w.kind.Kind, Namespace: namespace, Name: workload, Containers: []ContainerImage{}}
	for _, list := range []string{"initContainers", "containers"} {
		containers, _, _ := unstructured.NestedSlice(obj.Object, append(slices.Clone(w.spec), list)...)
		for _, entry := range containers {
			container, _ := entry.(map[string]any)
			image, _ := container["image"].(string)
			containerName, _ := container["name"].(string)
			found.Containers = append(found.Containers,
				ContainerImage{Name: containerName, Init: list == "initContainers", Image: image,
					Policies: statusesOf(image)})
		}
	}
	return found, nil
}

// policyStatuses returns a function that compares an image with all policies that the caller may read.
func (s *Server) policyStatuses(ctx context.Context, c caller) (func(image string) []PolicyStatus, error) {
	var list imagev1.ImagePolicyList
	if err := s.Objects.List(ctx, &list); err != nil {
		return nil, err
	}
	return func(image string) []PolicyStatus {
		statuses := []PolicyStatus{}
		ref, err := name.ParseReference(image)
		if err != nil {
			return statuses
		}
		for i := range list.Items {
			p := &list.Items[i]
			repo, err := s.Policies.repository(ctx, p)
			if err != nil || repo == nil || repo.Status.CanonicalImageName != ref.Context().Name() ||
				c.may(ctx, imagev1.ImagePolicyKind, p.Namespace, p.Name) != nil {
				continue
			}
			status := PolicyStatus{Namespace: p.Namespace, Name: p.Name}
			if p.Status.LatestRef != nil {
				status.Latest = p.Status.LatestRef.String()
			}
			if view, err := s.view(ctx, p); err == nil {
				status.Newer = newer(view.Tags, ref)
			}
			statuses = append(statuses, status)
		}
		return statuses
	}, nil
}

// newer returns the number of tags before that of a reference; nil if it is not among them.
func newer(tags []policy.Tag, ref name.Reference) *int {
	at := slices.IndexFunc(tags, func(t policy.Tag) bool {
		if _, byTag := ref.(name.Tag); byTag {
			return t.Name == ref.Identifier()
		}
		return t.Digest == ref.Identifier()
	})
	if at < 0 {
		return nil
	}
	return &at
}
