package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/internal/image/edit"
)

func (a *app) image() *cobra.Command {
	c := group("image", "Show what images run and what is newer, and release them", `  sluice image list -A
  sluice image release Deployment/web -n apps --latest --dry-run
  sluice image history`)
	c.Aliases = []string{"images"}
	c.AddCommand(a.imageList(), a.imageRelease(), a.imageHistory())
	return c
}

// workloadKinds are the kinds whose images are shown, by the words for them.
var workloadKinds = []struct {
	kind  string
	words []string
	list  func() client.ObjectList
}{
	{"Deployment", []string{"deployment", "deployments", "deploy"},
		func() client.ObjectList { return &appsv1.DeploymentList{} }},
	{"StatefulSet", []string{"statefulset", "statefulsets", "sts"},
		func() client.ObjectList { return &appsv1.StatefulSetList{} }},
	{"DaemonSet", []string{"daemonset", "daemonsets", "ds"},
		func() client.ObjectList { return &appsv1.DaemonSetList{} }},
	{"CronJob", []string{"cronjob", "cronjobs", "cj"}, func() client.ObjectList { return &batchv1.CronJobList{} }},
}

// workloadOf reads KIND/NAME; a Deployment when there is no kind.
func workloadOf(arg string) (kind, name string, err error) {
	word, name, ok := strings.Cut(arg, "/")
	if !ok {
		word, name = "deployment", arg
	}
	for _, k := range workloadKinds {
		if slices.Contains(k.words, strings.ToLower(word)) && name != "" {
			return k.kind, name, nil
		}
	}
	return "", "", usagef("%q is no workload: write it as KIND/NAME, of a Deployment, StatefulSet, DaemonSet "+
		"or CronJob", arg)
}

// imageUse is an image of a container, and a policy that chooses one of the same name.
type imageUse struct {
	kind, namespace, name, container string
	image                            edit.Ref
	policy                           *imagev1.ImagePolicy // nil: none chooses it
}

func (u imageUse) newer() string {
	switch {
	case u.policy == nil:
		return ""
	case *u.policy.Status.LatestRef == imagev1.ImageRef(u.image), u.image.Digest == "" &&
		u.policy.Status.LatestRef.Tag == u.image.Tag:
		return "up to date"
	}
	return latestTag(u.policy, false)
}

func (a *app) imageList() *cobra.Command {
	var everywhere bool
	c := &cobra.Command{
		Use: "list [KIND/NAME]", Short: "Show the images of workloads, and what is newer by each policy",
		Args: atMostOne,
		Long: `Show the images of Deployments, StatefulSets, DaemonSets and CronJobs, and for each the policies that choose an image of the same name, in
any namespace that may be read.`,
		Example: "  sluice image list -n apps\n  sluice image list StatefulSet/db -n apps\n  sluice image list -A",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), a.timeout)
			defer cancel()
			return a.listImages(ctx, args, everywhere)
		},
	}
	c.Flags().BoolVarP(&everywhere, "all-namespaces", "A", false, "in all namespaces")
	return c
}

func (a *app) listImages(ctx context.Context, args []string, everywhere bool) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var kind, named string
	if len(args) > 0 {
		if kind, named, err = workloadOf(args[0]); err != nil {
			return err
		}
	}
	namespace := a.namespace()
	if everywhere {
		namespace = ""
	}
	uses, err := imagesOf(ctx, c, namespace, kind, named)
	if err != nil {
		return err
	}
	if len(uses) == 0 {
		return fmt.Errorf("no workloads found in %s. Choose another with -n, or -A for all",
			cmp.Or(namespace, "any namespace"))
	}
	rows := [][]cell{{{text: "NAMESPACE"}, {text: "WORKLOAD"}, {text: "CONTAINER"}, {text: "IMAGE"}, {text: "RUNS"},
		{text: "NEWER"}, {text: "POLICY"}}}
	for _, u := range uses {
		policy, newer := "", cell{text: u.newer()}
		if u.policy != nil {
			policy = u.policy.Namespace + "/" + u.policy.Name
		}
		if newer.text != "up to date" {
			newer.colour = yellow
		}
		runs := short(strings.TrimPrefix(strings.TrimPrefix(u.image.String(), u.image.Name), ":"))
		rows = append(rows, []cell{{text: u.namespace}, {text: u.kind + "/" + u.name}, {text: u.container},
			{text: u.image.Name}, {text: runs}, newer, {text: policy}})
	}
	return (&table{out: a.out}).print(rows...)
}

// imagesOf lists the images of workloads, once for each policy that chooses among their tags.
func imagesOf(ctx context.Context, c client.Client, namespace, kind, named string) ([]imageUse, error) {
	policies := &imagev1.ImagePolicyList{}
	if err := c.List(ctx, policies); err != nil {
		if own := c.List(ctx, policies, client.InNamespace(namespace)); own != nil {
			return nil, explain("cannot list ImagePolicies", err)
		}
	}
	byImage := map[string][]*imagev1.ImagePolicy{}
	for i := range policies.Items {
		if p := &policies.Items[i]; p.Status.LatestRef != nil {
			byImage[canonicalName(p.Status.LatestRef.Name)] = append(byImage[canonicalName(p.Status.LatestRef.Name)], p)
		}
	}
	var uses []imageUse
	for _, k := range workloadKinds {
		if kind != "" && k.kind != kind {
			continue
		}
		list := k.list()
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, explain("cannot list "+k.kind+" objects", err)
		}
		objects, err := apimeta.ExtractList(list)
		if err != nil {
			return nil, err
		}
		for _, raw := range objects {
			o := raw.(client.Object)
			if named != "" && o.GetName() != named {
				continue
			}
			pod := podOf(o)
			for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
				use := imageUse{k.kind, o.GetNamespace(), o.GetName(), container.Name,
					edit.ParseRef(container.Image), nil}
				choosing := byImage[canonicalName(use.image.Name)]
				if len(choosing) == 0 {
					uses = append(uses, use)
				}
				for _, use.policy = range choosing {
					uses = append(uses, use)
				}
			}
		}
	}
	return uses, nil
}

func podOf(o client.Object) corev1.PodSpec {
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

// canonicalName is a name with everything that may be left out.
func canonicalName(image string) string {
	r, err := name.NewRepository(image)
	if err != nil {
		return image
	}
	return r.Name()
}
