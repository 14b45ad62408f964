package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/source"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/s3server"
)

// charts is a Helm repository with one chart.
type charts struct {
	mu    sync.Mutex
	files map[string][]byte
}

func (c *charts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(b) // the client may have closed the connection
}

func (c *charts) publish(t *testing.T, version string) {
	t.Helper()
	data := archive(t, "web/Chart.yaml", "apiVersion: v2\nname: web\nversion: "+version+"\n")
	sum := sha256.Sum256(data)
	index := fmt.Sprintf("apiVersion: v1\nentries:\n  web:\n  - {apiVersion: v2, name: web, version: %s, digest: "+
		"%s, urls: [web-%s.tgz]}\n", version, hex.EncodeToString(sum[:]), version)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files = map[string][]byte{"/index.yaml": []byte(index), "/web-" + version + ".tgz": data}
}

func archive(t *testing.T, name, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg})
	_, writeErr := io.WriteString(w, content)
	if err := errors.Join(err, writeErr, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The test interrupts the network of each kind of source. The artifact must be served, the condition must report the
// failure, and changes must be fetched when the network is back.
func TestSourcesDuringNetworkOutage(t *testing.T) {
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, namespace := testenv.Kubeconfig(t), testenv.Namespace(t)
	if out, err := exec.Command(sluice, "install", "--crds-only", "--kubeconfig", kubeconfig).
		CombinedOutput(); err != nil {
		t.Fatalf("install: %v\n%s", err, out)
	}
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	git, registry, s3, helm := testenv.NewGit(t), ociregistry.New(t), s3server.New(t), &charts{}
	web := httptest.NewServer(helm)
	t.Cleanup(web.Close)
	publish := func(n string) {
		git.Commit("app", map[string]string{"a.txt": n})
		registry.Push("app", "latest", nil, static.NewLayer(archive(t, "a.txt", n), types.OCILayer))
		s3.Put("app", map[string]string{"a.txt": n})
		helm.publish(t, n+".0.0")
	}
	s3.MakeBucket("app")
	publish("1")
	proxies := map[string]*testenv.Proxy{}
	for name, url := range map[string]string{"git": git.URL, "registry": registry.URL, "s3": s3.URL, "helm": web.URL} {
		_, host, _ := strings.Cut(url, "://")
		proxies[name] = testenv.NewProxy(t, host)
	}

	sources := sourcesBehind(namespace, proxies)
	createSources(t, namespace, sources, c)
	process := controller(t, sluice, kubeconfig, namespace, t.TempDir())
	t.Cleanup(func() {
		_ = process.Process.Signal(syscall.SIGTERM) // it may have stopped already
		_ = process.Wait()
	})

	first := map[string]string{}
	for _, o := range sources {
		stored(t, c, o, "")
		first[kindOf(o)] = o.GetArtifact().Digest
	}
	interrupt(t, proxies, sources, c, first)

	publish("2")
	for _, l := range proxies {
		l.Interrupt(false)
	}
	for _, o := range sources {
		stored(t, c, o, first[kindOf(o)])
		served(t, o, o.GetArtifact().Digest)
	}
}

// sourcesBehind returns one source of each kind that fetches, behind its proxy.
func sourcesBehind(namespace string, proxies map[string]*testenv.Proxy) []source.Object {
	object := metav1.ObjectMeta{Namespace: namespace, Name: "app"}
	second := meta.Duration{Duration: time.Second}
	sources := []source.Object{
		&sourcev1.GitRepository{ObjectMeta: object, Spec: sourcev1.GitRepositorySpec{
			URL: "http://" + proxies["git"].Address() + "/app", Interval: second,
			Reference: &sourcev1.GitRepositoryRef{Branch: "main"}}},
		&sourcev1.OCIRepository{ObjectMeta: object, Spec: sourcev1.OCIRepositorySpec{
			URL: "oci://" + proxies["registry"].Address() + "/app", Interval: second, Insecure: true}},
		&sourcev1.HelmRepository{ObjectMeta: object, Spec: sourcev1.HelmRepositorySpec{
			URL: "http://" + proxies["helm"].Address(), Interval: second}},
		&sourcev1.Bucket{ObjectMeta: object, Spec: sourcev1.BucketSpec{
			BucketName: "app", Endpoint: proxies["s3"].Address(), Insecure: true, Interval: second,
			SecretRef: &meta.LocalObjectReference{Name: "s3"}}},
		&sourcev1.HelmChart{ObjectMeta: object, Spec: sourcev1.HelmChartSpec{
			Chart: "web", Interval: second, SourceRef: sourcev1.LocalHelmChartSourceReference{Kind: "HelmRepository",
				Name: "app"}}},
	}
	return sources
}

// createSources creates the sources, and the Secret that one of them needs.
func createSources(t *testing.T, namespace string, sources []source.Object, c client.Client) {
	t.Helper()
	objects := []client.Object{&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "s3"},
		StringData: map[string]string{"accesskey": s3server.AccessKey, "secretkey": s3server.SecretKey},
	}}
	for _, o := range sources {
		objects = append(objects, o)
	}
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// interrupt makes sure that artifacts stay available while the proxies forward nothing.
func interrupt(t *testing.T, proxies map[string]*testenv.Proxy, sources []source.Object,
	c client.Client, first map[string]string) {
	t.Helper()
	for _, l := range proxies {
		l.Interrupt(true)
	}
	for _, o := range sources[:4] { // the chart needs no network while the index of its repository is unchanged
		testenv.Eventually(t, kindOf(o)+" reports the failed fetch", func() error {
			if err := c.Get(context.Background(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			conditions := o.CommonStatus().Conditions
			if !apimeta.IsStatusConditionTrue(conditions, sourcev1.FetchFailedCondition) ||
				!apimeta.IsStatusConditionFalse(conditions, reconcile.TypeReady) {
				return fmt.Errorf("%+v", conditions)
			}
			return nil
		})
	}
	for _, o := range sources {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		served(t, o, first[kindOf(o)])
	}
}

func kindOf(o source.Object) string { return strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.") }

// stored waits until a source is Ready with an artifact of another digest than former.
func stored(t *testing.T, c client.Client, o source.Object, former string) {
	t.Helper()
	testenv.Eventually(t, kindOf(o)+" has a new artifact", func() error {
		if err := c.Get(context.Background(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if !reconcile.IsReady(o) || o.GetArtifact() == nil || o.GetArtifact().Digest == former {
			return fmt.Errorf("%+v", o.CommonStatus().Conditions)
		}
		return nil
	})
}

// served checks that the artifact has the digest, and that the server returns it completely.
func served(t *testing.T, o source.Object, digest string) {
	t.Helper()
	a := o.GetArtifact()
	if a == nil || a.Digest != digest {
		t.Fatalf("%s has another artifact: %+v", kindOf(o), a)
	}
	resp, err := http.Get(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	h := sha256.New()
	if _, err := io.Copy(h, resp.Body); err != nil || "sha256:"+hex.EncodeToString(h.Sum(nil)) != digest {
		t.Errorf("%s: wrong response from %s: status %d, %v", kindOf(o), a.URL, resp.StatusCode, err)
	}
}
