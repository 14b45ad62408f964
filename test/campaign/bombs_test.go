package campaign

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// bombs are sizes of the inputs of issue 13, finding 5, and of charts. The short form has smaller ones that are refused
// as well.
type bombs struct {
	unpacked int64 // bytes of the OCI layer that compresses well
	entries  int   // of the OCI layer with many files
	objects  int   // of the git pack
	values   int   // of the kustomize input
	answer   int64 // bytes of the answer of a cluster
	chart    int   // MiB that the templates of a chart keep until they are ended
	count    int   // of objects of each kind

	registry *ociregistry.Server
	layers   map[string][]byte
	pack     string // address
}

// TestCampaignBombs has a tenant with objects that need more memory than the process may use, many of a kind at once,
// and in the last iteration all kinds. The process must live, also after a kill, and the others go on.
func TestCampaignBombs(t *testing.T) {
	kinds := []string{"zeros", "entries", "pack", "tree", "large", "cluster", "chart", "all"}
	e := begin(t, len(kinds), len(kinds))
	b := bombs{unpacked: 600 << 20, entries: 450_000, objects: 2_500_000, values: 1_900_000,
		answer: 400 << 20, chart: 240, count: 3}
	if *isFull {
		b = bombs{unpacked: 1 << 30, entries: 499_000, objects: 5_000_000, values: 3_500_000,
			answer: 1200 << 20, chart: 240, count: 10}
	}
	git := testenv.NewGit(t)
	good := newTenant(t, git)
	good.commit("first")
	good.create(good.source("app"), good.app("app"))
	c := start(t, settings{namespace: "flux-system"})
	good.has(c, "first")
	hostile := newTenant(t, git)
	hostile.prepare(&b)
	e.each(func(i int, _ *rand.Rand) {
		c.peak = 0
		var objects []client.Object
		for j, kind := range kinds[:len(kinds)-1] {
			if i == j || i == len(kinds)-1 {
				objects = append(objects, hostile.bombs(kind, i, &b)...)
			}
		}
		hostile.create(objects...)
		for _, when := range []string{"beside", "after a kill, beside"} {
			testenv.Eventually(t, "the bombs are tried", func() error {
				c.mustLive()
				return hostile.tried()
			})
			value := fmt.Sprint(when, " ", kinds[i])
			good.commit(value)
			good.fetch()
			good.has(c, value)
			c.mustLive()
			c.stop(syscall.SIGKILL)
			c.launch()
			c.runs()
		}
		e.note("%s: %d MiB", kinds[i], c.peak)
		for _, o := range objects {
			if err := hostile.client.Delete(context.Background(), o); err != nil {
				t.Error(err)
			}
		}
	})
	c.mustLive()
	e.note("0 kills for memory")
}

// prepare starts the servers of the bombs.
func (n *tenant) prepare(b *bombs) {
	n.Helper()
	b.registry = ociregistry.New(n)
	zeros := func(w *tar.Writer) error {
		if err := w.WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Size: b.unpacked}); err != nil {
			return err
		}
		_, err := io.CopyN(w, zeroReader{}, b.unpacked)
		return err
	}
	entries := func(w *tar.Writer) (err error) {
		for i := 0; i < b.entries && err == nil; i++ {
			err = w.WriteHeader(&tar.Header{Name: fmt.Sprint("f", i), Mode: 0o644})
		}
		return err
	}
	b.layers = map[string][]byte{"zeros": layer(n.T, zeros), "entries": layer(n.T, entries)}
	b.pack = newPackServer(n.T, b.objects)
	cluster := newEndlessCluster(n.T, b.answer)
	n.git.Init(n.repo)
	n.treeBomb()
	large := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: large}\ndata: {}\nx: [" +
		strings.Repeat("1,", b.values) + "1]\n"
	n.git.Commit(n.repo+"-large",
		map[string]string{"kustomization.yaml": "resources: [large.yaml]\nnamePrefix: x-\n",
			"large.yaml": large})
	n.git.Commit(n.repo+"-app", map[string]string{"app.yaml": configMap("app", "1")})
	n.git.Commit(n.repo+"-chart", map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: greedy\nversion: 1.0.0\n",
		"templates/a.yaml": fmt.Sprintf(`{{ $x := list }}{{ range until %d }}`+
			`{{ $x = append $x (repeat 1048576 "y") }}{{ end }}`+
			`{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}{{ len $x }}`, b.chart)})
	n.create(n.source("chart", func(g *sourcev1.GitRepository) { g.Spec.URL += "-chart" }),
		n.source("large", func(g *sourcev1.GitRepository) { g.Spec.URL += "-large" }),
		n.source("app", func(g *sourcev1.GitRepository) { g.Spec.URL += "-app" }),
		&corev1.Secret{ObjectMeta: n.named("cluster"), StringData: map[string]string{"value": cluster}})
}

