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

// workloads are the kinds whose images are told, by their name in small letters, and where in them the spec of pods is.
var workloads = map[string]struct {
	kind schema.GroupVersionKind
	spec []string
}{
	"deployment": {schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		[]string{"spec", "template", "spec"}},
	"statefulset": {schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		[]string{"spec", "template", "spec"}},
	"daemonset": {schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"},
		[]string{"spec", "template", "spec"}},
	"replicaset": {schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"},
		[]string{"spec", "template", "spec"}},
	"job": {schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"},
		[]string{"spec", "template", "spec"}},
	"cronjob": {schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "CronJob"},
		[]string{"spec", "jobTemplate", "spec", "template", "spec"}},
	"pod": {schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, []string{"spec"}},
}

// WorkloadImages are the images of a workload.
type WorkloadImages struct {
	Kind       string           `json:"kind"`
	Namespace  string           `json:"namespace"`
	Name       string           `json:"name"`
	Containers []ContainerImage `json:"containers"`
}

// ContainerImage is the image of a container, and what policies over its repository say of it.
type ContainerImage struct {
	Name     string          `json:"name"`
	Init     bool            `json:"init,omitempty"`
	Image    string          `json:"image"`
	Policies []PolicyOpinion `json:"policies"`
}

// PolicyOpinion is what a policy says of the image of a container.
type PolicyOpinion struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Latest    string `json:"latest,omitempty"`
	// Newer is how many tags come before the one of the container; unset if that is not among those that count.
	Newer *int `json:"newer,omitempty"`
}

func (s *Server) images(r *http.Request, c caller) (any, error) {
	kind, namespace, of := strings.ToLower(r.PathValue("kind")), r.PathValue("namespace"), r.PathValue("name")
	w, ok := workloads[kind]
	if !ok {
		return nil, refused(http.StatusNotFound, "there is no workload of that kind")
	}
	if err := c.may(r.Context(), kind, namespace, of); err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(w.kind)
	if err := s.Workloads.Get(r.Context(), client.ObjectKey{Namespace: namespace, Name: of}, obj); err != nil {
		return nil, err
	}
	opinions, err := s.opinions(r.Context(), c)
	if err != nil {
		return nil, err
	}
	found := WorkloadImages{Kind: w.kind.Kind, Namespace: namespace, Name: of, Containers: []ContainerImage{}}
	for _, list := range []string{"initContainers", "containers"} {
		containers, _, _ := unstructured.NestedSlice(obj.Object, append(slices.Clone(w.spec), list)...)
		for _, entry := range containers {
			container, _ := entry.(map[string]any)
			image, _ := container["image"].(string)
			called, _ := container["name"].(string)
			found.Containers = append(found.Containers,
				ContainerImage{called, list == "initContainers", image, opinions(image)})
		}
	}
	return found, nil
}

// opinions returns what policies that the caller may read say of an image.
func (s *Server) opinions(ctx context.Context, c caller) (func(image string) []PolicyOpinion, error) {
	var list imagev1.ImagePolicyList
	if err := s.Objects.List(ctx, &list); err != nil {
		return nil, err
	}
	return func(image string) []PolicyOpinion {
		opinions := []PolicyOpinion{}
		ref, err := name.ParseReference(image)
		if err != nil {
			return opinions
		}
		for i := range list.Items {
			p := &list.Items[i]
			repo, err := s.Policies.repository(ctx, p)
			if err != nil || repo == nil || repo.Status.CanonicalImageName != ref.Context().Name() ||
				c.may(ctx, imagev1.ImagePolicyKind, p.Namespace, p.Name) != nil {
				continue
			}
			opinion := PolicyOpinion{Namespace: p.Namespace, Name: p.Name}
			if p.Status.LatestRef != nil {
				opinion.Latest = p.Status.LatestRef.String()
			}
			if view, err := s.view(ctx, p); err == nil {
				opinion.Newer = newer(view.Tags, ref)
			}
			opinions = append(opinions, opinion)
		}
		return opinions
	}, nil
}

// newer returns how many of the tags come before that of a reference.
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
