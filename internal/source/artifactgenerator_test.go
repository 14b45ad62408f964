package source_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
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
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

// generate creates a generator that reads GitRepositories. Their aliases are their names.
func (s *harness) generate(name, pathPattern string, sources []string,
	outputs ...extensionsv1beta1.OutputArtifact) *extensionsv1beta1.ArtifactGenerator {
	s.Helper()
	g := &extensionsv1beta1.ArtifactGenerator{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name},
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
	s.Create(g)
	return g
}

// generated waits until a generator is Ready with exactly these outputs, and returns them.
func (s *harness) generated(name string, outputs ...string) map[string]*sourcev1.ExternalArtifact {
	s.Helper()
	made := map[string]*sourcev1.ExternalArtifact{}
	testenv.Eventually(s, name+" is Ready with its outputs", func() error {
		clear(made)
		var g extensionsv1beta1.ArtifactGenerator
		var list sourcev1.ExternalArtifactList
		if err := errors.Join(s.Get(&g, name),
			s.Client.List(s.Context(), &list, client.InNamespace(s.Namespace))); err != nil {
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

// syncExternal creates a Kustomization of the ExternalArtifact of the same name.
func (s *harness) syncExternal(name string) {
	s.Helper()
	s.Kustomization(name, name, "", func(k *kustomizev1.Kustomization) {
		k.Spec.SourceRef.Kind = sourcev1.ExternalArtifactKind
	})
}

// moved calls change and waits until a generator has observed its new sources.
func (s *harness) moved(name string, change func()) {
	s.Helper()
	var before, after extensionsv1beta1.ArtifactGenerator
	if err := s.Get(&before, name); err != nil {
		s.Fatal(err)
	}
	change()
	testenv.Eventually(s, name+" has observed the change", func() error {
		if err := s.Get(&after, name); err != nil {
			return err
		}
		if after.Status.ObservedSourcesDigest == before.Status.ObservedSourcesDigest || !reconcile.IsReady(&after) {
			return fmt.Errorf("%+v", after.Status)
		}
		return nil
	})
}

func TestGeneratorSplitsMonorepo(t *testing.T) {
	t.Parallel()
	s := newHarness(t)
	first := s.Git.Commit("mono", map[string]string{"apps/front/a.yaml": system.ConfigMap("front", "1"),
		"apps/back/a.yaml": system.ConfigMap("back", "1"), "README.md": "x"})
	s.GitRepository("mono")
	s.generate("split", "", []string{"mono"}, system.ArtifactOutput("back", "@mono/apps/back/**"),
		system.ArtifactOutput("front", "@mono/apps/front/**"))
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
		s.Ready(name, o.Status.Artifact.Digest)
		s.ConfigMapHas(name, "1")
	}

	after := changeParts(t, s, front, made)

	t.Log("an output that others deleted or changed is restored")
	if err := s.Client.Delete(t.Context(), after["front"]); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "output front is restored", func() error {
		o := &sourcev1.ExternalArtifact{}
		if err := s.Get(o, "front"); err != nil {
			return err
		}
		if o.UID == after["front"].UID || o.Status.Artifact == nil ||
			o.Status.Artifact.Digest != after["front"].Status.Artifact.Digest {
			return fmt.Errorf("%+v", o.Status)
		}
		return nil
	})

	restartGenerator(t, s)

	deleteOutputs(t, s)
}

// changeParts commits to one part and then outside of both, and returns the objects after the first commit.
func changeParts(t *testing.T, s *harness, front *sourcev1.ExternalArtifact,
	made map[string]*sourcev1.ExternalArtifact) map[string]*sourcev1.ExternalArtifact {
	t.Helper()
	t.Log("a commit to one part changes only the artifact of that part")
	s.Requests.Reset()
	s.moved("split", func() {
		s.Git.Commit("mono", map[string]string{"apps/back/a.yaml": system.ConfigMap("back", "2")})
		s.RequestFetch("mono")
	})
	s.ConfigMapHas("back", "2")
	after := s.generated("split", "back", "front")
	if after["front"].ResourceVersion != front.ResourceVersion {
		t.Errorf("the artifact of the unchanged part was written: %+v", after["front"].Status)
	}
	if after["back"].Status.Artifact.Revision == made["back"].Status.Artifact.Revision {
		t.Error("the artifact of the changed part has its previous revision")
	}
	if r := s.Requests.Matching("/kustomizations/front/status"); len(r) > 0 {
		t.Errorf("the Kustomization of the unchanged part was written: %v", r)
	}

	t.Log("a commit outside both parts changes neither")
	s.moved("split", func() {
		s.Git.Commit("mono", map[string]string{"README.md": "y"})
		s.RequestFetch("mono")
	})
	for name, o := range s.generated("split", "back", "front") {
		if o.ResourceVersion != after[name].ResourceVersion {
			t.Errorf("%s was written", name)
		}
	}
	return after
}

// restartGenerator makes sure that a restart changes only the address of artifacts.
func restartGenerator(t *testing.T, s *harness) {
	t.Helper()
	t.Log("a restart changes only the address")
	before := s.generated("split", "back", "front")
	s.Stop()
	s.Start()
	testenv.Eventually(t, "the new address is published", func() error {
		for name, o := range s.generated("split", "back", "front") {
			a, b := *o.Status.Artifact, *before[name].Status.Artifact
			if a.URL == b.URL {
				return errors.New("not yet")
			}
			if a.URL = b.URL; !reflect.DeepEqual(a, b) {
				t.Errorf("artifact of %s: %+v, before: %+v", name, a, b)
			}
		}
		return nil
	})
}

// deleteOutputs removes an output, then the generator.
func deleteOutputs(t *testing.T, s *harness) {
	t.Helper()
	t.Log("an output that is no longer declared is deleted; all outputs are deleted with the generator")
	g := &extensionsv1beta1.ArtifactGenerator{}
	s.Update(g, "split", func() { g.Spec.Artifacts = g.Spec.Artifacts[:1] })
	s.Gone(&sourcev1.ExternalArtifact{}, "front")
	s.generated("split", "back")
	if err := s.Client.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	s.Gone(&extensionsv1beta1.ArtifactGenerator{}, "split")
	s.Gone(&sourcev1.ExternalArtifact{}, "back")
	if left, err := filepath.Glob(filepath.Join(s.Storage, "artifacts", "externalartifact", s.Namespace,
		"*")); err != nil || len(left) > 0 {
		t.Errorf("remaining artifacts: %v %v", left, err)
	}
}

func TestGeneratorComposesSources(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("chart", map[string]string{"values.yaml": "image: {tag: v1, name: a}\n",
		"a.yaml": system.ConfigMap("composed", "1")})
	s.Git.Commit("values", map[string]string{"prod.yaml": "image: {tag: v2}\n"})
	s.generate("compose", "", []string{"chart", "values"}, extensionsv1beta1.OutputArtifact{
		Name: "whole", Revision: "@chart",
		Copy: []extensionsv1beta1.CopyOperation{{From: "@chart/", To: "@artifact/"},
			{From: "@values/prod.yaml", To: "@artifact/values.yaml", Strategy: "Merge"}},
	})
	s.NotReady(&extensionsv1beta1.ArtifactGenerator{}, "compose", "SourceFetchFailed", "not found")
	s.GitRepository("chart")
	s.GitRepository("values")
	a := s.generated("compose", "whole")["whole"].Status.Artifact
	chart := &sourcev1.GitRepository{}
	if err := s.Get(chart, "chart"); err != nil || a.Revision != chart.Status.Artifact.Revision {
		t.Errorf("revision %s, %v", a.Revision, err)
	}
	resp, err := http.Get(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	tree, err := artifact.ReadArchive(context.Background(), resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := tree.ReadFile("values.yaml"); err != nil || string(b) != "image:\n  name: a\n  tag: v2\n" {
		t.Errorf("%q %v", b, err)
	}
}

func TestGeneratorDiscoversDirectories(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("mono", map[string]string{"apps/auth/envs/dev/a.yaml": system.ConfigMap("auth-dev", "1"),
		"apps/pay/envs/dev/a.yaml": system.ConfigMap("pay-dev", "1")})
	s.GitRepository("mono")
	s.generate("apps", "@mono/apps/{app}/envs/{env}", []string{"mono"},
		system.ArtifactOutput("{app}-{env}", "@mono/apps/{app}/envs/{env}/**"))
	made := s.generated("apps", "auth-dev", "pay-dev")
	if l := made["pay-dev"].Labels; l["app"] != "pay" || l["env"] != "dev" || l["team"] != "x" {
		t.Errorf("labels %v", l)
	}
	s.Git.Commit("mono", map[string]string{"apps/auth/envs/prod/a.yaml": system.ConfigMap("auth-prod", "1"),
		"apps/pay/envs/dev/a.yaml": ""})
	s.RequestFetch("mono")
	s.generated("apps", "auth-dev", "auth-prod")
}

func TestFailingGenerators(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("app", map[string]string{"deploy/a.yaml": system.ConfigMap("a", "1"), "x": "x"})
	s.GitRepository("app")
	g := &extensionsv1beta1.ArtifactGenerator{}

	s.generate("unknown", "", []string{"app"}, system.ArtifactOutput("unknown", "@other/**"))
	s.NotReady(g, "unknown", "ValidationFailed", "no source has the alias 'other'")

	s.generate("missing", "", []string{"app"}, system.ArtifactOutput("fine", "@app/deploy/**"),
		system.ArtifactOutput("missing", "@app/none/**"))
	s.NotReady(g, "missing", "BuildFailed", "'none' does not exist in the source")
	if err := s.Get(&sourcev1.ExternalArtifact{}, "fine"); err != nil {
		t.Errorf("a failing generator blocks another one: %v", err)
	}

	s.Create(&sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "theirs"}})
	s.generate("thief", "", []string{"app"}, system.ArtifactOutput("theirs", "@app/**"))
	s.NotReady(g, "thief", "ReconciliationFailed",
		"belongs to another owner. Delete it, or choose another name in spec.artifacts")
	s.generate("second", "", []string{"app"}, system.ArtifactOutput("fine", "@app/**"))
	s.NotReady(g, "second", "ReconciliationFailed", "already exists")

	loop := s.generate("loop", "", []string{"app"}, system.ArtifactOutput("loop", "@app/**"))
	s.generated("loop", "loop")
	s.generate("next", "", []string{"app"}, system.ArtifactOutput("next", "@app/**"))
	s.generated("next", "next")
	// in order: the second one completes the cycle and reports it
	for _, of := range [][2]string{{"next", "loop"}, {"loop", "next"}} {
		s.Update(loop, of[0], func() {
			loop.Spec.Sources[0].Kind,
				loop.Spec.Sources[0].Name = sourcev1.ExternalArtifactKind, of[1]
		})
	}
	s.NotReady(g, "loop", "ValidationFailed", "Remove one of these from spec.sources")
}

func TestSuspendedGenerator(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "1")})
	s.GitRepository("app")
	g := s.generate("paused", "", []string{"app"}, system.ArtifactOutput("paused", "@app/**"))
	before := s.generated("paused", "paused")["paused"]
	annotate := func(value string) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, extensionsv1beta1.ReconcileAnnotation, value)
		if err := s.Client.Patch(t.Context(), g, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	annotate("Disabled")
	s.Suspended(extensionsv1beta1.ArtifactGeneratorKind, "paused")
	commit := s.Git.Commit("app", map[string]string{"a.yaml": system.ConfigMap("a", "2")})
	s.RequestFetch("app")
	testenv.Eventually(t, "the source has a new revision", func() error {
		app := &sourcev1.GitRepository{}
		if err := s.Get(app, "app"); err != nil || !strings.HasSuffix(app.Status.Artifact.Revision, commit) {
			return errors.Join(err, errors.New("not yet"))
		}
		return nil
	})
	if now := s.generated("paused", "paused")["paused"]; now.ResourceVersion != before.ResourceVersion {
		t.Error("the suspended generator was reconciled")
	}
	annotate("Enabled")
	testenv.Eventually(t, "the resumed generator is reconciled", func() error {
		now := s.generated("paused", "paused")["paused"]
		if now.Status.Artifact.Digest == before.Status.Artifact.Digest {
			return errors.New("not yet")
		}
		return nil
	})
}

