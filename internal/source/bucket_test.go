package source_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// bucketReady waits until the bucket is Ready with another revision than previous, and returns it.
func (s *harness) bucketReady(previous string) *sourcev1.Bucket {
	s.Helper()
	b := &sourcev1.Bucket{}
	testenv.Eventually(s, "the bucket is Ready", func() error {
		if err := s.Get(b, "apps"); err != nil {
			return err
		}
		if !reconcile.IsReady(b) || b.Status.Artifact == nil || b.Status.Artifact.Revision == previous {
			return fmt.Errorf("%+v", b.Status)
		}
		return nil
	})
	return b
}

// syncBucket creates a Kustomization of the bucket.
func (s *harness) syncBucket() {
	s.Helper()
	s.Kustomization("apps", "apps", "", func(k *kustomizev1.Kustomization) {
		k.Spec.SourceRef.Kind = sourcev1.BucketKind
	})
}

// since returns the number of objects fetched and listed since earlier stats.
func since(server *s3server.Server, before map[string]int64) (gets, lists int64) {
	now := server.Stats()
	return now["gets"] - before["gets"], now["lists"] - before["lists"]
}

func TestBucket(t *testing.T) {
	t.Parallel()
	s, server := newHarness(t), s3server.New(t)
	server.Put("apps", map[string]string{"a.yaml": system.ConfigMap("one", "1"), "b.yaml": system.ConfigMap("two", "1"),
		"c.md":   "x",
		"d.yaml": "not for the cluster"})
	ignore := "*.md\nd.yaml"
	s.Bucket(server, func(b *sourcev1.Bucket) { b.Spec.Ignore = &ignore })
	s.syncBucket()
	s.ConfigMapHas("one", "1")
	s.ConfigMapHas("two", "1")
	first := s.bucketReady("")
	if r := first.Status.Artifact.Revision; !strings.HasPrefix(r, "sha256:") || *first.Status.ObservedIgnore != ignore {
		t.Errorf("revision %s, ignore %q", r, *first.Status.ObservedIgnore)
	}
	if c := apimeta.FindStatusCondition(first.Status.Conditions, sourcev1.ArtifactInStorageCondition); c == nil ||
		c.Status != metav1.ConditionTrue {
		t.Errorf("%+v", first.Status.Conditions)
	}

	before := server.Stats()
	s.Reconcile(&sourcev1.Bucket{}, "apps")
	if gets, lists := since(server, before); gets != 0 || lists != 1 {
		t.Errorf("an unchanged bucket caused %d gets and %d lists", gets, lists)
	}

	before = server.Stats()
	server.Put("apps", map[string]string{"b.yaml": system.ConfigMap("two", "2")})
	s.Reconcile(&sourcev1.Bucket{}, "apps")
	s.ConfigMapHas("two", "2")
	if gets, lists := since(server, before); gets != 1 || lists != 1 {
		t.Errorf("one changed object caused %d gets and %d lists", gets, lists)
	}
	second := s.bucketReady(first.Status.Artifact.Revision)

	t.Log("after a restart nothing is fetched, even without the cache of objects")
	s.Stop()
	if err := os.RemoveAll(filepath.Join(s.Storage, "buckets")); err != nil {
		t.Fatal(err)
	}
	before = server.Stats()
	s.Start()
	s.Reconcile(&sourcev1.Bucket{}, "apps")
	if gets, _ := since(server, before); gets != 0 {
		t.Errorf("%d objects were fetched after a restart", gets)
	}
	if now := s.bucketReady(""); now.Status.Artifact.Digest != second.Status.Artifact.Digest ||
		!now.Status.Artifact.LastUpdateTime.Equal(&second.Status.Artifact.LastUpdateTime) {
		t.Errorf("artifact after a restart: %+v, want %+v", now.Status.Artifact, second.Status.Artifact)
	}

	if err := s.Client.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	s.Gone(&sourcev1.Bucket{}, "apps")
	for _, dir := range []string{"buckets/*", "artifacts/bucket/*/*"} {
		if left, err := filepath.Glob(filepath.Join(s.Storage, dir)); err != nil || len(left) > 0 {
			t.Errorf("remaining files: %q, %v", left, err)
		}
	}
}

