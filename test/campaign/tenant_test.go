package campaign

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

var hour = meta.Duration{Duration: time.Hour}

var installed sync.Once

// install installs the definitions by the built binary.
func install(t *testing.T, kubeconfig string) {
	t.Helper()
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(sluice, "install", "--crds-only", "--kubeconfig", kubeconfig).
		CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
}

// cluster returns an administrator's client of the test cluster, with the definitions installed.
func cluster(t *testing.T) client.Client {
	t.Helper()
	installed.Do(func() { install(t, testenv.Kubeconfig(t)) })
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tenant is a namespace with a repository.
type tenant struct {
	*testing.T
	client    client.Client
	git       *testenv.Git
	namespace string
	repo      string
}

// newTenant returns a tenant with a namespace of its own. Git may be shared.
func newTenant(t *testing.T, git *testenv.Git) *tenant {
	t.Helper()
	c, namespace := cluster(t), testenv.Namespace(t)
	return &tenant{T: t, client: c, git: git, namespace: namespace, repo: namespace}
}

func (n *tenant) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: n.namespace, Name: name}
}

func (n *tenant) create(objects ...client.Object) {
	n.Helper()
	for _, o := range objects {
		if err := n.client.Create(context.Background(), o); err != nil {
			n.Fatal(err)
		}
	}
}

// source returns a GitRepository for the repository of the tenant.
func (n *tenant) source(name string, change ...func(*sourcev1.GitRepository)) *sourcev1.GitRepository {
	g := &sourcev1.GitRepository{ObjectMeta: n.named(name), Spec: sourcev1.GitRepositorySpec{
		URL: n.git.URL + "/" + n.repo, Interval: hour, Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}}
	for _, c := range change {
		c(g)
	}
	return g
}

// app returns a Kustomization of the source "app".
func (n *tenant) app(name string, change ...func(*kustomizev1.Kustomization)) *kustomizev1.Kustomization {
	second := meta.Duration{Duration: time.Second}
	k := &kustomizev1.Kustomization{ObjectMeta: n.named(name), Spec: kustomizev1.KustomizationSpec{
		Interval: hour, RetryInterval: &second, Prune: true, TargetNamespace: n.namespace,
		SourceRef: kustomizev1.SourceReference{Kind: sourcev1.GitRepositoryKind,
			NamespacedName: meta.NamespacedName{Name: "app"}}}}
	for _, c := range change {
		c(k)
	}
	return k
}

// commit sets the value of the ConfigMap "app" and returns the hash of the commit.
func (n *tenant) commit(value string) string {
	n.Helper()
	return n.git.Commit(n.repo, map[string]string{"app.yaml": configMap("app", value)})
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {k: %q}\n", name, value)
}

// request requests a reconcile of an object, and returns the text of the request.
func (n *tenant) request(o client.Object, name string) string {
	n.Helper()
	o.SetNamespace(n.namespace)
	o.SetName(name)
	at := time.Now().Format(time.RFC3339Nano)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, at)
	testenv.Eventually(n, "the request is accepted", func() error {
		return n.client.Patch(context.Background(), o, client.RawPatch(types.MergePatchType, []byte(patch)))
	})
	return at
}

// fetch requests that the source "app" is fetched.
func (n *tenant) fetch() {
	n.Helper()
	n.request(&sourcev1.GitRepository{}, "app")
}

// value returns the value of a ConfigMap.
func (n *tenant) value(name string) (string, error) {
	cm := &corev1.ConfigMap{}
	err := n.client.Get(context.Background(), types.NamespacedName{Namespace: n.namespace, Name: name}, cm)
	return cm.Data["k"], err
}

// has waits until the ConfigMap "app" has a value.
func (n *tenant) has(c *controller, value string) {
	n.Helper()
	testenv.Eventually(n, "the value "+value+" is applied in "+n.namespace, func() error {
		if c != nil {
			_ = c.dead()
		}
		got, err := n.value("app")
		if err == nil && got != value {
			err = errors.New("the value is " + got)
		}
		return err
	})
}

// hasObjects returns an error unless the ConfigMaps have exactly the wanted values.
func (n *tenant) hasObjects(wanted map[string]string) error {
	var list corev1.ConfigMapList
	if err := n.client.List(context.Background(), &list, client.InNamespace(n.namespace)); err != nil {
		return err
	}
	found := 0
	for _, cm := range list.Items {
		if cm.Name == "kube-root-ca.crt" {
			continue
		}
		found++
		if value, ok := wanted[cm.Name]; !ok || cm.Data["k"] != value {
			return fmt.Errorf("%s has the value '%s', want '%s' (declared: %t)", cm.Name, cm.Data["k"], value, ok)
		}
	}
	if found != len(wanted) {
		return fmt.Errorf("%d objects, want %d", found, len(wanted))
	}
	return nil
}

// applied returns an error unless a Kustomization has applied a commit.
func (n *tenant) applied(name, commit string) error {
	k, key := &kustomizev1.Kustomization{}, types.NamespacedName{Namespace: n.namespace, Name: name}
	if err := n.client.Get(context.Background(), key, k); err != nil {
		return err
	}
	if !strings.HasSuffix(k.Status.LastAppliedRevision, commit) {
		return fmt.Errorf("applied '%s', conditions %v", k.Status.LastAppliedRevision, k.Status.Conditions)
	}
	return nil
}

// patchSpec applies a JSON merge patch to an object.
func (n *tenant) patchSpec(o client.Object, name, patch string) {
	n.Helper()
	o.SetNamespace(n.namespace)
	o.SetName(name)
	merge := client.RawPatch(types.MergePatchType, []byte(patch))
	if err := n.client.Patch(context.Background(), o, merge); err != nil {
		n.Fatal(err)
	}
}
