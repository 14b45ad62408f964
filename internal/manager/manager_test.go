package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/config"
	"github.com/sluice-gitops/sluice/internal/apply"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// system is a namespace with controllers that watch only it, a git server, and a client.
type system struct {
	*testing.T
	client    client.Client
	git       *testenv.Git
	namespace string
	runsAs    string // the service account that the controllers run as; the administrator when empty
	storage   string
	backend   artifact.S3Options
	requests  *requests
	configure []func(*Options)
	stop      func()
}

// requests counts what the controllers ask of the API server.
type requests struct {
	mu    sync.Mutex
	lines []string
}

func (r *requests) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = nil
}

// about lists the requests whose method and path contain a text.
func (r *requests) about(text string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []string
	for _, l := range r.lines {
		if strings.Contains(l, text) {
			found = append(found, l)
		}
	}
	return found
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var install sync.Once

func newSystem(t *testing.T, configure ...func(*Options)) *system {
	t.Helper()
	s := prepareSystem(t, configure...)
	s.start()
	return s
}

// prepareSystem makes all but the controllers.
func prepareSystem(t *testing.T, configure ...func(*Options)) *system {
	t.Helper()
	cfg := testenv.Cluster(t)
	install.Do(func() { installDefinitions(t, cfg) })
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return &system{T: t, client: c, git: testenv.NewGit(t), namespace: testenv.Namespace(t), storage: t.TempDir(), requests: &requests{}, configure: configure}
}

// start runs the controllers in this process.
func (s *system) start() {
	s.Helper()
	cfg := testenv.Cluster(s)
	if s.runsAs != "" {
		cfg = s.loginAs(cfg, s.runsAs)
	}
	cfg.WrapTransport = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			s.requests.mu.Lock()
			s.requests.lines = append(s.requests.lines, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
			s.requests.mu.Unlock()
			return next.RoundTrip(r)
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, s.options()) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("the controllers ended: %v", err)
		}
	})
	s.Cleanup(func() { s.stop() })
}

// freeAddress is one of this machine that nothing listens at, or comes to use before the test does: all of 127.0.0.0/8 is this machine.
func freeAddress(t *testing.T) string {
	t.Helper()
	ip := net.IPv4(127, byte(1+rand.IntN(254)), byte(rand.IntN(256)), byte(1+rand.IntN(254)))
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

func (s *system) options() Options {
	o := Options{
		Controllers: AllControllers, StoragePath: s.storage, StorageAddr: "127.0.0.1:0", RetentionTTL: time.Minute, RetentionCount: 2, HelmLimits: helm.DefaultLimits,
		Backend: s.backend, MetricsAddr: "0", HealthAddr: "0", RuntimeNamespace: s.namespace, Concurrent: 4, KubeAPIQPS: 1000, KubeAPIBurst: 1000,
		Retry: reconcile.Retry{Min: 50 * time.Millisecond, Max: time.Second}, Resync: time.Hour, StrictSubstitutions: true, SOPSAgeSecret: "sops-age", ConfigsSelector: "reconcile.fluxcd.io/watch=Enabled",
		LogLevel: "error", LogEncoding: "console",
	}
	for _, c := range s.configure {
		c(&o)
	}
	return o
}

func installDefinitions(t *testing.T, cfg *rest.Config) {
	t.Helper()
	cluster, err := apply.NewCluster(cfg, apply.ClusterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	objects, err := config.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the definitions are established", func() error { // which apply waits for, though not for long
		_, err := cluster.Apply(context.Background(), apply.Request{Owner: apply.Owner{Group: "test.io", Namespace: "x", Name: "crds"}, Objects: objects})
		return err
	})
}

func (s *system) source(name string, change ...func(*sourcev1.GitRepository)) {
	s.Helper()
	g := &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: sourcev1.GitRepositorySpec{
			URL: s.git.URL + "/" + name, Interval: metav1.Duration{Duration: time.Hour}, Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
		},
	}
	for _, c := range change {
		c(g)
	}
	s.create(g)
}

