package manager

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1beta1 "github.com/sluice-gitops/sluice/api/extensions/v1beta1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// generate creates a generator that reads GitRepositories, by alias as by name.
func (s *system) generate(name, pathPattern string, sources []string,
	outputs ...extensionsv1beta1.OutputArtifact) *extensionsv1beta1.ArtifactGenerator {
	s.Helper()
	g := &extensionsv1beta1.ArtifactGenerator{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: extensionsv1beta1.ArtifactGeneratorSpec{
			PathPattern: pathPattern, Artifacts: outputs,
			CommonMetadata: &extensionsv1beta1.CommonMetadata{Labels: map[string]string{"team": "x"},
				Annotations: map[string]string{"note": "y"}},
		},
	}
	for _, source := range sources {
		g.Spec.Sources = append(g.Spec.Sources,
			extensionsv1beta1.SourceReference{Alias: source, Kind: sourcev1.GitRepositoryKind, Name: source})
	}
	s.create(g)
	return g
}

func output(name, from string) extensionsv1beta1.OutputArtifact {
	alias, _, _ := strings.Cut(from, "/")
	return extensionsv1beta1.OutputArtifact{Name: name, OriginRevision: alias,
		Copy: []extensionsv1beta1.CopyOperation{{From: from, To: "@artifact/"}}}
}

// generated waits until a generator is Ready with these outputs, and returns them.
func (s *system) generated(name string, outputs ...string) map[string]*sourcev1.ExternalArtifact {
	s.Helper()
	made := map[string]*sourcev1.ExternalArtifact{}
	testenv.Eventually(s, name+" has generated", func() error {
		clear(made)
		var g extensionsv1beta1.ArtifactGenerator
		var list sourcev1.ExternalArtifactList
		if err := errors.Join(s.get(&g, name),
			s.client.List(s.Context(), &list, client.InNamespace(s.namespace))); err != nil {
			return err
		}
		for i, o := range list.Items {
			if o.Labels[extensionsv1beta1.GeneratorLabel] == string(g.UID) && o.Status.Artifact != nil {
				made[o.Name] = &list.Items[i]
			}
		}
		var inventory []string
		for _, e := range g.Status.Inventory {
			inventory = append(inventory, e.Name)
		}
		if got := slices.Sorted(maps.Keys(made)); !reconcile.IsReady(&g) || !slices.Equal(got, outputs) ||
			!slices.Equal(inventory, outputs) {
			return fmt.Errorf("artifacts %q, inventory %q, %+v", got, inventory, g.Status.Conditions)
		}
		return nil
	})
	return made
}

func (s *system) syncExternal(name string) {
	s.Helper()
	s.sync(name, name, "", func(k *kustomizev1.Kustomization) {
		k.Spec.SourceRef.Kind = sourcev1.ExternalArtifactKind
	})
}

// moved waits until a generator has seen other sources than before.
func (s *system) moved(name string, change func()) {
	s.Helper()
	var before, after extensionsv1beta1.ArtifactGenerator
	if err := s.get(&before, name); err != nil {
		s.Fatal(err)
	}
	change()
	testenv.Eventually(s, name+" has seen the change", func() error {
		if err := s.get(&after, name); err != nil {
			return err
		}
		if after.Status.ObservedSourcesDigest == before.Status.ObservedSourcesDigest || !reconcile.IsReady(&after) {
			return fmt.Errorf("%+v", after.Status)
		}
		return nil
	})
}

