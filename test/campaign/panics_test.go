package campaign

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	imagev1 "github.com/sluice-gitops/sluice/api/image/v1"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

// TestCampaignPanics runs a binary in which every kind of work that internal/guard starts panics a few times. It is
// built with the tag campaign.
func TestCampaignPanics(t *testing.T) {
	const short, full = 1, 20
	e := begin(t, short, full)
	root, err := testenv.Root()
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "sluice")
	build := exec.Command("go", "build", "-tags", "campaign", "-o", binary, "./cmd/sluice")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	git, registry := testenv.NewGit(t), ociregistry.New(t)
	works := map[string]float64{}
	e.each(func(i int, random *rand.Rand) {
		n, inbox := newTenant(t, git), newInbox(t)
		registry.Push(n.repo, "1.0.0", nil)
		n.commit("first")
		n.declareAll(registry, inbox.URL)
		c := start(t, settings{namespace: n.namespace, isAlone: true, binary: binary,
			env: []string{fmt.Sprint("SLUICE_CAMPAIGN_PANICS=", random.Uint64())}})
		n.insist(c, "first")
		const commits = 8
		for j := range commits {
			value := fmt.Sprintf("%d-%d", i, j)
			n.commit(value)
			registry.Push(n.repo, fmt.Sprintf("1.0.%d", j+1), nil)
			n.insist(c, value)
		}
		c.mustLive()
		metrics, err := c.scrape()
		for name, count := range metrics {
			if work, ok := strings.CutPrefix(name, `sluice_panics_total{work="`); ok {
				works[strings.TrimSuffix(work, `"}`)] += count
			}
		}
		if err != nil {
			t.Error(err)
		}
		c.stop(syscall.SIGTERM)
	})
	total := 0.0
	for _, count := range works {
		total += count
	}
	e.note("%.0f panics in %d kinds of work, 0 exits", total, len(works))
	if len(works) < 10 {
		t.Errorf("panics in %d kinds of work only: %v", len(works), works)
	}
}

// insist requests everything again until a value is applied: an event whose handler panicked is lost.
func (n *tenant) insist(c *controller, value string) {
	n.Helper()
	attempt := 0
	testenv.Eventually(n, "the value "+value+" is applied", func() error {
		_ = c.dead()
		const every = 50 // checks
		if attempt%every == 0 {
			n.fetch()
			n.request(&gatingv1.Gate{}, "gate")
			n.request(&imagev1.ImageRepository{}, "image")
			n.request(&kustomizev1.Kustomization{}, "app")
		}
		attempt++
		got, err := n.value("app")
		if err == nil && got != value {
			return fmt.Errorf("the value is '%s'", got)
		}
		return err
	})
}

// declareAll creates an object of most kinds: a source, a Kustomization behind an open gate, an image and an alert.
func (n *tenant) declareAll(registry *ociregistry.Server, address string) {
	n.Helper()
	n.create(n.source("app"),
		&gatingv1.Gate{ObjectMeta: n.named("gate"), Spec: gatingv1.GateSpec{Default: gatingv1.Opened, Interval: hour}},
		n.app("app", func(k *kustomizev1.Kustomization) { k.Spec.Gates = []meta.GateReference{{Name: "gate"}} }),
		&imagev1.ImageRepository{ObjectMeta: n.named("image"), Spec: imagev1.ImageRepositorySpec{
			Image: registry.Host + "/" + n.repo, Interval: hour, Insecure: true}},
		&notificationv1.Provider{ObjectMeta: n.named("inbox"),
			Spec: notificationv1.ProviderSpec{Type: notificationv1.GenericProvider, Address: address}},
		&notificationv1.Alert{ObjectMeta: n.named("all"), Spec: notificationv1.AlertSpec{
			ProviderRef: meta.LocalObjectReference{Name: "inbox"}, EventSeverity: "info",
			EventSources: []notificationv1.EventSource{
				{Kind: "Kustomization", Name: "*"}, {Kind: "GitRepository", Name: "*"}}}})
}

// inbox is the server of a Provider. It keeps the events that it received.
type inbox struct {
	*httptest.Server
	mu       sync.Mutex
	received []notification
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	i := &inbox{}
	i.Server = httptest.NewServer(http.HandlerFunc(i.receive))
	t.Cleanup(i.Close)
	return i
}