func (s *system) sync(name, source, path string, change ...func(*kustomizev1.Kustomization)) {
	s.Helper()
	k := &kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: kustomizev1.KustomizationSpec{
			Interval: metav1.Duration{Duration: time.Hour}, Path: path, Prune: true, TargetNamespace: s.namespace,
			SourceRef: kustomizev1.SourceReference{Kind: "GitRepository", NamespacedName: meta.NamespacedName{Name: source}},
			Timeout:   &metav1.Duration{Duration: 2 * time.Minute},
		},
	}
	for _, c := range change {
		c(k)
	}
	s.create(k)
}

func (s *system) create(o client.Object) {
	s.Helper()
	if err := s.client.Create(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

func (s *system) get(o client.Object, name string) error {
	return s.client.Get(s.Context(), types.NamespacedName{Namespace: s.namespace, Name: name}, o)
}

// change edits an object as it is, again when somebody else wrote it in the meantime.
func (s *system) change(o client.Object, name string, edit func()) {
	s.Helper()
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := s.get(o, name); err != nil {
			return err
		}
		edit()
		return s.client.Update(s.Context(), o)
	}); err != nil {
		s.Fatal(err)
	}
}

// pull asks for a fetch, as a webhook would.
func (s *system) pull(name string) {
	s.Helper()
	s.annotate(&sourcev1.GitRepository{}, name)
}

func (s *system) annotate(o client.Object, name string) {
	s.Helper()
	o.SetNamespace(s.namespace)
	o.SetName(name)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, time.Now().Format(time.RFC3339Nano))
	if err := s.client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// ready waits until a Kustomization is Ready at a commit.
func (s *system) ready(name, commit string) *kustomizev1.Kustomization {
	s.Helper()
	k := &kustomizev1.Kustomization{}
	testenv.Eventually(s, name+" is Ready", func() error {
		if err := s.get(k, name); err != nil {
			return err
		}
		if !reconcile.IsReady(k) || !strings.HasSuffix(k.Status.LastAppliedRevision, commit) {
			return fmt.Errorf("%s %+v", k.Status.LastAppliedRevision, k.Status.Conditions)
		}
		return nil
	})
	return k
}

// fails waits until an object is not Ready for a reason, in words.
func (s *system) fails(o reconcile.Object, name, reason, says string) {
	s.Helper()
	testenv.Eventually(s, name+" fails with "+reason, func() error {
		if err := s.get(o, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, "Ready")
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

func (s *system) configMap(name, value string) {
	s.Helper()
	testenv.Eventually(s, "ConfigMap "+name+" holds "+value, func() error {
		cm := &corev1.ConfigMap{}
		if err := s.get(cm, name); err != nil {
			return err
		}
		if cm.Data["k"] != value {
			return fmt.Errorf("it holds %q", cm.Data["k"])
		}
		return nil
	})
}

// grant lets a service account do everything in the namespace.
func (s *system) grant(account string) {
	s.Helper()
	s.create(&rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	})
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: s.namespace}},
	})
}

func (s *system) gone(o client.Object, name string) {
	s.Helper()
	testenv.Eventually(s, name+" is gone", func() error {
		err := s.get(o, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("still there"))
	})
}

func cm(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {k: %q}\n", name, value)
}

