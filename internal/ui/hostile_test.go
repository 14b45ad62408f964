package ui

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/ui/state"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// TestHugeObjectIsBounded checks that a tenant cannot make a page larger by filling an object: with an annotation of 90
// KiB, 5,000 conditions, and messages as long as the API server accepts.
func TestHugeObjectIsBounded(t *testing.T) {
	s := newSite(t, everyone)
	ks := kustomization("huge")
	ks.Annotations = map[string]string{suspendedBy: strings.Repeat("<b>", 30<<10)}
	s.create(ks)
	for n := range 5000 {
		c := metav1.Condition{Type: fmt.Sprintf("Hostile%04d", n), Status: metav1.ConditionTrue, Reason: "Hostile",
			LastTransitionTime: metav1.Now()}
		if n < 3 {
			c.Message = strings.Repeat("m", 32<<10)
		}
		ks.Status.Conditions = append(ks.Status.Conditions, c)
	}
	if err := s.client.Status().Update(t.Context(), ks); err != nil {
		t.Fatal(err)
	}
	s.awaitItem("huge")
	path := "/api/v1/objects/Kustomization/" + s.namespace + "/huge"
	status, body := s.request(http.MethodGet, path, "")
	if status != http.StatusOK || len(body) > 2<<20 {
		t.Errorf("the page has %d bytes: %d", len(body), status)
	}
	d := read[detail](s, path)
	if len(d.Conditions) != maxConditions || len(d.Suspension) > 2*maxConditionRow || len(d.YAML) > 2*maxYAML {
		t.Errorf("%d conditions, %d bytes of suspension, %d of YAML", len(d.Conditions), len(d.Suspension), len(d.YAML))
	}
	status, body = s.request(http.MethodGet, "/api/v1/items?namespace="+s.namespace, "")
	if status != http.StatusOK || len(body) > 4<<10 {
		t.Errorf("the list has %d bytes for one object: %d", len(body), status)
	}
}

// TestTreeOfStrangeInventory checks that entries which no API server accepts, cycles and objects without end neither
// break the tree nor need memory without bound.
func TestTreeOfStrangeInventory(t *testing.T) {
	s := newSite(t, everyone)
	ks := kustomization("strange")
	s.create(ks)
	ids := []string{"", "_", "____", "a_b", "../.._x_apps_Deployment", "<b>_<img src=x>_<i>_<script>",
		s.namespace + "_x_kustomize.toolkit.fluxcd.io_Nonsense"}
	for _, name := range []string{"%2e%2e", "a/b", "strange", strings.Repeat("x", 10<<10)} {
		ids = append(ids, s.namespace+"_"+name+"_kustomize.toolkit.fluxcd.io_Kustomization")
	}
	ks.Status.Inventory = &meta.ResourceInventory{}
	for _, id := range ids {
		for _, version := range []string{"v1", "", "../v1"} {
			ks.Status.Inventory.Entries = append(ks.Status.Inventory.Entries,
				meta.ResourceRef{ID: id, Version: version})
		}
	}
	for n := range state.MaxEntries {
		ks.Status.Inventory.Entries = append(ks.Status.Inventory.Entries, meta.ResourceRef{
			ID: fmt.Sprintf("%s_app-%d_kustomize.toolkit.fluxcd.io_Kustomization", s.namespace, n), Version: "v1"})
	}
	if err := s.client.Status().Update(t.Context(), ks); err != nil {
		t.Fatal(err)
	}
	status, body := s.request(http.MethodGet, "/api/v1/objects/Kustomization/"+s.namespace+"/strange/tree", "")
	if status != http.StatusOK || strings.Count(body, `"kind"`) > state.MaxNodes || len(body) > 1<<20 {
		t.Fatalf("%d with %d nodes, %d bytes: %.2000s", status, strings.Count(body, `"kind"`), len(body), body)
	}
	answer := read[state.Tree](s, "/api/v1/objects/Kustomization/"+s.namespace+"/strange/tree")
	if answer.Total < state.MaxEntries || answer.Omitted != answer.Total-state.MaxNodes {
		t.Errorf("%d objects, %d omitted", answer.Total, answer.Omitted)
	}
}

// TestEventsOfAnObjectAreBounded checks that a tenant who writes many events cannot make a page large.
func TestEventsOfAnObjectAreBounded(t *testing.T) {
	s := newSite(t, everyone)
	s.create(kustomization("noisy"))
	for n := range maxEvents + 20 {
		s.create(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("noisy.%d", n)},
			InvolvedObject: corev1.ObjectReference{Kind: kustomizev1.KustomizationKind, Namespace: s.namespace,
				Name: "noisy"}, Type: "Normal", Reason: "Noise", Message: "<img src=x onerror=alert(1)>"})
	}
	d := read[detail](s, "/api/v1/objects/Kustomization/"+s.namespace+"/noisy")
	if len(d.Events) != maxEvents {
		t.Errorf("%d events", len(d.Events))
	}
}

// TestStreamsOfOneUserAreBounded opens 200 streams at once: those above the limit are refused, and another user has
// streams as before.
func TestStreamsOfOneUserAreBounded(t *testing.T) {
	s := newSite(t, everyone)
	const count = 200
	statuses := make(chan int, count)
	for range count {
		guard.Go("a stream", func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/api/v1/stream", nil)
			if err != nil {
				statuses <- 0
				return
			}
			r.AddCookie(&http.Cookie{Name: localCookie, Value: s.login.token})
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				statuses <- 0
				return
			}
			guard.AfterDone(t.Context(), "the end of a stream", func() { _ = resp.Body.Close() })
			statuses <- resp.StatusCode
		})
	}
	got := map[int]int{}
	for range count {
		got[<-statuses]++
	}
	if got[http.StatusOK] != maxUserStreams || got[http.StatusTooManyRequests] != count-maxUserStreams {
		t.Errorf("the answers are %v", got)
	}
	if !s.ui.streams.Open("another", maxStreams, maxUserStreams) {
		t.Error("the streams of one user keep out another")
	}
}

// TestAddressesOfObjectsAreShort checks that an address in a status is shortened. The page makes no link of one that a
// browser would run: see Outside in web/src/parts.tsx, and the browser tests.
func TestAddressesOfObjectsAreShort(t *testing.T) {
	s := newSite(t, everyone)
	a := &imagev1.ImageUpdateAutomation{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}
	a.Spec.Interval = meta.DurationOf(3600e9)
	a.Spec.SourceRef.Kind, a.Spec.SourceRef.Name = "GitRepository", "x"
	a.Spec.Suspend = true
	s.create(a)
	a.Status.PullRequest = "javascript:alert(1)//" + strings.Repeat("x", 100<<10)
	if err := s.client.Status().Update(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil {
		t.Fatal(err)
	}
	s.awaitItem("evil")
	i := s.ui.Model.Get(view.ID("ImageUpdateAutomation", s.namespace, "evil"), everyone)
	if len(i.PullRequest) > 300 {
		t.Errorf("the address has %d bytes", len(i.PullRequest))
	}
}