func TestBucketErrors(t *testing.T) {
	t.Parallel()
	server, tls := s3server.New(t), t.TempDir()
	server.Put("apps", map[string]string{"a.yaml": system.ConfigMap("one", "1")})
	secure := s3server.New(t, "--tls-dir", tls)
	for what, c := range map[string]struct {
		change          func(*sourcev1.Bucket)
		reason, message string
	}{
		"no such bucket": {change: func(b *sourcev1.Bucket) { b.Spec.BucketName = "none" },
			reason:  "BucketOperationFailed",
			message: "cannot list the bucket 'none': NoSuchBucket"},
		"no such Secret": {change: func(b *sourcev1.Bucket) { b.Spec.SecretRef.Name = "none" },
			reason:  "AuthenticationFailed",
			message: "not found"},
		"a Secret of others": {change: func(b *sourcev1.Bucket) { b.Spec.SecretRef.Name = "other" },
			reason:  "AuthenticationFailed",
			message: "'accesskey' and 'secretkey'"},
		"a wrong key": {change: func(b *sourcev1.Bucket) { b.Spec.SecretRef.Name = "wrong" },
			reason:  "AuthenticationFailed",
			message: "SignatureDoesNotMatch"},
		"an unknown authority": {change: func(b *sourcev1.Bucket) {
			b.Spec.Endpoint, b.Spec.Insecure = secure.Endpoint, false
		},
			reason: "BucketOperationFailed", message: "certificate"},
	} {
		t.Run(what, func(t *testing.T) {
			s := sharedHarness(t)
			s.Secret("other", map[string]string{"username": "x"})
			s.Secret("wrong", map[string]string{"accesskey": s3server.AccessKey, "secretkey": "s3cr3t-typo"})
			s.Bucket(server, c.change)
			b := &sourcev1.Bucket{}
			s.NotReady(b, "apps", c.reason, c.message)
			if text := fmt.Sprint(b.Status); strings.Contains(text, "s3cr3t") || b.Status.Artifact != nil {
				t.Errorf("status %s", text)
			}
			if f := apimeta.FindStatusCondition(b.Status.Conditions, sourcev1.FetchFailedCondition); f == nil ||
				f.Reason != c.reason {
				t.Errorf("%+v", b.Status.Conditions)
			}
		})
	}
}

func TestBucketOverTLS(t *testing.T) {
	t.Parallel()
	s, server := newHarness(t), s3server.New(t, "--tls-dir", t.TempDir())
	server.Put("apps", map[string]string{"a.yaml": system.ConfigMap("one", "1")})
	s.Secret("ca", map[string]string{"ca.crt": string(server.CA)})
	s.Bucket(server, func(b *sourcev1.Bucket) {
		b.Spec.Insecure, b.Spec.CertSecretRef = false, &meta.LocalObjectReference{Name: "ca"}
	})
	s.bucketReady("")
}

func TestBucketOutage(t *testing.T) {
	t.Parallel()
	s, root := newHarness(t), t.TempDir()
	address := testenv.FreeAddress(t)
	server := s3server.Serve(t, root, "--addr", address)
	server.Put("apps", map[string]string{"a.yaml": system.ConfigMap("one", "1")})
	s.Bucket(server)
	first := s.bucketReady("")
	server.Stop()
	s.RequestReconcile(&sourcev1.Bucket{}, "apps")
	b := &sourcev1.Bucket{}
	s.NotReady(b, "apps", "BucketOperationFailed", "refuse")
	if b.Status.Artifact == nil || b.Status.Artifact.Digest != first.Status.Artifact.Digest {
		t.Errorf("artifact: %+v", b.Status.Artifact)
	}
	resp, err := http.Get(b.Status.Artifact.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // only the status matters
	if resp.StatusCode != http.StatusOK {
		t.Errorf("status of the last artifact: %s", resp.Status)
	}
	elsewhere := s3server.Serve(t, root) // writes new objects before the server is back
	elsewhere.Put("apps", map[string]string{"a.yaml": system.ConfigMap("one", "2")})
	elsewhere.Stop()
	s3server.Serve(t, root, "--addr", address)
	s.bucketReady(first.Status.Artifact.Revision)
}

func TestBackendSavesFetchesAfterPodLoss(t *testing.T) {
	server := s3server.New(t)
	server.MakeBucket("artifacts")
	t.Setenv("AWS_ACCESS_KEY_ID", s3server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3server.SecretKey)
	s := newHarness(t)
	s.Stop()
	s.Backend = artifact.S3Options{Endpoint: server.URL, Bucket: "artifacts", Prefix: "test", Region: "us-east-1"}
	s.Start()

	apps := s3server.New(t)
	apps.Put("apps", map[string]string{"a.yaml": system.ConfigMap("one", "1"), "b.yaml": system.ConfigMap("two", "1")})
	s.Bucket(apps)
	first := s.bucketReady("")
	s.Stop()
	s.Storage = t.TempDir() // as on another node
	before := apps.Stats()
	s.Start()
	s.Reconcile(&sourcev1.Bucket{}, "apps")
	s.syncBucket()
	s.ConfigMapHas("one", "1")
	if now := s.bucketReady(""); now.Status.Artifact.Digest != first.Status.Artifact.Digest {
		t.Errorf("artifact: %+v, want %+v", now.Status.Artifact, first.Status.Artifact)
	}
	if gets, _ := since(apps, before); gets != 0 {
		t.Errorf("%d objects were fetched", gets)
	}
}
