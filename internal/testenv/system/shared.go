package system

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sluice-gitops/sluice/internal/manager"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// sharedLabel is on the objects that the shared controllers reconcile. Its value is their namespace, so that the
// packages of a cluster do not reconcile the objects of each other.
const sharedLabel = "test.sluice.dev/controllers"

// sharedControllers run until the test binary ends.
type sharedControllers struct {
	namespace string
	stop      func() error
}

var shared struct {
	sync.Mutex
	hasMain bool
	running *sharedControllers
}

// Main runs the tests of a package that call [Shared], and returns its exit code.
func Main(m *testing.M) int {
	shared.hasMain = true
	code := m.Run()
	if shared.running == nil {
		return code
	}
	if err := shared.running.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "the shared controllers:", err)
		return 1
	}
	return code
}

// Shared returns a namespace of the test for the controllers that all tests of the binary share. They watch all
// namespaces and reconcile the objects that [System.Create] creates; they have no options, and do not restart. Their
// requests are not recorded, as those of all tests mix. The package must call [Main].
func Shared(t *testing.T) *System {
	t.Helper()
	s := Prepare(t)
	s.Requests, s.Storage = nil, ""
	shared.Lock()
	defer shared.Unlock()
	if !shared.hasMain {
		t.Fatal("the package does not call system.Main")
	}
	if shared.running == nil {
		running, err := startShared(testenv.Cluster(t))
		if err != nil {
			t.Fatal(err)
		}
		shared.running = running
	}
	s.labels = map[string]string{sharedLabel: shared.running.namespace}
	return s
}

var (
	// ourKinds are the paths of all objects of a kind of ours, in all namespaces.
	ourKinds = regexp.MustCompile(`^/apis/[^/]*\bfluxcd\.(controlplane\.)?io/[^/]+/[^/]+$`)
	// unlabelled are the kinds whose objects tests, or controllers for them, create without the label.
	unlabelled = regexp.MustCompile(`/(externalartifacts|resourcesetinputproviders)$`)
)

// selecting returns a request for objects with a label, if there is one and the request is for all objects of a kind of
// ours. Controllers of all namespaces keep also the objects of other shards, and reconcile gates of all labels: those
// of the other tests and packages, whose metrics they would delete. What was asked for with another label, or as
// metadata, is what was applied.
func selecting(r *http.Request, label string) *http.Request {
	query := r.URL.Query()
	if label == "" || r.Method != http.MethodGet || !ourKinds.MatchString(r.URL.Path) ||
		unlabelled.MatchString(r.URL.Path) || query.Get("labelSelector") != "" ||
		strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		return r
	}
	r = r.Clone(r.Context())
	query.Set("labelSelector", label)
	r.URL.RawQuery = query.Encode()
	return r
}

func startShared(cfg *rest.Config) (*sharedControllers, error) {
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	namespaces := typed.CoreV1().Namespaces()
	ns, err := namespaces.Create(context.Background(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-controllers-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	storage, err := os.MkdirTemp("", "sluice-test-")
	if err != nil {
		return nil, err
	}
	s := &System{Namespace: ns.Name, Storage: storage}
	o := s.Options()
	o.WatchAllNamespaces, o.WatchLabelSelector = true, sharedLabel+"="+ns.Name
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(r *http.Request) (*http.Response, error) {
			return next.RoundTrip(selecting(r, o.WatchLabelSelector))
		})
	})
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- manager.Run(ctx, cfg, o) }()
	return &sharedControllers{namespace: ns.Name, stop: func() error {
		cancel()
		return errors.Join(<-result, os.RemoveAll(storage),
			namespaces.Delete(context.Background(), ns.Name, metav1.DeleteOptions{}))
	}}, nil
}
