package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// asTenant returns a fixture that applies as the default service account of the test's namespace.
func asTenant(t *testing.T) *fixture {
	f := newFixture(t)
	cfg := testenv.Cluster(t)
	cfg.Impersonate.UserName = "system:serviceaccount:" + f.ns + ":default"
	cfg.Wrap(f.requests.wrap)
	f.admin = f.Cluster
	f.connect(cfg)
	return f
}

// grant sets the verbs that the tenant may use in its namespace.
func (f *fixture) grant(verbs string) {
	f.t.Helper()
	admin := *f
	admin.Cluster, admin.owner.Name, admin.inventory = f.admin, "admin", nil
	admin.apply(strings.ReplaceAll(`apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant, namespace: %s}
rules: [{apiGroups: [""], resources: [configmaps, services], verbs: [%v]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: %s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{kind: ServiceAccount, name: default, namespace: %s}]
`, "%v", verbs))
}

// applySoon applies until the API server allows it: it reads rights, and namespaces that were deleted, from caches.
func (f *fixture) applySoon(text string) []string {
	f.t.Helper()
	var got []string
	testenv.Eventually(f.t, "the API server to allow the apply", func() error {
		r, err := f.try(f.request(text))
		got = describe(r.Changes)
		return err
	})
	return got
}

// correctsDrift checks that the ConfigMap "a" is watched: it is applied without a request, and corrected after an edit.
func (f *fixture) correctsDrift() {
	f.t.Helper()
	f.requests.take()
	assertLines(f.t, "again", f.apply(f.cm("a")), []string{"ConfigMap/a unchanged"})
	assertLines(f.t, "requests", f.requests.take(), nil)
	if err := patched(types.MergePatchType, "other", `{"data":{"a":"2"}}`)(context.Background(),
		f.client(configMaps, f.ns), "a"); err != nil {
		f.t.Fatal(err)
	}
	f.waitDrift(f.owner)
	assertLines(f.t, "after an edit", f.apply(f.cm("a")), []string{"ConfigMap/a configured"})
}

func TestTenantWatchesItsNamespaceOnly(t *testing.T) {
	t.Parallel()
	f := asTenant(t)
	f.grant("get, list, watch, create, patch, delete")
	f.applySoon(f.cm("a"))
	f.waitSynced()
	testenv.Eventually(t, "watch of the namespace", func() error {
		if kinds := f.UnwatchedKinds(f.owner); len(kinds) > 0 {
			return fmt.Errorf("unwatched: %v", kinds)
		}
		return nil
	})
	f.waitObserved(configMaps, "a")
	f.correctsDrift()
	f.Forget(f.owner)
	f.mu.Lock()
	defer f.mu.Unlock()
	for key := range f.watches.All() {
		t.Errorf("watch %v is left", key)
	}
}

// TestRefusedWatchOfAllNamespacesComesBack grants the right to watch all namespaces after it was refused.
func TestRefusedWatchOfAllNamespacesComesBack(t *testing.T) {
	t.Parallel()
	f := asTenant(t)
	clock := clocktesting.NewFakePassiveClock(time.Now())
	f.options.Clock = clock
	f.grant("get, list, watch, create, patch, delete")
	f.applySoon(f.cm("a"))
	f.waitSynced()
	f.waitObserved(configMaps, "a")
	all := func() (whole, single int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for key, w := range f.watches.All() {
			switch {
			case key.Namespace != "":
				single++
			case w.Live():
				whole++
			}
		}
		return whole, single
	}
	if whole, single := all(); whole != 0 || single != 1 {
		t.Fatalf("%d watches of all namespaces, %d of one", whole, single)
	}
	f.requests.take()
	f.apply(f.cm("a"))
	assertLines(t, "within an hour", f.requests.take(), nil)

	admin := *f
	admin.Cluster, admin.owner.Name, admin.inventory = f.admin, "admin-all", nil
	admin.apply(`apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: watch-%s}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: watch-%s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: watch-%s}
subjects: [{kind: ServiceAccount, name: default, namespace: %s}]
`)
	testenv.Eventually(t, "one watch of all namespaces", func() error {
		clock.SetTime(clock.Now().Add(wholeAgain))
		f.apply(f.cm("a"))
		if whole, single := all(); whole != 1 || single != 0 {
			return fmt.Errorf("%d watches of all namespaces, %d of one", whole, single)
		}
		return nil
	})
	f.correctsDrift()
}