// The test publishes an ExternalArtifact like a third-party controller.
func TestExternalArtifactOfThirdParty(t *testing.T) {
	t.Parallel()
	s := sharedHarness(t)
	var archives sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b, ok := archives.Load(r.URL.Path); ok {
			_, _ = w.Write(b.([]byte)) // the client may have closed the connection
		}
	}))
	t.Cleanup(server.Close)
	o := &sourcev1.ExternalArtifact{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "theirs"}}
	s.Create(o)
	s.syncExternal("theirs")
	s.NotReady(&kustomizev1.Kustomization{}, "theirs", "ArtifactFailed", "has no artifact yet")
	publish := func(name, value string, digest func([]byte) string) {
		t.Helper()
		b := system.Archive(t, map[string]string{"a.yaml": system.ConfigMap("theirs", value)})
		archives.Store("/"+name, b)
		base := o.DeepCopy()
		o.Status.Artifact = &meta.Artifact{URL: server.URL + "/" + name, Path: name, Revision: value, Digest: digest(b),
			LastUpdateTime: meta.TimeOf(time.Now())}
		if err := s.Client.Status().Patch(t.Context(), o, client.MergeFrom(base)); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }
	publish("1", "one", sum)
	s.ConfigMapHas("theirs", "one")
	publish("2", "two", sum)
	s.ConfigMapHas("theirs", "two")
	publish("3", "three", func([]byte) string { return "sha256:" + strings.Repeat("0", 64) })
	s.NotReady(&kustomizev1.Kustomization{}, "theirs", "ArtifactFailed", "has the digest")
	s.ConfigMapHas("theirs", "two")
}
