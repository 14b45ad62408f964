package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/offline/manifest"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
)

// resumed are the kinds that work from what was recorded. The others are suspended: their servers do not exist.
var resumed = []string{"Kustomization", "HelmRelease", "ImagePolicy", "ArtifactGenerator"}

// TestUpgradeFromRecordedState runs this build on the directory and the statuses that the release before wrote. Sources
// are suspended, so that only what is recorded can be applied.
func TestUpgradeFromRecordedState(t *testing.T) {
	definitions.Install(t, testenv.Cluster(t))
	c, err := client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	u := &upgrade{T: t, client: c, storage: t.TempDir()}
	recorded := filepath.Join(upgradeData, "recorded")
	if out, err := exec.Command("tar", "-xzf", filepath.Join(recorded, "storage.tar.gz"), "-C", u.storage).
		CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	content, err := os.ReadFile(filepath.Join(recorded, "objects.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifest.Decode(content)
	if err != nil {
		t.Fatal(err)
	}
	u.namespace()
	before := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		before[nameOf(o)] = o
		u.recreate(o)
		if slices.Contains(resumed, o.GetKind()) {
			u.objects = append(u.objects, o)
		}
	}
	binary, err := testenv.Binary("sluice")
	if err != nil {
		t.Fatal(err)
	}
	u.run(binary, func() {
		after := u.pass("the objects are ready with what the release before wrote")
		for _, o := range u.objects {
			u.sameState("with the recorded state", map[string]*unstructured.Unstructured{nameOf(o): before[nameOf(o)]},
				after)
		}
		u.applied("one")
		u.keptArtifacts(objects)
	})
}

// recreate creates an object with its status.
func (u *upgrade) recreate(recorded *unstructured.Unstructured) {
	u.Helper()
	o := recorded.DeepCopy()
	for _, field := range []string{"uid", "resourceVersion", "managedFields", "ownerReferences", "creationTimestamp",
		"generation"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	if !slices.Contains(append(slices.Clone(resumed), withoutStatus...), o.GetKind()) && o.GetKind() != "Gate" {
		if err := unstructured.SetNestedField(o.Object, true, "spec", "suspend"); err != nil {
			u.Fatal(err)
		}
	}
	status := o.Object["status"]
	if err := u.client.Create(u.Context(), o); err != nil {
		u.Fatalf("%s: %v", nameOf(o), err)
	}
	if status == nil {
		return
	}
	o.Object["status"] = status
	if err := u.client.Status().Update(u.Context(), o); err != nil {
		u.Fatalf("the status of %s that the release before wrote: %v", nameOf(o), err)
	}
}

// keptArtifacts checks that the directory still has the artifact of each source.
func (u *upgrade) keptArtifacts(objects []*unstructured.Unstructured) {
	u.Helper()
	found := 0
	for _, o := range objects {
		path, ok, err := unstructured.NestedString(o.Object, "status", "artifact", "path")
		if err != nil || !ok {
			continue
		}
		found++
		if _, err := os.Stat(filepath.Join(u.storage, "artifacts", path)); errors.Is(err, os.ErrNotExist) {
			u.Errorf("the artifact of %s was removed", nameOf(o))
		}
	}
	if found < 4 {
		u.Errorf("%d objects have an artifact", found)
	}
}