func TestKindThatMayNotBeWatchedIsDryRun(t *testing.T) {
	t.Parallel()
	f := asTenant(t)
	f.grant("get, create, patch, delete")
	text := f.cm("a") + "---\n" + f.cm("b")
	f.applySoon(text)
	testenv.Eventually(t, "refusal", func() error {
		if kinds := f.UnwatchedKinds(f.owner); len(kinds) != 1 || kinds[0] != "ConfigMap" {
			return fmt.Errorf("unwatched: %v", kinds)
		}
		return nil
	})
	f.requests.take()
	assertLines(t, "again", f.apply(text), []string{"ConfigMap/a unchanged", "ConfigMap/b unchanged"})
	count := 0
	for _, l := range f.requests.take() {
		if strings.HasPrefix(l, "PATCH") || strings.HasPrefix(l, "GET") && strings.Contains(l, "/configmaps/") {
			t.Errorf("unexpected request %s", l)
		}
		if strings.HasPrefix(l, "DRY PATCH") {
			count++
		}
	}
	if count != 2 {
		t.Errorf("%d dry-runs, want one for each object", count)
	}
	if err := patched(types.MergePatchType, "other", `{"data":{"a":"2"}}`)(context.Background(),
		f.client(configMaps, f.ns), "a"); err != nil {
		t.Fatal(err)
	}
	assertLines(t, "after an edit", f.apply(text), []string{"ConfigMap/a configured", "ConfigMap/b unchanged"})

	f.grant("get, list, watch, create, patch, delete")
	testenv.Eventually(t, "watch", func() error {
		if _, err := f.try(f.request(text)); err != nil {
			return err
		}
		if kinds := f.UnwatchedKinds(f.owner); len(kinds) > 0 {
			return fmt.Errorf("unwatched: %v", kinds)
		}
		return nil
	})
}

func TestForbiddenObjectIsNamed(t *testing.T) {
	t.Parallel()
	f := asTenant(t)
	f.grant("get, list, watch, create, patch, delete")
	f.applySoon(f.cm("a"))
	_, err := f.try(f.request(f.cm("b") + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: %s}"))
	for _, s := range []string{"Secret/" + f.ns + "/s", "cannot patch resource", "Grant"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v does not contain %q", err, s)
		}
	}
	if f.has(configMaps, f.ns, "b") {
		t.Error("the other object was created")
	}
}

func TestOwnersShareWatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := *f
	other.owner.Name, other.inventory = "other", nil
	f.apply(f.cm("a"))
	other.apply(f.cm("b") + "---\napiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: %s}\n" +
		"spec: {ports: [{port: 80}]}")
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		n := 0
		for range f.watches.All() {
			n++
		}
		return n
	}
	if count() != 2 {
		t.Errorf("%d watches, want one for each kind", count())
	}
	other.apply(f.cm("b"))
	if count() != 1 {
		t.Errorf("%d watches after the Service is no longer applied", count())
	}
	f.waitSynced()
	if err := deleted(context.Background(), f.client(configMaps, f.ns), "b"); err != nil {
		t.Fatal(err)
	}
	f.waitDrift(other.owner)
	if f.Drifted(f.owner) || len(f.notified) > 0 {
		t.Error("an owner was notified of drift of another owner")
	}
	f.Forget(other.owner)
	f.Forget(f.owner)
	if count() != 0 {
		t.Errorf("%d watches are left", count())
	}
}

func TestOwnerIsNotNotifiedWhenAnotherTakesOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := *f
	other.owner.Name, other.inventory = "other", nil
	f.apply(f.cm("a"))
	f.waitSynced()
	other.apply(f.cm("a"))
	f.waitObserved(configMaps, "a")
	if !f.Drifted(f.owner) || other.Drifted(other.owner) {
		t.Error("the former owner does not see the drift")
	}
	if len(f.notified) > 0 {
		t.Error("the former owner was notified")
	}
	if changes, err := f.Prune(context.Background(), f.owner, f.inventory); err != nil || len(changes) != 0 {
		t.Errorf("pruned an object of another owner: %v, %v", changes, err)
	}
}

// connection can be interrupted: open watches end, and no list or watch starts.
type connection struct {
	mu   sync.Mutex
	down bool
	open []io.Closer
}

func (l *connection) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("watch") == "" && !strings.HasSuffix(r.URL.Path, "/configmaps") {
			return next.RoundTrip(r)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.down {
			return nil, errors.New("the connection is interrupted")
		}
		resp, err := next.RoundTrip(r)
		if err == nil {
			l.open = append(l.open, resp.Body)
		}
		return resp, err
	})
}

func (l *connection) interrupt(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
	for _, c := range l.open {
		_ = c.Close()
	}
	l.open = nil
}

func TestBrokenWatchMissesNoDrift(t *testing.T) {
	t.Parallel()
	var l connection
	f := newFixture(t, func(cfg *rest.Config) { cfg.Wrap(l.wrap) })
	ctx := context.Background()
	f.apply(f.cm("edited") + "---\n" + f.cm("deleted") + "---\n" + f.cm("untouched"))
	f.waitSynced()
	l.interrupt(true)
	if err := patched(types.MergePatchType, "other", `{"data":{"a":"2"}}`)(ctx, f.client(configMaps, f.ns),
		"edited"); err != nil {
		t.Fatal(err)
	}
	if err := f.client(configMaps, f.ns).Delete(ctx, "deleted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.interrupt(false)
	testenv.Eventually(t, "drift of both objects", func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		drifted := map[string]bool{}
		for _, a := range f.tracked[f.owner] {
			drifted[a.ref.Name] = a.drifted
		}
		if drifted["edited"] && drifted["deleted"] && !drifted["untouched"] {
			return nil
		}
		return fmt.Errorf("drifted: %v", drifted)
	})
	f.waitDrift(f.owner)
	assertLines(t, "corrected", f.apply(f.cm("edited")+"---\n"+f.cm("deleted")+"---\n"+f.cm("untouched")), []string{
		"ConfigMap/deleted created", "ConfigMap/edited configured", "ConfigMap/untouched unchanged",
	})
}
