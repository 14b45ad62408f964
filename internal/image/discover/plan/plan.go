// Package plan computes the ImageRepositories and ImagePolicies for the workloads of a namespace. It does not
// access a cluster.
package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	"github.com/sluice-gitops/sluice/api/meta"
)

// Labels and annotations of created objects.
const (
	// Discovered is the label "true" of objects that discovery created, updates and deletes.
	Discovered = "image.toolkit.fluxcd.io/discovered"
	// Automated is the label "true" of policies whose workload has automated updates, for spec.policySelector
	// of automations.
	Automated = "image.toolkit.fluxcd.io/automated"
	// Of is the annotation of a policy with KIND/NAME of its workload.
	Of = "image.toolkit.fluxcd.io/workload"
	// Container is the annotation of a policy with the container of the workload.
	Container = "image.toolkit.fluxcd.io/container"
)

const (
	maxRepositories = 1000 // per namespace
	maxPolicies     = 5000 // per namespace
	maxName         = 253  // characters of an object's name
	maxSlug         = 200  // characters of the image in a name
	digits          = 8    // characters of the digest in a name
)

// Workload is a Deployment, StatefulSet, DaemonSet or CronJob.
type Workload struct {
	Owner       metav1.OwnerReference // the workload, as the owner of its policies
	Annotations map[string]string
	Pod         corev1.PodSpec
}

func (w Workload) String() string { return w.Owner.Kind + "/" + w.Owner.Name }

// Plan is the image objects for the workloads of a namespace, by name.
type Plan struct {
	Repositories map[string]*imagev1.ImageRepository
	Policies     map[string]*imagev1.ImagePolicy
	Problems     []Problem
}

// Problem is the reason why a container has no policy.
type Problem struct {
	Workload string // KIND/NAME
	Message  string
}

// New computes the objects for the workloads of a namespace. Interval is the scan interval. Existing is the names of
// ImageRepositories that users created, by image; policies refer to these.
func New(namespace string, interval time.Duration, existing map[string]string, workloads []Workload) Plan {
	p := Plan{Repositories: map[string]*imagev1.ImageRepository{}, Policies: map[string]*imagev1.ImagePolicy{}}
	workloads = slices.Clone(workloads)
	slices.SortFunc(workloads, func(a, b Workload) int { return cmp.Compare(a.String(), b.String()) })
	for _, w := range workloads {
		requests, errs := requestsOf(w)
		for _, err := range errs {
			p.problem(w, "%s", err)
		}
		for _, c := range slices.Concat(w.Pod.InitContainers, w.Pod.Containers) {
			image, err := imageOf(c.Image)
			if err != nil {
				p.problem(w, "container %s: the image is not a valid reference", c.Name)
				continue
			}
			repository := existing[image]
			if repository == "" {
				repository = p.addRepository(namespace, interval, image, w)
			}
			if r, ok := requests[c.Name]; ok && repository != "" {
				p.addPolicy(namespace, repository, w, c.Name, r)
			}
		}
	}
	return p
}

func (p *Plan) problem(w Workload, format string, args ...any) {
	p.Problems = append(p.Problems, Problem{w.String(), fmt.Sprintf(format, args...)})
}

// addRepository adds the repository of an image and returns its name, empty if there are too many. It logs in
// like the pods: with their first pull secret, else as their service account. If several workloads have the
// image, the first pull secret is used.
func (p *Plan) addRepository(namespace string, interval time.Duration, image string, w Workload) string {
	key := nameOf(image)
	r := p.Repositories[key]
	if r == nil {
		if len(p.Repositories) >= maxRepositories {
			p.problem(w, "the namespace has more than %d images", maxRepositories)
			return ""
		}
		r = &imagev1.ImageRepository{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key,
				Labels: map[string]string{Discovered: "true"}},
			Spec: imagev1.ImageRepositorySpec{Image: image, Interval: meta.Duration{Duration: interval},
				ServiceAccountName: cmp.Or(w.Pod.ServiceAccountName, "default"), ExclusionList: []string{`^.*\.sig$`},
				Provider: "generic"},
		}
		p.Repositories[key] = r
	}
	if r.Spec.SecretRef == nil && len(w.Pod.ImagePullSecrets) > 0 && w.Pod.ImagePullSecrets[0].Name != "" {
		r.Spec.SecretRef, r.Spec.ServiceAccountName = &meta.LocalObjectReference{
			Name: w.Pod.ImagePullSecrets[0].Name}, ""
	}
	return key
}

// addPolicy adds the policy of a container. Its name is kind.workload.container, which is unique as kinds and
// containers have no dots.
func (p *Plan) addPolicy(namespace, repository string, w Workload, container string, r request) {
	key := truncated(strings.ToLower(w.Owner.Kind)+"."+w.Owner.Name+"."+container, maxName)
	if len(p.Policies) >= maxPolicies {
		p.problem(w, "the namespace has more than %d policies", maxPolicies)
		return
	}
	labels := map[string]string{Discovered: "true"}
	if r.automated {
		labels[Automated] = "true"
	}
	spec := r.spec
	spec.ImageRepositoryRef = meta.NamespacedName{Name: repository}
	spec.DigestReflectionPolicy = imagev1.ReflectNever
	p.Policies[key] = &imagev1.ImagePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key, Labels: labels,
			Annotations:     map[string]string{Of: w.String(), Container: container},
			OwnerReferences: []metav1.OwnerReference{w.Owner}},
		Spec: spec,
	}
}

// imageOf returns the name of an image as written, without tag and digest. Updates keep this form.
func imageOf(image string) (string, error) {
	if _, err := name.ParseReference(image, name.WeakValidation); err != nil {
		return "", err
	}
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		image = image[:i]
	}
	return image, nil
}

// nameOf returns the name of the ImageRepository of an image: a readable part and a digest, as image names
// may have characters that object names must not have.
func nameOf(image string) string {
	slug := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(image))
	return cmp.Or(cutName(strings.Trim(slug, "-"), maxSlug), "image") + "-" + digest(image)
}

// truncated returns a name of at most limit characters. A longer name is cut, and ends with a digest of the full name.
func truncated(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return cutName(s, limit-digits-1) + "-" + digest(s)
}

func cutName(s string, limit int) string { return strings.Trim(s[:min(len(s), limit)], "-.") }

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:digits]
}

// containers returns the names of all containers of a workload.
func (w Workload) containers() []string {
	var names []string
	for _, c := range slices.Concat(w.Pod.InitContainers, w.Pod.Containers) {
		names = append(names, c.Name)
	}
	return names
}

// annotationKeys returns the sorted keys of the annotations of a workload.
func (w Workload) annotationKeys() []string { return slices.Sorted(maps.Keys(w.Annotations)) }