func TestDeclarationsBecomeObjectsAndStaySo(t *testing.T) {
	s := newSystem(t)
	first := s.git.Commit("app", map[string]string{"deploy/a.yaml": cm("a", "1"), "deploy/b.yaml": cm("b", "1"), "other.md": "x"})
	s.source("app")
	s.sync("app", "app", "deploy")
	k := s.ready("app", first)
	if k.Status.Inventory == nil || len(k.Status.Inventory.Entries) != 2 {
		t.Fatalf("inventory %+v", k.Status.Inventory)
	}

	t.Log("a commit changes one object and removes another")
	second := s.git.Commit("app", map[string]string{"deploy/a.yaml": cm("a", "2"), "deploy/b.yaml": ""})
	s.pull("app")
	s.ready("app", second)
	s.configMap("a", "2")
	s.gone(&corev1.ConfigMap{}, "b")

	t.Log("an edited object is put back, a deleted one returns, whatever the interval")
	edited := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "a"}}
	if err := s.client.Patch(t.Context(), edited, client.RawPatch(types.MergePatchType, []byte(`{"data":{"k":"edited"}}`))); err != nil {
		t.Fatal(err)
	}
	s.configMap("a", "2")
	if err := s.client.Delete(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	s.configMap("a", "2")

	t.Log("a commit that touches nothing that was read is followed without a request for the objects")
	s.handled(&kustomizev1.Kustomization{}, "app") // what corrected it is over
	s.requests.reset()
	third := s.git.Commit("app", map[string]string{"other.md": "y"})
	s.pull("app")
	s.ready("app", third)
	if r := s.requests.about("/configmaps/a"); len(r) > 0 {
		t.Errorf("asked for the object: %v", r)
	}

	t.Log("deleting the Kustomization collects what it made")
	k.SetResourceVersion("")
	if err := s.client.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	s.gone(&kustomizev1.Kustomization{}, "app")
	s.gone(&corev1.ConfigMap{}, "a")
}

func TestDeletedWhileSuspendedKeepsWhatItMade(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("kept", "1")})
	s.source("app")
	s.sync("app", "app", "")
	k := s.ready("app", commit)
	if err := s.client.Patch(t.Context(), k, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`))); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Delete(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	s.gone(&kustomizev1.Kustomization{}, "app")
	s.configMap("kept", "1")
}

func TestFiveHundredObjectsAtRestCostNothing(t *testing.T) {
	s := newSystem(t)
	var all strings.Builder
	for i := range 500 {
		all.WriteString("---\n" + cm(fmt.Sprintf("cm-%03d", i), "x"))
	}
	commit := s.git.Commit("app", map[string]string{"all.yaml": all.String()})
	s.source("app")
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.Interval.Duration = 100 * time.Millisecond
	})
	s.ready("app", commit)
	passes := func() float64 {
		return observed(t, "gotk_reconcile_duration_seconds", kustomizev1.KustomizationKind, s.namespace, "app")
	}
	testenv.Eventually(t, "it comes to rest", func() error {
		s.requests.reset()
		from := passes()
		testenv.Eventually(t, "ten intervals pass", func() error {
			if passes() < from+10 {
				return errors.New("not yet")
			}
			return nil
		})
		for _, r := range append(s.requests.about("/configmaps"), s.requests.about("/kustomizations")...) {
			if !strings.Contains(r, "watch=true") {
				return fmt.Errorf("a request at rest: %s", r)
			}
		}
		return nil
	})
}

func TestChainOfDependentsComesUpByEdges(t *testing.T) {
	s := newSystem(t)
	files := map[string]string{}
	for i := range 10 {
		files[fmt.Sprintf("d%d/a.yaml", i)] = cm(fmt.Sprintf("link-%d", i), "x")
	}
	commit := s.git.Commit("app", files)
	for i := range 10 {
		s.sync(fmt.Sprintf("k%d", i), "app", fmt.Sprintf("d%d", i), func(k *kustomizev1.Kustomization) {
			if i > 0 {
				k.Spec.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: fmt.Sprintf("k%d", i-1)}}}
			}
		})
	}
	s.fails(&kustomizev1.Kustomization{}, "k0", "ArtifactFailed", "not found")
	s.source("app")
	// All intervals are an hour: only edges can bring the last one up.
	s.ready("k9", commit)
}

func TestHealthIsWaitedForAndExplained(t *testing.T) {
	s := newSystem(t)
	deployment := func(fail string) string {
		return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {playground.sluice.dev/fail: %q}}
    spec: {containers: [{name: web, image: nginx}]}
`, fail)
	}
	s.git.Commit("app", map[string]string{"d.yaml": deployment("image-pull")})
	s.source("app")
	s.sync("app", "app", "", func(k *kustomizev1.Kustomization) {
		k.Spec.HealthChecks = []meta.ObjectReference{{Kind: "Deployment", Name: "web"}}
		k.Spec.Timeout.Duration = runsOut
	})
	s.fails(&kustomizev1.Kustomization{}, "app", "HealthCheckFailed", "ImagePullBackOff")
	s.patch(&kustomizev1.Kustomization{}, "app", `{"spec":{"timeout":"1h"}}`)
	commit := s.git.Commit("app", map[string]string{"d.yaml": deployment("")})
	s.pull("app")
	s.ready("app", commit)
	d := &appsv1.Deployment{}
	if err := s.get(d, "web"); err != nil || d.Status.AvailableReplicas != 1 {
		t.Errorf("Ready before the Deployment: %+v, %v", d.Status, err)
	}
}

