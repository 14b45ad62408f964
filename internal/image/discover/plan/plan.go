// Package plan says which repositories and policies of images the workloads of a namespace call for. It takes
// and returns plain values.
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

// Labels and annotations of what is made of workloads.
const (
	// label "true": the object is discovery's, which changes and removes it
	Discovered = "image.toolkit.fluxcd.io/discovered"
	// label "true": of a policy whose workload asks for updates, for spec.policySelector of automations
	Automated = "image.toolkit.fluxcd.io/automated"
	Of        = "image.toolkit.fluxcd.io/workload"  // annotation: KIND/NAME of the workload that a policy is for
	Container = "image.toolkit.fluxcd.io/container" // annotation: its container
)

const (
	maxRepositories = 1000 // of a namespace
	maxPolicies     = 5000
	maxName         = 253 // characters of an object's name
	maxSlug         = 200 // of those, what tells people the image
	digits          = 8   // of a digest, in a name
)

// Workload is what is read of a Deployment, StatefulSet, DaemonSet or CronJob.
type Workload struct {
	Owner       metav1.OwnerReference // the workload, as the owner of its policies
	Annotations map[string]string
	Pod         corev1.PodSpec
}

func (w Workload) String() string { return w.Owner.Kind + "/" + w.Owner.Name }

// Plan is what the workloads of a namespace call for, by name.
type Plan struct {
	Repositories map[string]*imagev1.ImageRepository
	Policies     map[string]*imagev1.ImagePolicy
	Problems     []Problem
}

// Problem is what keeps a workload from having a policy.
type Problem struct {
	Workload string // KIND/NAME
	Message  string
}

// New plans for the workloads of a namespace. existing names, by image, the ImageRepositories that people
// made: theirs are used. interval is that of scans.
func New(namespace string, interval time.Duration, existing map[string]string, workloads []Workload) Plan {
	p := Plan{Repositories: map[string]*imagev1.ImageRepository{}, Policies: map[string]*imagev1.ImagePolicy{}}
	workloads = slices.Clone(workloads)
	slices.SortFunc(workloads, func(a, b Workload) int { return cmp.Compare(a.String(), b.String()) })
	for _, w := range workloads {
		wishes, err := wishesOf(w)
		for _, e := range err {
			p.problem(w, "%s", e)
		}
		for _, c := range slices.Concat(w.Pod.InitContainers, w.Pod.Containers) {
			image, err := imageOf(c.Image)
			if err != nil {
				p.problem(w, "container %s: the image is not a reference to one", c.Name)
				continue
			}
			repository := existing[image]
			if repository == "" {
				repository = p.repository(namespace, interval, image, w)
			}
			if wish, ok := wishes[c.Name]; ok && repository != "" {
				p.policy(namespace, repository, w, c.Name, wish)
			}
		}
	}
	return p
}

func (p *Plan) problem(w Workload, format string, args ...any) {
	p.Problems = append(p.Problems, Problem{w.String(), fmt.Sprintf(format, args...)})
}

// repository adds the one of an image, which is logged in to as the pods are: by the first pull secret that
// they name, else by those of their service account. Of several workloads, the first that names a secret
// counts.
func (p *Plan) repository(namespace string, interval time.Duration, image string, w Workload) string {
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

// policy adds the one of a container: kind.workload.container, which is unique as neither kinds nor
// containers have dots.
func (p *Plan) policy(namespace, repository string, w Workload, container string, wish wish) {
	key := bounded(strings.ToLower(w.Owner.Kind)+"."+w.Owner.Name+"."+container, maxName)
	if len(p.Policies) >= maxPolicies {
		p.problem(w, "the namespace has more than %d policies", maxPolicies)
		return
	}
	labels := map[string]string{Discovered: "true"}
	if wish.automated {
		labels[Automated] = "true"
	}
	spec := wish.spec
	spec.ImageRepositoryRef = meta.NamespacedName{Name: repository}
	spec.DigestReflectionPolicy = imagev1.ReflectNever
	p.Policies[key] = &imagev1.ImagePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key, Labels: labels,
			Annotations:     map[string]string{Of: w.String(), Container: container},
			OwnerReferences: []metav1.OwnerReference{w.Owner}},
		Spec: spec,
	}
}

// imageOf is the name of an image as it is written, without tag and digest: updates write it so again.
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

// nameOf is the name of an image's repository: what people know it by, and a digest, as images have
// characters that names have not.
func nameOf(image string) string {
	slug := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(image))
	return cmp.Or(cutName(strings.Trim(slug, "-"), maxSlug), "image") + "-" + digest(image)
}

// bounded is a name that is cut to the limit, and then has a digest of what it was.
func bounded(s string, limit int) string {
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

// containers are the names of all containers of a workload.
func (w Workload) containers() []string {
	var names []string
	for _, c := range slices.Concat(w.Pod.InitContainers, w.Pod.Containers) {
		names = append(names, c.Name)
	}
	return names
}

// sorted are the annotations of a workload in the order of their names.
func (w Workload) sorted() []string { return slices.Sorted(maps.Keys(w.Annotations)) }
