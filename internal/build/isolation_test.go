package build

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

func TestSchemaOfOneBuildDoesNotReachAnother(t *testing.T) {
	poison := artifact.FromMap(map[string]string{
		"kustomization.yaml": "resources: [d.yaml]\nopenapi: {path: schema.json}\n",
		"schema.json":        `{"definitions":{}}`, "d.yaml": cm("a"),
	})
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n" +
		"spec: {template: {spec: {containers: [{name: one, image: a}, {name: two, image: b}]}}}\n"
	victim := Request{Tree: artifact.FromMap(map[string]string{
		"kustomization.yaml": "resources: [d.yaml]\npatches: [{path: p.yaml}]\n", "d.yaml": deployment,
		"p.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n" +
			"spec: {template: {spec: {containers: [{name: two, image: patched}]}}}\n",
	})}
	if _, err := Build(t.Context(), Request{Tree: poison}); err != nil {
		t.Fatal(err)
	}
	result, err := Build(t.Context(), victim)
	if err != nil {
		t.Fatal(err)
	}
	b, err := result.Objects[0].MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"image":"a"`) || !strings.Contains(string(b), "patched") {
		t.Errorf("the list was replaced, not merged: %s", b)
	}
}

func TestConcurrentBuildsDoNotDisturbEachOther(t *testing.T) {
	// Half of the builds bring a schema of their own, some in a base, the other half depend on the one that
	// is built in.
	own := artifact.FromMap(map[string]string{
		"own/kustomization.yaml": "resources: [d.yaml]\nopenapi: {path: schema.json}\n",
		"own/schema.json":        `{"definitions":{}}`, "own/d.yaml": cm("a"),
		"over/kustomization.yaml": "resources: [../own]\n",
	})
	merged := artifact.FromMap(map[string]string{
		"kustomization.yaml": "resources: [d.yaml]\npatches: [{path: p.yaml}]\n", "d.yaml": deployment,
		"p.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n" +
			"spec: {template: {spec: {containers: [{name: two, image: patched}]}}}\n",
	})
	var wg sync.WaitGroup
	for _, path := range []string{"own", "over", "own", "over"} {
		wg.Go(func() {
			for range 5 {
				if _, err := Build(t.Context(), Request{Tree: own, Path: path}); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 5 {
				result, err := Build(t.Context(), Request{Tree: merged, TargetNamespace: "ns"})
				if err != nil {
					t.Error(err)
					return
				}
				if text := fmt.Sprint(result.Objects[0]); !strings.Contains(text, "nginx:1") ||
					!strings.Contains(text, "patched") {
					t.Errorf("the list was replaced, not merged: %s", text)
				}
			}
		})
	}
	wg.Wait()
}

// TestABuildEndsWithItsContext has a build that would take minutes after it has read its two files.
func TestABuildEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done, reads := make(chan error), make(chan struct{}, 100)
	bomb := artifact.FromMap(ofManyParts()["patches of a large object"])
	bomb = artifact.NewTree(bomb.Root(), observed{contentOf(bomb), func() { reads <- struct{}{} }})
	go func() {
		_, err := Build(ctx, Request{Tree: bomb})
		done <- err
	}()
	for range 2 {
		<-reads
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	tree := artifact.FromMap(map[string]string{"kustomization.yaml": listed, "a.yaml": cm("a")})
	if _, err := Build(ctx, Request{Tree: tree, NamePrefix: "x-"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := Build(t.Context(), Request{Tree: tree, NamePrefix: "x-"}); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// observed is content that calls a function when it is read.
type observed struct {
	artifact.Content
	read func()
}

func (c observed) Read(id string) ([]byte, error) {
	c.read()
	return c.Content.Read(id)
}

func TestABuildEndsWhileItReads(t *testing.T) {
	files := map[string]string{"kustomization.yaml": "resources: [a.yaml, b.yaml]\n", "a.yaml": cm("a"),
		"b.yaml": cm("b")}
	ctx, cancel := context.WithCancel(t.Context())
	tree := artifact.FromMap(files)
	tree = artifact.NewTree(tree.Root(), observed{contentOf(tree), cancel})
	if _, err := Build(ctx, Request{Tree: tree}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// contentOf returns the contents of a tree by ID.
func contentOf(tree *artifact.Tree) artifact.Content {
	c := byID{}
	_ = tree.Walk(func(name string, e *artifact.Entry) error {
		b, err := tree.ReadFile(name)
		c[e.ID] = b
		return err
	})
	return c
}

type byID map[string][]byte

func (c byID) Size(id string) (int64, error)  { return int64(len(c[id])), nil }
func (c byID) Read(id string) ([]byte, error) { return c[id], nil }

func TestABuildThatGrowsWithoutEndIsEnded(t *testing.T) {
	// Each base lists the one below it twice, so the last one would have 2^40 objects.
	files := map[string]string{"0/kustomization.yaml": "resources: [a.yaml]\n", "0/a.yaml": cm("a")}
	for i := 1; i <= 40; i++ {
		for _, side := range []string{"l", "r"} {
			files[fmt.Sprintf("%d/%s/kustomization.yaml", i,
				side)] = fmt.Sprintf("namePrefix: %s\nresources: [../../%d]\n", side, i-1)
		}
		files[fmt.Sprintf("%d/kustomization.yaml", i)] = "resources: [l, r]\n"
	}
	_, err := buildIn(t.Context(), bounded(t), files, "40")
	if err == nil || !strings.Contains(err.Error(), "bases") || !strings.Contains(err.Error(), "more than") &&
		!strings.Contains(err.Error(), "did not finish within") {
		t.Errorf("got %v", err)
	}
}