func TestBadInputIsToldAndLeavesTheClusterAsItWas(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("app", map[string]string{
		"good/a.yaml":             cm("good", "1"),
		"yaml/bad.yaml":           "a: b\nc: [\n",
		"out/kustomization.yaml":  "resources: [../../../etc]\n",
		"link/kustomization.yaml": "resources: [x.yaml]\n", "link/x.yaml": "symlink:../../../etc/passwd",
		"refused/a.yaml": cm("refused-a", "1"), "refused/b.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: refused-b}\nspec: {ports: [{port: 99999}]}\n",
		"unknown/a.yaml": "apiVersion: none.example.com/v1\nkind: Nothing\nmetadata: {name: x}\n",
	})
	s.source("app")
	branch := func(b string) func(*sourcev1.GitRepository) {
		return func(g *sourcev1.GitRepository) { g.Spec.URL, g.Spec.Reference.Branch = s.git.URL+"/app", b }
	}
	s.source("missing-branch", branch("mian"))
	s.source("missing-repository")
	s.source("missing-secret", branch("main"), func(g *sourcev1.GitRepository) { g.Spec.SecretRef = &meta.LocalObjectReference{Name: "none"} })
	s.source("unknown-host", func(g *sourcev1.GitRepository) { g.Spec.URL = "http://host.invalid/x" })
	s.source("no-version", branch("main"), func(g *sourcev1.GitRepository) { g.Spec.Reference.SemVer = ">=1" })
	depends := func(on string) func(*kustomizev1.Kustomization) {
		return func(k *kustomizev1.Kustomization) {
			k.Spec.DependsOn = []kustomizev1.DependencyReference{{NamespacedName: meta.NamespacedName{Name: on}}}
		}
	}
	for _, dir := range []string{"yaml", "out", "link", "refused", "unknown", "nowhere"} {
		s.sync(dir, "app", dir)
	}
	s.sync("missing-source", "none", "")
	s.sync("missing-dependency", "app", "good", depends("none"))
	s.sync("cycle-a", "app", "good", depends("cycle-b"))
	s.sync("cycle-b", "app", "good", depends("cycle-a"))
	for name, c := range map[string]struct{ reason, says string }{
		"missing-branch":     {"GitOperationFailed", "the remote has: main"},
		"missing-repository": {"GitOperationFailed", "not found"},
		"missing-secret":     {"AuthenticationFailed", "/none' not found"},
		"unknown-host":       {"GitOperationFailed", "host.invalid"},
		"no-version":         {"GitOperationFailed", "no tag matches"},
	} {
		s.fails(&sourcev1.GitRepository{}, name, c.reason, c.says)
		s.event(name, c.reason)
	}
	for name, c := range map[string]struct{ reason, says string }{
		"yaml":               {"BuildFailed", "yaml/bad.yaml is not valid YAML: line 2"},
		"out":                {"BuildFailed", "reaches out of the source"},
		"link":               {"BuildFailed", "x.yaml"},
		"refused":            {"ReconciliationFailed", "Service/" + s.namespace + "/refused-b"},
		"unknown":            {"ReconciliationFailed", "does not serve kind Nothing"},
		"nowhere":            {"ArtifactFailed", "path not found"},
		"missing-source":     {"ArtifactFailed", "/none' not found"},
		"missing-dependency": {"DependencyNotReady", "/none' not found"},
		"cycle-a":            {"DependencyNotReady", "dependency cycle"},
	} {
		s.fails(&kustomizev1.Kustomization{}, name, c.reason, c.says)
		s.event(name, c.reason)
	}
	for _, name := range []string{"refused-a", "good"} {
		if err := s.get(&corev1.ConfigMap{}, name); !apierrors.IsNotFound(err) {
			t.Errorf("ConfigMap %s was applied: %v", name, err)
		}
	}
}

