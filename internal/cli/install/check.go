package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/migrate"
	"github.com/sluice-gitops/sluice/internal/process/options"
)

// CheckRequest says what to check.
type CheckRequest struct {
	Progress
	Fail         func(error) // reports a problem
	Options                  // namespace, components and version that are expected
	Prerequisite bool        // only what an installation needs
	PollInterval time.Duration
}

// ErrUnhealthy is the error of a check that found problems, which it has reported.
var ErrUnhealthy = errors.New("the check found problems")

// checker is a check in progress.
type checker struct {
	CheckRequest
	*Target
	failed bool
	hinted bool // a problem said to install
}

// problem reports a problem. Only the first one says that an installation is the next step.
func (c *checker) problem(err error) {
	c.failed = true
	const hint = ". Run sluice install"
	if text, ends := strings.CutSuffix(err.Error(), hint); ends {
		if c.hinted {
			err = errors.New(text)
		}
		c.hinted = true
	}
	c.Fail(err)
}

// Check reports whether a cluster can take an installation, and unless only that is asked, whether the installation is
// complete and works. It changes nothing. The error is [ErrUnhealthy] if it reported problems.
func Check(ctx context.Context, t *Target, req CheckRequest) error {
	c := &checker{CheckRequest: req, Target: t}
	version, err := t.CheckVersion()
	if version == "" {
		return err // the cluster does not respond
	}
	if err != nil {
		c.problem(err)
	} else {
		c.Done("Kubernetes %s is at least %s", version, MinimumKubernetes)
	}
	steps := []func(context.Context) error{c.definitions, c.policies, c.controllers}
	if req.Prerequisite {
		steps = []func(context.Context) error{c.rights, c.flux}
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if c.failed {
		return ErrUnhealthy
	}
	c.Done("all checks passed")
	return nil
}

func (c *checker) rights(ctx context.Context) error {
	objects, err := Manifests(c.Options)
	if err != nil {
		return err
	}
	missing, err := c.MissingRights(ctx, objects)
	switch {
	case err != nil:
		return err
	case len(missing) > 0:
		c.problem(fmt.Errorf("this account may not %s. Ask an administrator, or use another account",
			strings.Join(missing, "; ")))
	default:
		c.Done("this account may install")
	}
	return nil
}

func (c *checker) flux(ctx context.Context) error {
	running, err := c.RunningFlux(ctx)
	if err != nil {
		return err
	}
	for _, u := range running {
		c.Warn("Flux runs: Deployment '%s/%s'. Take over with sluice migrate flux", u.GetNamespace(), u.GetName())
	}
	return nil
}

// definitions compares the definitions of the cluster with those of this binary.
func (c *checker) definitions(ctx context.Context) error {
	wanted, err := config.Definitions()
	if err != nil {
		return err
	}
	before := c.failed
	var missing []string
	for _, want := range wanted {
		got, err := c.Dynamic().Resource(definitions).Get(ctx, want.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			missing = append(missing, want.GetName())
			continue
		}
		if err != nil {
			return cluster.Explain("cannot get CustomResourceDefinition '"+want.GetName()+"'", err)
		}
		c.compare(want, got)
	}
	switch n := len(missing); {
	case n == len(wanted):
		c.problem(fmt.Errorf("none of the %d CustomResourceDefinitions exists. Run sluice install", n))
	case n > 0:
		c.problem(fmt.Errorf("CustomResourceDefinition '%s' is missing. Run sluice install",
			strings.Join(missing, "', '")))
	}
	if !before && !c.failed {
		c.Done("%d CustomResourceDefinitions are complete", len(wanted))
	}
	return nil
}

// compare reports versions and fields that the definition of the cluster lacks.
func (c *checker) compare(wanted, live *unstructured.Unstructured) {
	want, got := migrate.ParseCRD(wanted), migrate.ParseCRD(live)
	for _, v := range want.Versions {
		i := slices.IndexFunc(got.Versions, func(g migrate.CRDVersion) bool { return g.Name == v.Name && g.Served })
		if i < 0 {
			c.problem(fmt.Errorf("CustomResourceDefinition '%s' does not serve version %s. Run sluice install",
				wanted.GetName(), v.Name))
			continue
		}
		if lacking := missingFields(v.Schema, got.Versions[i].Schema, "", 0); len(lacking) > 0 {
			c.problem(fmt.Errorf("CustomResourceDefinition '%s', version %s, lacks %d fields, such as %s: another "+
				"tool replaced it. Run sluice install --force to restore it, and remove it from the repository that "+
				"replaces it", wanted.GetName(), v.Name, len(lacking), lacking[0]))
		}
	}
	stored := got.StoredVersions
	if s := got.StorageVersion(); len(stored) > 1 || len(stored) == 1 && stored[0] != s {
		c.Warn("objects of CustomResourceDefinition '%s' may be stored in versions %s. Run sluice upgrade to "+
			"store all in %s", wanted.GetName(), strings.Join(stored, ", "), s)
	}
}

const maxSchemaDepth = 20

// missingFields returns the paths of the properties that a schema has and another lacks, ordered.
func missingFields(want, got map[string]any, path string, depth int) []string {
	if depth > maxSchemaDepth {
		return nil
	}
	var lacking []string
	wanted, _, _ := unstructured.NestedMap(want, "properties")
	present, _, _ := unstructured.NestedMap(got, "properties")
	for name, w := range wanted {
		child, _ := w.(map[string]any)
		other, ok := present[name].(map[string]any)
		if !ok {
			lacking = append(lacking, strings.TrimPrefix(path+"."+name, "."))
			continue
		}
		lacking = append(lacking, missingFields(child, other, path+"."+name, depth+1)...)
	}
	if items, ok := want["items"].(map[string]any); ok {
		other, _ := got["items"].(map[string]any)
		lacking = append(lacking, missingFields(items, other, path+"[]", depth+1)...)
	}
	slices.Sort(lacking)
	return lacking
}

// policies checks that the admission policies and their bindings exist.
func (c *checker) policies(ctx context.Context) error {
	policies, err := config.Policies()
	if err != nil {
		return err
	}
	var missing []string
	for _, p := range policies {
		resource := prunable[len(prunable)-1]
		if strings.HasSuffix(p.GetKind(), "Binding") {
			resource = prunable[len(prunable)-2]
		}
		_, err := c.Dynamic().Resource(resource).Get(ctx, p.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			missing = append(missing, p.GetKind()+" '"+p.GetName()+"'")
		} else if err != nil {
			return cluster.Explain("cannot get "+p.GetKind()+" '"+p.GetName()+"'", err)
		}
	}
	if len(missing) > 0 {
		if len(missing) == len(policies) {
			missing = []string{fmt.Sprintf("each of the %d admission policies and bindings", len(policies))}
		}
		c.problem(fmt.Errorf("approvals and requests of gates are not verified: %s is missing. Run sluice install",
			strings.Join(missing, ", ")))
		return nil
	}
	c.Done("%d admission policies and bindings exist", len(policies))
	return nil
}

// controllers waits for rollouts in progress, then checks the Deployments and which components they run.
func (c *checker) controllers(ctx context.Context) error {
	var own []*unstructured.Unstructured
	err := wait.PollUntilContextCancel(ctx, c.PollInterval, true, func(ctx context.Context) (bool, error) {
		var err error
		if own, err = c.OwnDeployments(ctx, c.Namespace); err != nil {
			return false, err
		}
		return !slices.ContainsFunc(own, isRollingOut), nil
	})
	if err != nil && !timedOut(ctx) {
		return err
	}
	if len(own) == 0 && c.hinted {
		c.problem(fmt.Errorf("no controllers are installed in namespace '%s'", c.Namespace))
		return nil
	}
	if len(own) == 0 {
		c.problem(ErrNotInstalled{c.Namespace})
		return nil
	}
	running := map[string]bool{}
	for _, u := range own {
		image := c.deployment(u)
		for _, component := range componentsOf(u) {
			running[component] = true
		}
		tag := image[strings.LastIndex(image, ":")+1:]
		if c.Version != "" && c.Version != "latest" && tag != c.Version {
			c.Warn("Deployment '%s' runs %s; this command line is %s. Run sluice upgrade, or install the same "+
				"version of the command line", u.GetName(), image, c.Version)
		}
	}
	for _, component := range c.Components {
		if !running[component] {
			c.problem(fmt.Errorf("no Deployment of namespace '%s' runs %s. Run sluice install, or name the "+
				"controllers to check with --components", c.Namespace, component))
		}
	}
	return nil
}

// deployment reports whether a Deployment is available, and returns its image.
func (c *checker) deployment(u *unstructured.Unstructured) string {
	image := ""
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	if len(containers) > 0 {
		if m, ok := containers[0].(map[string]any); ok {
			image, _ = m["image"].(string)
		}
	}
	want, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	available, _, _ := unstructured.NestedInt64(u.Object, "status", "availableReplicas")
	if want == 0 || available < want {
		c.problem(fmt.Errorf("Deployment '%s/%s' has %d of %d replicas available. Run kubectl -n %s describe pod -l "+
			"app=%s", u.GetNamespace(), u.GetName(), available, want, u.GetNamespace(), u.GetName()))
		return image
	}
	c.Done("Deployment '%s/%s' is available: %s", u.GetNamespace(), u.GetName(), image)
	return image
}

// isRollingOut reports whether a Deployment is on its way: its newest pods are not all available, and the time for
// that is not over.
func isRollingOut(u *unstructured.Unstructured) bool {
	want, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	available, _, _ := unstructured.NestedInt64(u.Object, "status", "availableReplicas")
	updated, _, _ := unstructured.NestedInt64(u.Object, "status", "updatedReplicas")
	if available >= want && updated >= want {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return !slices.ContainsFunc(conditions, func(one any) bool {
		m, ok := one.(map[string]any)
		return ok && m["type"] == "Progressing" && m["status"] == "False"
	})
}

// componentsOf returns the controllers that a Deployment of Sluice runs.
func componentsOf(u *unstructured.Unstructured) []string {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	for _, one := range containers {
		m, _ := one.(map[string]any)
		args, _, _ := unstructured.NestedStringSlice(m, "args")
		for _, arg := range args {
			if list, ok := strings.CutPrefix(arg, "--controllers="); ok {
				return strings.Split(list, ",")
			}
		}
	}
	return options.AllControllers
}
