package manager

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	return &system{T: t, client: c, git: testenv.NewGit(t), namespace: testenv.Namespace(t), storage: t.TempDir(),
		requests: &requests{}, configure: configure}
}

// start runs the controllers in this process.
func (s *system) start() {
	s.Helper()
	cfg := testenv.Cluster(s)
	if s.runsAs != "" {
		cfg = s.loginAs(cfg, s.runsAs)
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			s.requests.mu.Lock()
			s.requests.lines = append(s.requests.lines, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
			s.requests.mu.Unlock()
			return next.RoundTrip(r)
		})
	})
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

// freeAddress is one of this machine that nothing listens at, or comes to use before the test does: all of
// 127.0.0.0/8 is this machine.
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
		Controllers: AllControllers, StoragePath: s.storage, StorageAddr: "127.0.0.1:0", RetentionTTL: time.Minute,
		RetentionCount: 2, HelmLimits: helm.DefaultLimits,
		Backend: s.backend, MetricsAddr: "0", HealthAddr: "0", RuntimeNamespace: s.namespace, Concurrent: 4,
		KubeAPIQPS: 1000, KubeAPIBurst: 1000,
		Retry: reconcile.Retry{Min: 50 * time.Millisecond, Max: time.Second}, Resync: time.Hour,
		StrictSubstitutions: true, SOPSAgeSecret: "sops-age", ConfigsSelector: "reconcile.fluxcd.io/watch=Enabled",
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
	// which apply waits for, though not for long
	testenv.Eventually(t, "the definitions are established", func() error {
		_, err := cluster.Apply(context.Background(),
			apply.Request{Owner: apply.Owner{Group: "test.io", Namespace: "x", Name: "crds"}, Objects: objects})
		return err
	})
}

func (s *system) source(name string, change ...func(*sourcev1.GitRepository)) {
	s.Helper()
	g := &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: sourcev1.GitRepositorySpec{
			URL: s.git.URL + "/" + name, Interval: metav1.Duration{Duration: time.Hour},
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
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
			SourceRef: kustomizev1.SourceReference{Kind: "GitRepository",
				NamespacedName: meta.NamespacedName{Name: source}},
			Timeout: &metav1.Duration{Duration: 2 * time.Minute},
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
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, time.Now().
		Format(time.RFC3339Nano))
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