// event waits for an event of a reason about an object.
func (s *system) event(name, reason string) {
	s.Helper()
	testenv.Eventually(s, "an event about "+name, func() error {
		var list eventsv1.EventList
		if err := s.client.List(s.Context(), &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Name == name && e.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("none of reason %s", reason)
	})
}

func TestImmutableFieldsNeedForce(t *testing.T) {
	s := newSystem(t)
	secret := func(v string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: fixed}\nimmutable: true\nstringData: {token: %q}\n", v)
	}
	commit := s.git.Commit("app", map[string]string{"s.yaml": secret("first-value")})
	s.source("app")
	s.sync("app", "app", "")
	s.ready("app", commit)
	commit = s.git.Commit("app", map[string]string{"s.yaml": secret("second-value")})
	s.pull("app")
	s.fails(&kustomizev1.Kustomization{}, "app", "ReconciliationFailed", "spec.force")
	k := &kustomizev1.Kustomization{}
	if err := s.get(k, "app"); err != nil || strings.Contains(fmt.Sprint(k.Status), "second-value") {
		t.Errorf("the status tells the value: %v", err)
	}
	if err := s.client.Patch(t.Context(), k, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"force":true}}`))); err != nil {
		t.Fatal(err)
	}
	s.ready("app", commit)
	got := &corev1.Secret{}
	if err := s.get(got, "fixed"); err != nil || string(got.Data["token"]) != "second-value" {
		t.Errorf("not re-created: %v", err)
	}
}

func TestOutageKeepsTheLastArtifactServed(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("served", "1")})
	s.source("app")
	s.sync("app", "app", "")
	s.ready("app", commit)
	s.git.Stop()
	s.pull("app")
	g := &sourcev1.GitRepository{}
	s.fails(g, "app", "GitOperationFailed", "refuses the connection")
	if c := apimeta.FindStatusCondition(g.Status.Conditions, "FetchFailed"); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("FetchFailed: %+v", c)
	}
	resp, err := http.Get(g.Status.Artifact.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || int64(len(b)) != *g.Status.Artifact.Size {
		t.Errorf("served %d bytes, status %d, %v", len(b), resp.StatusCode, err)
	}
	if err := s.client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "served"}}); err != nil {
		t.Fatal(err)
	}
	s.configMap("served", "1")

	t.Log("a restart during the outage changes nothing, and drift is still corrected")
	s.stop()
	if err := s.client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "served"}}); err != nil {
		t.Fatal(err)
	}
	s.start()
	s.configMap("served", "1")
}

func TestLegacyManifestsAreServed(t *testing.T) {
	s := newSystem(t)
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("legacy", "1")})
	for _, text := range []string{
		"apiVersion: source.toolkit.fluxcd.io/v1beta1\nkind: GitRepository\nmetadata: {name: app}\nspec: {interval: 1m, url: URL/app, ref: {branch: main}, gitImplementation: libgit2}\n",
		"apiVersion: kustomize.toolkit.fluxcd.io/v1beta1\nkind: Kustomization\nmetadata: {name: app}\nspec: {interval: 5m, path: ./, prune: true, targetNamespace: NS, sourceRef: {kind: GitRepository, name: app}, validation: client, healthChecks: [{kind: ConfigMap, name: legacy}]}\n",
	} {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.NewReplacer("URL", s.git.URL, "NS", s.namespace).Replace(text)), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetNamespace(s.namespace)
		s.create(o)
	}
	k := s.ready("app", commit)
	if k.Spec.Validation != "client" {
		t.Errorf("validation was pruned: %q", k.Spec.Validation)
	}
}

// TestRealRepositoriesRun runs the pipeline of the owner's document on the repositories that it names.
func TestRealRepositoriesRun(t *testing.T) {
	root := os.Getenv("SLUICE_REALWORLD")
	if root == "" {
		t.Log("SLUICE_REALWORLD is not set: it names the folder with gitops-istio and podinfo-deploy; nothing was checked")
		return
	}
	s := newSystem(t)
	commits := map[string]string{}
	for _, repo := range []string{"gitops-istio", "podinfo-deploy"} {
		files := map[string]string{}
		base := filepath.Join(root, repo)
		err := filepath.Walk(base, func(p string, info os.FileInfo, err error) error {
			if err != nil || info.IsDir() {
				return err
			}
			name, err := filepath.Rel(base, p)
			if err != nil {
				return err
			}
			b, err := os.ReadFile(p)
			files[name] = string(b)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		commits[repo] = s.git.CommitTo(repo, "refs/heads/master", files)
	}
	for _, text := range strings.Split(strings.ReplaceAll(document, "https://github.com/stefanprodan", s.git.URL), "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetNamespace(s.namespace)
		s.create(o)
	}
	istiod := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "istiod"}}
	istiod.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "istiod"}}
	istiod.Spec.Template.Labels = istiod.Spec.Selector.MatchLabels
	istiod.Spec.Template.Spec.Containers = []corev1.Container{{Name: "d", Image: "istio"}}
	testenv.Eventually(t, "the namespace for istiod is there", func() error { return s.client.Create(t.Context(), istiod) })
	for name, repo := range map[string]string{"istio": "gitops-istio", "webapp-common": "podinfo-deploy", "webapp-backend": "podinfo-deploy", "webapp-frontend": "podinfo-deploy"} {
		s.ready(name, commits[repo])
	}
}

const document = `apiVersion: source.toolkit.fluxcd.io/v1beta1
kind: GitRepository
metadata: {name: istio}
spec: {interval: 1m, url: "https://github.com/stefanprodan/gitops-istio"}
---
apiVersion: source.toolkit.fluxcd.io/v1beta1
kind: GitRepository
metadata: {name: webapp}
spec: {interval: 1m, url: "https://github.com/stefanprodan/podinfo-deploy"}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta1
kind: Kustomization
metadata: {name: istio}
spec: {interval: 10m, path: ./istio/, prune: true, sourceRef: {kind: GitRepository, name: istio}, healthChecks: [{kind: Deployment, name: istiod, namespace: istio-system}], timeout: 2m}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta1
kind: Kustomization
metadata: {name: webapp-common}
spec: {dependsOn: [{name: istio}], interval: 5m, path: ./webapp/common/, prune: true, sourceRef: {kind: GitRepository, name: webapp}, validation: client}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta1
kind: Kustomization
metadata: {name: webapp-backend}
spec: {dependsOn: [{name: webapp-common}], interval: 5m, path: ./webapp/backend/, prune: true, sourceRef: {kind: GitRepository, name: webapp}, validation: server, healthChecks: [{kind: Deployment, name: backend, namespace: webapp}], timeout: 2m}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta1
kind: Kustomization
metadata: {name: webapp-frontend}
spec: {dependsOn: [{name: webapp-backend}], interval: 5m, path: ./webapp/frontend/, prune: true, sourceRef: {kind: GitRepository, name: webapp}, validation: server}
`
