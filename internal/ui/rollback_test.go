package ui

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
)

func TestRollbackAsksTheGate(t *testing.T) {
	s := newSite(t, everyone)
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Name: "release"}}
	s.create(g)
	ks := kustomization("app")
	s.create(ks)
	page := "/api/v1/objects/Kustomization/" + s.namespace + "/app"
	says := func(want string) {
		t.Helper()
		if status, answer := s.request(http.MethodGet, page, ""); status != http.StatusOK ||
			!strings.Contains(answer, want) {
			t.Errorf("the page lacks %q: %d %s", want, status, answer)
		}
	}
	refused := func(revision, want string, code int) {
		t.Helper()
		body := fmt.Sprintf(`{"reason":"errors","revision":%q}`, revision)
		if status, answer := s.request(http.MethodPost, page+"/rollback", body); status != code ||
			!strings.Contains(answer, want) {
			t.Errorf("got %d %s, want %d with %q", status, answer, code, want)
		}
	}
	says("no gate with spec.onFailure: Revert applies to it")
	refused("main@sha1:2", "no gate with spec.onFailure", http.StatusBadRequest)

	g.Spec.OnFailure = gatingv1.OnFailureRevert
	if err := s.client.Update(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	set := func(h meta.Held) {
		t.Helper()
		ks.Status.Held = h
		if err := s.client.Status().Update(t.Context(), ks); err != nil {
			t.Fatal(err)
		}
	}
	gates := []string{s.namespace + "/release"}
	admitted := &meta.Admitted{Revision: "main@sha1:2", Seal: "x"}
	set(meta.Held{Gates: gates, Admitted: admitted})
	says("no longer stored")
	set(meta.Held{Gates: gates, Admitted: admitted, Previous: &meta.Previous{Revision: "main@sha1:1", Generation: 99}})
	says("the spec was changed after revision 'main@sha1:1' was applied")
	set(meta.Held{Gates: gates, Admitted: admitted,
		Previous: &meta.Previous{Revision: "main@sha1:1", Generation: ks.Generation}})
	says(`"gate":"Gate/` + s.namespace + `/release"`)
	refused("main@sha1:3", "not what was shown", http.StatusConflict)
	if status, answer := s.request(http.MethodPost, page+"/rollback", `{"revision":"main@sha1:2"}`); status !=
		http.StatusBadRequest {
		t.Errorf("without a reason: %d %s", status, answer)
	}
	refused("main@sha1:2", `"done":"rollback"`, http.StatusOK)
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil {
		t.Fatal(err)
	}
	for suffix, want := range map[string]string{gatingv1.RevisionSuffix: "main@sha1:2", gatingv1.ReasonSuffix: "errors",
		gatingv1.ObjectSuffix: "Kustomization/" + s.namespace + "/app"} {
		if got := g.Annotations[gatingv1.RefusePrefix+suffix]; got != want {
			t.Errorf("%s is %q, want %q", suffix, got, want)
		}
	}
	set(meta.Held{Gates: gates, Admitted: admitted, Reverted: &meta.Reverted{From: "main@sha1:2", To: "main@sha1:1",
		Gate: gates[0], Reason: "x", Since: meta.TimeOf(time.Now())}})
	refused("main@sha1:2", "goes back once", http.StatusBadRequest)
}
