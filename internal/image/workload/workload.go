// Package workload lists the images of the workloads in a cluster, and the newer images that policies select for them.
package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/edit"
)

// kinds are the kinds of workloads.
var kinds = []struct {
	name  string
	words []string
	list  func() client.ObjectList
}{
	{
		name: "Deployment", words: []string{"deployment", "deployments", "deploy"},
		list: func() client.ObjectList { return &appsv1.DeploymentList{} },
	},
	{
		name: "StatefulSet", words: []string{"statefulset", "statefulsets", "sts"},
		list: func() client.ObjectList { return &appsv1.StatefulSetList{} },
	},
	{
		name: "DaemonSet", words: []string{"daemonset", "daemonsets", "ds"},
		list: func() client.ObjectList { return &appsv1.DaemonSetList{} },
	},
	{
		name: "CronJob", words: []string{"cronjob", "cronjobs", "cj"},
		list: func() client.ObjectList { return &batchv1.CronJobList{} },
	},
}

// Ref names a workload. The zero Ref stands for all workloads.
type Ref struct{ Kind, Name string }

// ParseRef parses KIND/NAME, or NAME for a Deployment. The kind may be a short name such as sts, in any case.
func ParseRef(text string) (Ref, error) {
	word, name, ok := strings.Cut(text, "/")
	if !ok {
		word, name = "deployment", text
	}
	for _, k := range kinds {
		if slices.Contains(k.words, strings.ToLower(word)) && name != "" {
			return Ref{k.name, name}, nil
		}
	}
	return Ref{}, fmt.Errorf("%q is not a workload: use KIND/NAME of a Deployment, StatefulSet, DaemonSet or CronJob",
		text)
}

// Matches reports whether the Ref is that of an object, given as KIND/NAMESPACE/NAME or KIND/NAME.
func (r Ref) Matches(object string) bool {
	return r == Ref{} || strings.HasPrefix(object, r.Kind+"/") && strings.HasSuffix(object, "/"+r.Name)
}

// Image is the image of a container, and a policy that selects an image of the same name.
type Image struct {
	Kind, Namespace, Name, Container string
	Ref                              edit.Ref
	Policy                           *imagev1.ImagePolicy // nil if there is none
	Labels                           map[string]string    // of the workload
}

// IsCurrent reports whether the container runs the image that the policy selects. Digests are compared only if the
// container has one. The policy must not be nil.
func (i Image) IsCurrent() bool {
	latest := i.Policy.Status.LatestRef
	return *latest == imagev1.ImageRef(i.Ref) || i.Ref.Digest == "" && latest.Tag == i.Ref.Tag
}

// Images returns the images of workloads in a namespace, or in all if it is "". An image is listed once for each policy
// that selects among its tags. Policies of all namespaces are considered that the caller may read.
func Images(ctx context.Context, c client.Reader, namespace string, only Ref) ([]Image, error) {
	policies, err := policiesByImage(ctx, c, namespace)
	if err != nil {
		return nil, err
	}
	var images []Image
	for _, k := range kinds {
		if only.Kind != "" && k.name != only.Kind {
			continue
		}
		err := eachObject(ctx, c, namespace, k.list, func(o client.Object) {
			if only.Name == "" || o.GetName() == only.Name {
				images = append(images, imagesOf(k.name, o, policies)...)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("cannot list %s objects: %w", k.name, err)
		}
	}
	return images, nil
}

// listPage is how many workloads are read at once: a cluster can have many thousands, and few fields of each are kept.
const listPage = 500

// eachObject calls visit for the objects of a kind in a namespace, or in all if it is "".
func eachObject(ctx context.Context, c client.Reader, namespace string, newList func() client.ObjectList,
	visit func(client.Object)) error {
	for token := ""; ; {
		list := newList()
		err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(listPage), client.Continue(token))
		if err != nil {
			return err
		}
		objects, err := apimeta.ExtractList(list)
		if err != nil {
			return err
		}
		for _, raw := range objects {
			visit(raw.(client.Object))
		}
		if token = list.GetContinue(); token == "" {
			return nil
		}
	}
}

// policiesByImage returns the policies that have selected an image, by the canonical name of that image.
func policiesByImage(ctx context.Context, c client.Reader, namespace string) (map[string][]*imagev1.ImagePolicy,
	error) {
	policies := &imagev1.ImagePolicyList{}
	if err := c.List(ctx, policies); err != nil {
		if c.List(ctx, policies, client.InNamespace(namespace)) != nil {
			return nil, fmt.Errorf("cannot list ImagePolicy objects: %w", err)
		}
	}
	byImage := map[string][]*imagev1.ImagePolicy{}
	for i := range policies.Items {
		if p := &policies.Items[i]; p.Status.LatestRef != nil {
			image := canonicalName(p.Status.LatestRef.Name)
			byImage[image] = append(byImage[image], p)
		}
	}
	return byImage, nil
}

func imagesOf(kind string, o client.Object, policies map[string][]*imagev1.ImagePolicy) []Image {
	var images []Image
	pod := podSpec(o)
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		image := Image{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), Container: container.Name,
			Ref: edit.ParseRef(container.Image), Labels: o.GetLabels()}
		selecting := policies[canonicalName(image.Ref.Name)]
		if len(selecting) == 0 {
			images = append(images, image)
		}
		for _, image.Policy = range selecting {
			images = append(images, image)
		}
	}
	return images
}

func podSpec(o client.Object) corev1.PodSpec {
	switch o := o.(type) {
	case *appsv1.Deployment:
		return o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return o.Spec.Template.Spec
	case *batchv1.CronJob:
		return o.Spec.JobTemplate.Spec.Template.Spec
	}
	return corev1.PodSpec{}
}

// canonicalName returns the name of an image with its registry, so that nginx equals docker.io/library/nginx.
func canonicalName(image string) string {
	r, err := name.NewRepository(image)
	if err != nil {
		return image
	}
	return r.Name()
}