// bombs returns objects of a kind.
func (n *tenant) bombs(kind string, iteration int, b *bombs) (objects []client.Object) {
	n.Helper()
	for i := range b.count {
		name := fmt.Sprintf("%s-%d-%d", kind, iteration, i)
		switch kind {
		case "zeros", "entries":
			b.registry.Push(n.repo+"/"+name, "latest", nil, static.NewLayer(b.layers[kind], types.OCILayer))
			objects = append(objects, &sourcev1.OCIRepository{ObjectMeta: n.named(name),
				Spec: sourcev1.OCIRepositorySpec{
					URL: b.registry.OCI + "/" + n.repo + "/" + name, Interval: hour, Insecure: true}})
		case "pack":
			objects = append(objects, n.source(name,
				func(g *sourcev1.GitRepository) { g.Spec.URL = b.pack + "/" + name }))
		case "tree":
			objects = append(objects, n.source(name))
		case "large":
			objects = append(objects, n.app(name,
				func(k *kustomizev1.Kustomization) { k.Spec.SourceRef.Name = "large" }))
		case "chart":
			objects = append(objects, &helmv2.HelmRelease{ObjectMeta: n.named(name), Spec: helmv2.HelmReleaseSpec{
				Interval: hour, Chart: &helmv2.HelmChartTemplate{Spec: helmv2.HelmChartTemplateSpec{Chart: ".",
					SourceRef: &helmv2.SourceReference{Kind: sourcev1.GitRepositoryKind, Name: "chart"}}}}})
		case "cluster":
			objects = append(objects, n.app(name, func(k *kustomizev1.Kustomization) {
				k.Spec.KubeConfig = &meta.KubeConfigReference{SecretRef: &meta.SecretKeyReference{Name: "cluster"}}
			}))
		}
	}
	return objects
}

// tried returns an error unless all bombs have a status.
func (n *tenant) tried() error {
	var sources sourcev1.GitRepositoryList
	var layers sourcev1.OCIRepositoryList
	var apps kustomizev1.KustomizationList
	var releases helmv2.HelmReleaseList
	for _, list := range []client.ObjectList{&sources, &layers, &apps, &releases} {
		if err := n.client.List(context.Background(), list, client.InNamespace(n.namespace)); err != nil {
			return err
		}
	}
	for _, o := range sources.Items {
		if len(o.Status.Conditions) == 0 {
			return errors.New("GitRepository " + o.Name + " was not tried")
		}
	}
	for _, o := range layers.Items {
		if len(o.Status.Conditions) == 0 {
			return errors.New("OCIRepository " + o.Name + " was not tried")
		}
	}
	for _, o := range apps.Items {
		if len(o.Status.Conditions) == 0 {
			return errors.New("Kustomization " + o.Name + " was not tried")
		}
	}
	for _, o := range releases.Items {
		if len(o.Status.Conditions) == 0 {
			return errors.New("HelmRelease " + o.Name + " was not tried")
		}
	}
	return nil
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func layer(t *testing.T, write func(*tar.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := errors.Join(write(w), w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// treeBomb makes the branch main a tree of 10 directories that each hold 10, and so on: few bytes, 10^10 files.
func (n *tenant) treeBomb() {
	n.Helper()
	const levels, width = 10, 10
	kind, mode, below := "blob", "100644", n.git.Object(n.repo, "blob", "text")
	for range levels {
		raw, err := hex.DecodeString(below)
		if err != nil {
			n.Fatal(err)
		}
		var tree strings.Builder
		for i := range width {
			fmt.Fprintf(&tree, "%s %d\x00%s", mode, i, raw)
		}
		kind, mode, below = "tree", "40000", n.git.Object(n.repo, "tree", tree.String())
	}
	commit := n.git.Run(n.repo, "commit-tree", "-m", "a "+kind, below)
	n.git.SetRef(n.repo, "refs/heads/main", commit)
}

// newEndlessCluster returns the kubeconfig of an API server whose answers have a number of bytes.
func newEndlessCluster(t *testing.T, size int64) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w,
			`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[`)
		item := []byte(strings.Repeat(
			`{"name":"configmaps","namespaced":true,"kind":"ConfigMap","verbs":["get"]},`, 1000))
		for sent := int64(0); sent < size; sent += int64(len(item)) {
			if _, err := w.Write(item); err != nil || r.Context().Err() != nil {
				return
			}
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\n"+
		"clusters: [{name: x, cluster: {server: %q}}]\n"+
		"contexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {token: x}}]\n", server.URL)
}