func TestAMonorepoIsSplit(t *testing.T) {
	s := newSystem(t)
	first := s.git.Commit("mono", map[string]string{"apps/front/a.yaml": cm("front", "1"),
		"apps/back/a.yaml": cm("back", "1"), "README.md": "x"})
	s.source("mono")
	s.generate("split", "", []string{"mono"}, output("back", "@mono/apps/back/**"),
		output("front", "@mono/apps/front/**"))
	made := s.generated("split", "back", "front")
	front := made["front"]
	if a := front.Status.Artifact; a.Revision != "latest@"+a.Digest ||
		!strings.HasSuffix(a.Metadata["org.opencontainers.image.revision"], first) {
		t.Errorf("artifact %+v", a)
	}
	if !reconcile.IsReady(front) || front.Labels["team"] != "x" || front.Annotations["note"] != "y" ||
		front.Spec.SourceRef.Name != "split" || !metav1.IsControlledBy(front,
		&extensionsv1beta1.ArtifactGenerator{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(front.Labels[extensionsv1beta1.GeneratorLabel])}}) {
		t.Errorf("object %+v", front)
	}
	s.syncExternal("front")
	s.syncExternal("back")
	for name, o := range made {
		s.ready(name, o.Status.Artifact.Digest)
		s.configMap(name, "1")
	}

	t.Log("a commit to one part moves that part's artifact alone")
	s.requests.reset()
	s.moved("split", func() {
		s.git.Commit("mono", map[string]string{"apps/back/a.yaml": cm("back", "2")})
		s.pull("mono")
	})
	s.configMap("back", "2")
	after := s.generated("split", "back", "front")
	if after["front"].ResourceVersion != front.ResourceVersion {
		t.Errorf("the part that did not change was written: %+v", after["front"].Status)
	}
	if after["back"].Status.Artifact.Revision == made["back"].Status.Artifact.Revision {
		t.Error("the part that changed has its revision still")
	}
	if r := s.requests.about("/kustomizations/front/status"); len(r) > 0 {
		t.Errorf("the consumer of the other part was written: %v", r)
	}

	t.Log("a commit beside both moves neither")
	s.moved("split", func() {
		s.git.Commit("mono", map[string]string{"README.md": "y"})
		s.pull("mono")
	})
	for name, o := range s.generated("split", "back", "front") {
		if o.ResourceVersion != after[name].ResourceVersion {
			t.Errorf("%s was written", name)
		}
	}

	t.Log("an output that is deleted or changed by others is put back")
	if err := s.client.Delete(t.Context(), after["front"]); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "front is back", func() error {
		o := &sourcev1.ExternalArtifact{}
		if err := s.get(o, "front"); err != nil {
			return err
		}
		if o.UID == after["front"].UID || o.Status.Artifact == nil ||
			o.Status.Artifact.Digest != after["front"].Status.Artifact.Digest {
			return fmt.Errorf("%+v", o.Status)
		}
		return nil
	})

	t.Log("a restart changes nothing but the address")
	before := s.generated("split", "back", "front")
	s.stop()
	s.start()
	testenv.Eventually(t, "the new address is published", func() error {
		for name, o := range s.generated("split", "back", "front") {
			a, b := *o.Status.Artifact, *before[name].Status.Artifact
			if a.URL == b.URL {
				return errors.New("not yet")
			}
			if a.URL = b.URL; !reflect.DeepEqual(a, b) {
				t.Errorf("%s is %+v, before %+v", name, a, b)
			}
		}
		return nil
	})

	t.Log("an output that is no longer declared goes, and with the generator all")
	g := &extensionsv1beta1.ArtifactGenerator{}
	s.change(g, "split", func() { g.Spec.Artifacts = g.Spec.Artifacts[:1] })
	s.gone(&sourcev1.ExternalArtifact{}, "front")
	s.generated("split", "back")
	if err := s.client.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	s.gone(&extensionsv1beta1.ArtifactGenerator{}, "split")
	s.gone(&sourcev1.ExternalArtifact{}, "back")
	if left, err := filepath.Glob(filepath.Join(s.storage, "artifacts", "externalartifact", s.namespace,
		"*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestSourcesAreComposed(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("chart", map[string]string{"values.yaml": "image: {tag: v1, name: a}\n",
		"a.yaml": cm("composed", "1")})
	s.git.Commit("values", map[string]string{"prod.yaml": "image: {tag: v2}\n"})
	s.generate("compose", "", []string{"chart", "values"}, extensionsv1beta1.OutputArtifact{
		Name: "whole", Revision: "@chart",
		Copy: []extensionsv1beta1.CopyOperation{{From: "@chart/", To: "@artifact/"},
			{From: "@values/prod.yaml", To: "@artifact/values.yaml", Strategy: "Merge"}},
	})
	s.fails(&extensionsv1beta1.ArtifactGenerator{}, "compose", "SourceFetchFailed", "not found")
	s.source("chart")
	s.source("values")
	a := s.generated("compose", "whole")["whole"].Status.Artifact
	chart := &sourcev1.GitRepository{}
	if err := s.get(chart, "chart"); err != nil || a.Revision != chart.Status.Artifact.Revision {
		t.Errorf("revision %s, %v", a.Revision, err)
	}
	resp, err := http.Get(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	tree, err := artifact.ReadArchive(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := tree.ReadFile("values.yaml"); err != nil || string(b) != "image:\n  name: a\n  tag: v2\n" {
		t.Errorf("%q %v", b, err)
	}
}

func TestDirectoriesAreDiscovered(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("mono", map[string]string{"apps/auth/envs/dev/a.yaml": cm("auth-dev", "1"),
		"apps/pay/envs/dev/a.yaml": cm("pay-dev", "1")})
	s.source("mono")
	s.generate("apps", "@mono/apps/{app}/envs/{env}", []string{"mono"},
		output("{app}-{env}", "@mono/apps/{app}/envs/{env}/**"))
	made := s.generated("apps", "auth-dev", "pay-dev")
	if l := made["pay-dev"].Labels; l["app"] != "pay" || l["env"] != "dev" || l["team"] != "x" {
		t.Errorf("labels %v", l)
	}
	s.git.Commit("mono", map[string]string{"apps/auth/envs/prod/a.yaml": cm("auth-prod", "1"),
		"apps/pay/envs/dev/a.yaml": ""})
	s.pull("mono")
	s.generated("apps", "auth-dev", "auth-prod")
}

func TestGeneratorsThatCannotGoOnSayWhy(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("app", map[string]string{"deploy/a.yaml": cm("a", "1"), "x": "x"})
	s.source("app")
	g := &extensionsv1beta1.ArtifactGenerator{}

	s.generate("unknown", "", []string{"app"}, output("unknown", "@other/**"))
	s.fails(g, "unknown", "ValidationFailed", "no source has the alias 'other'")

	s.generate("missing", "", []string{"app"}, output("fine", "@app/deploy/**"), output("missing", "@app/none/**"))
	s.fails(g, "missing", "BuildFailed", "'none' is not in the source")
	if err := s.get(&sourcev1.ExternalArtifact{}, "fine"); err != nil {
		t.Errorf("one that fails holds up another: %v", err)
	}

	s.create(&sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "theirs"}})
	s.generate("thief", "", []string{"app"}, output("theirs", "@app/**"))
	s.fails(g, "thief", "ReconciliationFailed", "exists already")
	s.generate("second", "", []string{"app"}, output("fine", "@app/**"))
	s.fails(g, "second", "ReconciliationFailed", "exists already")

	loop := s.generate("loop", "", []string{"app"}, output("loop", "@app/**"))
	s.generated("loop", "loop")
	s.generate("next", "", []string{"app"}, output("next", "@app/**"))
	s.generated("next", "next")
	// in order: the second closes the circle, and is told so
	for _, of := range [][2]string{{"next", "loop"}, {"loop", "next"}} {
		s.change(loop, of[0], func() {
			loop.Spec.Sources[0].Kind,
				loop.Spec.Sources[0].Name = sourcev1.ExternalArtifactKind, of[1]
		})
	}
	s.fails(g, "loop", "ValidationFailed", "made of themselves")
}

