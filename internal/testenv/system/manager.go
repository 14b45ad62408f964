// Package system runs the controllers against a real API server, in a namespace of the test. Only tests may import it.
package system

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
	"github.com/sluice-gitops/sluice/internal/kubeclient"
	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/options"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source/helm"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// System is a namespace with controllers that watch only it, a git server, and a client.
type System struct {
	*testing.T
	Client    client.Client
	Git       *testenv.Git
	Namespace string
	RunsAs    string // the service account that the controllers run as; the administrator when empty
	Storage   string
	Backend   artifact.S3Options
	Requests  *Requests
	Configure []func(*options.Options)
	Stop      func()
}

// Requests counts what the controllers ask of the API server.
type Requests struct {
	mu    sync.Mutex
	lines []string
}

func (r *Requests) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = nil
}

// Matching lists the requests whose method and path contain a text.
func (r *Requests) Matching(text string) []string {
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

type RoundTripper func(*http.Request) (*http.Response, error)

func (f RoundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var install sync.Once

func New(t *testing.T, configure ...func(*options.Options)) *System {
	t.Helper()
	s := Prepare(t, configure...)
	s.Start()
	return s
}

// Prepare makes all but the controllers.
func Prepare(t *testing.T, configure ...func(*options.Options)) *System {
	t.Helper()
	cfg := testenv.Cluster(t)
	install.Do(func() { installDefinitions(t, cfg) })
	c, err := client.New(cfg, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return &System{T: t, Client: c, Git: testenv.NewGit(t), Namespace: testenv.Namespace(t), Storage: t.TempDir(),
		Requests: &Requests{}, Configure: configure}
}

// For returns the same system for a sub-test: failures are reported there.
func (s *System) For(t *testing.T) *System {
	sub := *s
	sub.T = t
	return &sub
}

// Start runs the controllers in this process.
func (s *System) Start() {
	s.Helper()
	cfg := testenv.Cluster(s)
	if s.RunsAs != "" {
		cfg = s.ServiceAccountConfig(cfg, s.RunsAs)
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(r *http.Request) (*http.Response, error) {
			s.Requests.mu.Lock()
			s.Requests.lines = append(s.Requests.lines, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
			s.Requests.mu.Unlock()
			return next.RoundTrip(r)
		})
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(ctx, cfg, s.Options()) }()
	s.Stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.Errorf("the controllers ended: %v", err)
		}
	})
	s.Cleanup(func() { s.Stop() })
}

// FreeAddress is one of this machine that nothing listens at, or comes to use before the test does: all of
// 127.0.0.0/8 is this machine.
func FreeAddress(t *testing.T) string {
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

func (s *System) Options() options.Options {
	o := options.Options{
		Controllers: options.AllControllers, StoragePath: s.Storage, StorageAddr: "127.0.0.1:0",
		RetentionTTL:   time.Minute,
		RetentionCount: 2, HelmLimits: helm.DefaultLimits,
		Backend: s.Backend, MetricsAddr: "0", HealthAddr: "0", RuntimeNamespace: s.Namespace, Concurrent: 4,
		KubeAPIQPS: 1000, KubeAPIBurst: 1000,
		Retry: reconcile.Retry{Min: 50 * time.Millisecond, Max: time.Second}, Resync: time.Hour,
		StrictSubstitutions: true, SOPSAgeSecret: "sops-age", ConfigsSelector: "reconcile.fluxcd.io/watch=Enabled",
		LogLevel: "error", LogEncoding: "console",
	}
	for _, c := range s.Configure {
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

func (s *System) GitRepository(name string, change ...func(*sourcev1.GitRepository)) {
	s.Helper()
	g := &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: sourcev1.GitRepositorySpec{
			URL: s.Git.URL + "/" + name, Interval: metav1.Duration{Duration: time.Hour},
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"},
		},
	}
	for _, c := range change {
		c(g)
	}
	s.Create(g)
}

func (s *System) Kustomization(name, source, path string, change ...func(*kustomizev1.Kustomization)) {
	s.Helper()
	k := &kustomizev1.Kustomization{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
		Spec: kustomizev1.KustomizationSpec{
			Interval: metav1.Duration{Duration: time.Hour}, Path: path, Prune: true, TargetNamespace: s.Namespace,
			SourceRef: kustomizev1.SourceReference{Kind: "GitRepository",
				NamespacedName: meta.NamespacedName{Name: source}},
			Timeout: &metav1.Duration{Duration: 2 * time.Minute},
		},
	}
	for _, c := range change {
		c(k)
	}
	s.Create(k)
}

func (s *System) Create(o client.Object) {
	s.Helper()
	if err := s.Client.Create(s.Context(), o); err != nil {
		s.Fatal(err)
	}
}

func (s *System) Get(o client.Object, name string) error {
	return s.Client.Get(s.Context(), types.NamespacedName{Namespace: s.Namespace, Name: name}, o)
}

// Update edits an object as it is, again when somebody else wrote it in the meantime.
func (s *System) Update(o client.Object, name string, edit func()) {
	s.Helper()
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := s.Get(o, name); err != nil {
			return err
		}
		edit()
		return s.Client.Update(s.Context(), o)
	}); err != nil {
		s.Fatal(err)
	}
}

// RequestFetch asks for a fetch, as a webhook would.
func (s *System) RequestFetch(name string) {
	s.Helper()
	s.RequestReconcile(&sourcev1.GitRepository{}, name)
}

func (s *System) RequestReconcile(o client.Object, name string) {
	s.Helper()
	o.SetNamespace(s.Namespace)
	o.SetName(name)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation, time.Now().
		Format(time.RFC3339Nano))
	if err := s.Client.Patch(s.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		s.Fatal(err)
	}
}

// Ready waits until a Kustomization is Ready at a commit.
func (s *System) Ready(name, commit string) *kustomizev1.Kustomization {
	s.Helper()
	k := &kustomizev1.Kustomization{}
	testenv.Eventually(s, name+" is Ready", func() error {
		if err := s.Get(k, name); err != nil {
			return err
		}
		if !reconcile.IsReady(k) || !strings.HasSuffix(k.Status.LastAppliedRevision, commit) {
			return fmt.Errorf("%s %+v", k.Status.LastAppliedRevision, k.Status.Conditions)
		}
		return nil
	})
	return k
}

// NotReady waits until an object is not Ready for a reason, in words.
func (s *System) NotReady(o reconcile.Object, name, reason, says string) {
	s.Helper()
	testenv.Eventually(s, name+" fails with "+reason, func() error {
		if err := s.Get(o, name); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(o.CommonStatus().Conditions, "Ready")
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason || !strings.Contains(c.Message, says) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
}

func (s *System) ConfigMapHas(name, value string) {
	s.Helper()
	testenv.Eventually(s, "ConfigMap "+name+" holds "+value, func() error {
		cm := &corev1.ConfigMap{}
		if err := s.Get(cm, name); err != nil {
			return err
		}
		if cm.Data["k"] != value {
			return fmt.Errorf("it holds %q", cm.Data["k"])
		}
		return nil
	})
}

// GrantAll lets a service account do everything in the namespace.
func (s *System) GrantAll(account string) {
	s.Helper()
	s.Create(&rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	})
	s.Create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: account},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: s.Namespace}},
	})
}

func (s *System) Gone(o client.Object, name string) {
	s.Helper()
	testenv.Eventually(s, name+" is gone", func() error {
		err := s.Get(o, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("still there"))
	})
}

func ConfigMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {k: %q}\n", name, value)
}
