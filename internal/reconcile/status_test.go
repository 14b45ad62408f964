package reconcile

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
)

func version(uid, v string) *kustomizev1.Kustomization {
	k := &kustomizev1.Kustomization{}
	k.Namespace, k.Name, k.UID, k.ResourceVersion = "apps", "web", types.UID(uid), v
	return k
}

// TestAPassReadsOurLastWrite also shows that what the informer's cache has is not kept a second time, whether the event
// or the response of a write comes first.
func TestAPassReadsOurLastWrite(t *testing.T) {
	w := newWriteCache[*kustomizev1.Kustomization]()
	events := w.follow()
	events.Create(event.CreateEvent{Object: version("a", "5")})
	w.store(version("a", "7"))
	if got := w.newest(version("a", "5")); got.ResourceVersion != "7" {
		t.Errorf("a pass reads version %s, want our write, 7", got.ResourceVersion)
	}
	events.Update(event.UpdateEvent{ObjectNew: version("a", "6")})
	if got := w.newest(version("a", "6")); got.ResourceVersion != "7" {
		t.Errorf("a pass reads version %s, want our write, 7", got.ResourceVersion)
	}
	events.Update(event.UpdateEvent{ObjectNew: version("a", "7")})
	if len(w.last) != 0 {
		t.Errorf("%d objects are kept although the cache has them", len(w.last))
	}
	events.Update(event.UpdateEvent{ObjectNew: version("a", "9")})
	w.store(version("a", "8")) // the response comes after the event
	if len(w.last) != 0 {
		t.Errorf("%d objects are kept although the cache has a newer version", len(w.last))
	}
	w.store(version("a", "12"))
	if got := w.newest(version("b", "10")); got.UID != "b" {
		t.Error("a pass reads what we wrote of a deleted object of the same name")
	}
	if passes := events.Delete(event.DeleteEvent{Object: version("a", "12")}); !passes {
		t.Error("a deletion calls for no pass")
	}
	if len(w.last)+len(w.cached) != 0 {
		t.Error("something is kept of a deleted object")
	}
}