func TestSuspendedGeneratorsAreLeftAlone(t *testing.T) {
	s := newSystem(t)
	s.git.Commit("app", map[string]string{"a.yaml": cm("a", "1")})
	s.source("app")
	g := s.generate("paused", "", []string{"app"}, output("paused", "@app/**"))
	before := s.generated("paused", "paused")["paused"]
	annotate := func(value string) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, extensionsv1beta1.ReconcileAnnotation, value)
		if err := s.client.Patch(t.Context(), g, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	annotate("Disabled")
	s.suspended(extensionsv1beta1.ArtifactGeneratorKind, "paused")
	commit := s.git.Commit("app", map[string]string{"a.yaml": cm("a", "2")})
	s.pull("app")
	testenv.Eventually(t, "the source has moved", func() error {
		app := &sourcev1.GitRepository{}
		if err := s.get(app, "app"); err != nil || !strings.HasSuffix(app.Status.Artifact.Revision, commit) {
			return errors.Join(err, errors.New("not yet"))
		}
		return nil
	})
	if now := s.generated("paused", "paused")["paused"]; now.ResourceVersion != before.ResourceVersion {
		t.Error("it was reconciled")
	}
	annotate("Enabled")
	testenv.Eventually(t, "it goes on", func() error {
		if now := s.generated("paused", "paused")["paused"]; now.Status.Artifact.Digest == before.Status.Artifact.Digest {
			return errors.New("not yet")
		}
		return nil
	})
}

// TestThirdPartiesPublishArtifacts serves an archive as another controller would, and has it applied.
func TestThirdPartiesPublishArtifacts(t *testing.T) {
	s := newSystem(t)
	var archives sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, ok := archives.Load(r.URL.Path); ok {
			_, _ = w.Write(b.([]byte)) // a client that is gone
		}
	}))
	t.Cleanup(server.Close)
	o := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "theirs"}}
	s.create(o)
	s.syncExternal("theirs")
	s.fails(&kustomizev1.Kustomization{}, "theirs", "ArtifactFailed", "has none yet")
	publish := func(name, value string, digest func([]byte) string) {
		t.Helper()
		b := archive(t, map[string]string{"a.yaml": cm("theirs", value)})
		archives.Store("/"+name, b)
		base := o.DeepCopy()
		o.Status.Artifact = &meta.Artifact{URL: server.URL + "/" + name, Path: name, Revision: value, Digest: digest(b),
			LastUpdateTime: metav1.Now()}
		if err := s.client.Status().Patch(t.Context(), o, client.MergeFrom(base)); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	publish("1", "one", sum)
	s.configMap("theirs", "one")
	publish("2", "two", sum)
	s.configMap("theirs", "two")
	publish("3", "three", func([]byte) string { return "sha256:" + strings.Repeat("0", 64) })
	s.fails(&kustomizev1.Kustomization{}, "theirs", "ArtifactFailed", "has the digest")
	s.configMap("theirs", "two")
}

// archive makes a .tar.gz by way of a store of its own.
func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	store, err := artifact.OpenStore(dir, "x", artifact.Retention{TTL: time.Minute, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, err := store.Put(t.Context(), artifact.Key{Kind: "X", Namespace: "x", Name: "x"}, artifact.FromMap(files),
		"v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, a.Path))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
