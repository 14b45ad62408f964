package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	helmv2 "github.com/sluice-gitops/sluice/api/helm/v2"
	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/api/meta"
	notificationv1 "github.com/sluice-gitops/sluice/api/notification/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/definitions"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
)

const (
	costsFile = "testdata/costs.txt"
	// costTries is how often a scenario is measured: an event of the cluster between two steps may add a request, but
	// what the process asks for itself is in every try.
	costTries = 3
	// costQuiet is how long no request is made after the work of a scenario.
	costQuiet = 1500 * time.Millisecond
	hookToken = "token-of-the-webhook"
)

var updateCosts = flag.Bool("update-costs", false, "write "+costsFile)

// costs are a process over objects in a namespace of its own, whose requests are counted.
type costs struct {
	*testing.T
	client                     client.Client
	git                        *testenv.Git
	registry                   *ociregistry.Server
	sluice, namespace, storage string
	hooks, artifacts           string // addresses that stay when the process starts again
	process                    *exec.Cmd
	version                    int
}

// scenario is work whose requests are counted.
type scenario struct {
	name    string
	prepare func() // not counted
	act     func()
	done    func() error
}

// TestCosts compares the requests that a change costs with those of the last time. A request more or less is changed on
// purpose only: go test ./test/e2e -run TestCosts -update-costs.
func TestCosts(t *testing.T) {
	known, err := os.ReadFile(costsFile)
	if err != nil && !*updateCosts {
		t.Fatal(err)
	}
	c := newCosts(t)
	var report strings.Builder
	for _, s := range c.scenarios() {
		_, want, _ := strings.Cut(string(known), s.name+"\n")
		fmt.Fprintf(&report, "%s\n%s", s.name, c.least(s, linesOf(want)))
	}
	if *updateCosts {
		if err := os.WriteFile(costsFile, []byte(report.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if report.String() != string(known) {
		t.Errorf("the requests differ from %s: if that is wanted, run\n"+
			"go test ./test/e2e -run TestCosts -update-costs\n%s", costsFile, report.String())
	}
}

// linesOf returns the lines of a scenario at the begin of a text.
func linesOf(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "  ") {
			break
		}
		b.WriteString(line)
	}
	return b.String()
}

func newCosts(t *testing.T) *costs {
	t.Helper()
	definitions.Install(t, testenv.Cluster(t))
	c := &costs{T: t, git: testenv.NewGit(t), registry: ociregistry.New(t), namespace: testenv.Namespace(t),
		storage: t.TempDir()}
	var err error
	if c.client, err = client.New(testenv.Cluster(t), client.Options{Scheme: kubeclient.Scheme()}); err != nil {
		t.Fatal(err)
	}
	if c.sluice, err = testenv.Binary("sluice"); err != nil {
		t.Fatal(err)
	}
	for _, address := range []*string{&c.hooks, &c.artifacts} {
		*address = testenv.FreeAddress(t)
	}
	c.registry.Push("app", "1.0.0", nil)
	c.commit()
	c.declare(`{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: app},
  spec: {url: "` + c.git.URL + `/app", interval: 1h, ref: {branch: main}}}`)
	c.start()
	t.Cleanup(c.stop)
	testenv.Eventually(t, "the source is Ready", c.isReady("source.toolkit.fluxcd.io/v1", "GitRepository", "app"))
	return c
}

func (c *costs) start() {
	c.Helper()
	c.process = exec.Command(c.sluice, "controller", "--kubeconfig", testenv.Kubeconfig(c), "-n", c.namespace,
		"--watch-all-namespaces=false", "--storage-path", c.storage, "--storage-addr", c.artifacts,
		"--receiverAddr", c.hooks, "--metrics-addr", "0", "--health-addr", "0", "--events-addr", "0",
		"--images-addr", "0", "--log-level", "error")
	c.process.Stderr = os.Stderr
	if err := c.process.Start(); err != nil {
		c.Fatal(err)
	}
}

func (c *costs) stop() {
	_ = c.process.Process.Signal(syscall.SIGTERM)
	_ = c.process.Wait()
}

// least measures a scenario until it costs what is wanted. If it does not, it returns the smallest costs.
func (c *costs) least(s scenario, want string) string {
	c.Helper()
	var all []string
	for range costTries {
		found := c.measure(s)
		if found == want && !*updateCosts {
			return found
		}
		all = append(all, found)
	}
	return slices.MinFunc(all, func(a, b string) int { return total(a) - total(b) })
}

// total returns the number of requests of a scenario.
func total(found string) (n int) {
	for line := range strings.Lines(found) {
		count := 0
		if _, err := fmt.Sscanf(line, "%d", &count); err == nil {
			n += count
		}
	}
	return n
}

// measure returns the requests of a scenario by verb and resource, a line each.
func (c *costs) measure(s scenario) string {
	c.Helper()
	if s.prepare != nil {
		s.prepare()
	}
	c.quiet(testenv.NewAuditLog(c))
	log := testenv.NewAuditLog(c)
	s.act()
	testenv.Eventually(c, s.name, s.done)
	c.quiet(log)
	counts := map[string]int{}
	for _, r := range c.requests(log) {
		name := r.Resource
		if r.Subresource != "" {
			name += "/" + r.Subresource
		}
		if strings.Contains(r.URI, "dryRun=All") {
			name += " (dry run)"
		}
		counts[r.Verb+" "+name]++
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "  %d %s\n", counts[name], name)
	}
	return b.String()
}

// requests are those of the process in the namespace, without leases and watches, and without the lists by which caches
// begin to watch: how many of them a start needs depends on its timing.
func (c *costs) requests(log *testenv.AuditLog) []testenv.Request {
	c.Helper()
	all := log.Requests(c, testenv.Request{Namespace: c.namespace, UserAgent: "sluice"})
	return slices.DeleteFunc(all, func(r testenv.Request) bool {
		isOfCache := r.Verb == "list" && !strings.Contains(r.URI, "labelSelector")
		return r.Verb == "watch" || isOfCache || r.Resource == "leases"
	})
}

// quiet waits until the process makes no request.
func (c *costs) quiet(log *testenv.AuditLog) {
	c.Helper()
	count, since := -1, time.Now()
	testenv.Eventually(c, "no request", func() error {
		if n := len(c.requests(log)); n != count {
			count, since = n, time.Now()
		}
		if time.Since(since) < costQuiet {
			return errors.New("there was one")
		}
		return nil
	})
}

// declare creates objects, or replaces their specs.
func (c *costs) declare(manifests ...string) {
	c.Helper()
	for _, manifest := range manifests {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(manifest), &o.Object); err != nil {
			c.Fatalf("%v in %s", err, manifest)
		}
		o.SetNamespace(c.namespace)
		if err := c.client.Apply(c.Context(), client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership,
			client.FieldOwner("test")); err != nil {
			c.Fatalf("%v in %s", err, manifest)
		}
	}
}

// commit sets the ConfigMaps of the application to a new version: all of them, or those with the names.
func (c *costs) commit(names ...string) string {
	c.Helper()
	c.version++
	if len(names) == 0 {
		names = []string{"a", "b", "c", "d"}
	}
	files := map[string]string{}
	for _, name := range names {
		files["app/"+name+".yaml"] = c.configMap(name)
	}
	return c.git.Commit("app", files)
}

func (c *costs) configMap(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {version: %q}\n", name,
		fmt.Sprint(c.version))
}

// pull asks for a fetch.
func (c *costs) pull() { pull(c.T, c.client, c.namespace) }

func (c *costs) isReady(apiVersion, kind, name string) func() error {
	return func() error {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(apiVersion)
		o.SetKind(kind)
		if err := c.client.Get(c.Context(), types.NamespacedName{Namespace: c.namespace, Name: name}, o); err != nil {
			return err
		}
		conditions, _, err := unstructured.NestedSlice(o.Object, "status", "conditions")
		for _, condition := range conditions {
			if m, ok := condition.(map[string]any); ok && m["type"] == reconcile.TypeReady && m["status"] == "True" {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("%v", conditions))
	}
}

// applied returns whether the Kustomization is Ready at the head of the repository.
func (c *costs) applied() error { return c.isAt("app") }

func (c *costs) isAt(name string) error {
	k := &kustomizev1.Kustomization{}
	if err := c.client.Get(c.Context(), types.NamespacedName{Namespace: c.namespace, Name: name}, k); err != nil {
		return err
	}
	head := c.git.Run("app", "rev-parse", "main")
	if !reconcile.IsReady(k) || !strings.HasSuffix(k.Status.LastAppliedRevision, head) {
		return fmt.Errorf("%s, want %s: %v", k.Status.LastAppliedRevision, head, k.Status.Conditions)
	}
	return nil
}

func (c *costs) kustomization(name, path, rest string) string {
	return fmt.Sprintf(`{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: %s},
  spec: {interval: 1h, prune: true, path: %s, targetNamespace: %s, sourceRef: {kind: GitRepository, name: app}%s}}`,
		name, path, c.namespace, rest)
}

// delete deletes an object and waits until it is gone.
func (c *costs) delete(o client.Object, name string) {
	c.Helper()
	o.SetNamespace(c.namespace)
	o.SetName(name)
	if err := client.IgnoreNotFound(c.client.Delete(c.Context(), o)); err != nil {
		c.Fatal(err)
	}
	testenv.Eventually(c, name+" is gone", func() error {
		err := c.client.Get(c.Context(), client.ObjectKeyFromObject(o), o)
		if !apierrors.IsNotFound(err) {
			return errors.Join(err, fmt.Errorf("it has finalizers %v", o.GetFinalizers()))
		}
		return nil
	})
}

// data returns whether a ConfigMap has the version of the last commit.
func (c *costs) data(name string) error {
	cm := &corev1.ConfigMap{}
	if err := c.client.Get(c.Context(), types.NamespacedName{Namespace: c.namespace, Name: name}, cm); err != nil {
		return err
	}
	if cm.Data["version"] != fmt.Sprint(c.version) {
		return fmt.Errorf("%s has version %s, want %d", name, cm.Data["version"], c.version)
	}
	return nil
}

// post sends a webhook of a push.
func (c *costs) post(path string) {
	c.Helper()
	body := []byte(`{"ref":"refs/heads/main"}`)
	mac := hmac.New(sha256.New, []byte(hookToken))
	_, _ = mac.Write(body)
	testenv.Eventually(c, "the webhook is accepted", func() error {
		request, err := http.NewRequestWithContext(c.Context(), http.MethodPost, "http://"+c.hooks+path,
			bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("X-Signature", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		resp, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// request requests a pass of an object.
func (c *costs) request(apiVersion, kind, name string) {
	c.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(c.namespace)
	o.SetName(name)
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, meta.ReconcileRequestAnnotation,
		time.Now().Format(time.RFC3339Nano))
	if err := c.client.Patch(c.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		c.Fatal(err)
	}
}

// scenarios are what a cluster lives through, in an order in which each begins where the one before ended.
func (c *costs) scenarios() []scenario {
	const kustomize = "kustomize.toolkit.fluxcd.io/v1"
	app := c.kustomization("app", "./app", "")
	settled := func() {
		c.declare(app)
		c.commit()
		c.pull()
		testenv.Eventually(c, "all is applied", c.applied)
	}
	change := func(names ...string) func() {
		return func() { c.commit(names...); c.pull() }
	}
	return slices.Concat([]scenario{
		{name: "a new Kustomization of four ConfigMaps",
			prepare: func() { c.delete(&kustomizev1.Kustomization{}, "app") }, act: func() { c.declare(app) },
			done: c.applied},
		{name: "a commit changes one of them", act: change("a"), done: c.applied},
		{name: "a commit changes all of them", act: change(), done: c.applied},
		{name: "a commit changes none of them", act: func() {
			c.git.Commit("app", map[string]string{"README.md": fmt.Sprint(time.Now())})
			c.pull()
		}, done: c.applied},
		{name: "a user changes one of them", prepare: settled, act: func() {
			cm := &corev1.ConfigMap{}
			cm.Namespace, cm.Name = c.namespace, "a"
			if err := c.client.Patch(c.Context(), cm, client.RawPatch(types.MergePatchType,
				[]byte(`{"data":{"version":"other"}}`)), client.FieldOwner("user")); err != nil {
				c.Fatal(err)
			}
		}, done: func() error { return c.data("a") }},
		{name: "a commit removes one of them", prepare: settled, act: func() {
			c.git.Commit("app", map[string]string{"app/d.yaml": ""})
			c.pull()
		}, done: c.applied},
	}, c.handOvers(settled), []scenario{
		c.webhook(settled),
		c.gate(),
		c.chart(),
		c.image(settled),
		{name: "the process starts again", prepare: func() { settled(); c.stop() },
			act: func() { c.start(); c.request(kustomize, "Kustomization", "app") }, done: func() error {
				k := &kustomizev1.Kustomization{}
				err := c.client.Get(c.Context(), types.NamespacedName{Namespace: c.namespace, Name: "app"}, k)
				if k.Status.LastHandledReconcileAt != k.Annotations[meta.ReconcileRequestAnnotation] {
					err = errors.Join(err, errors.New("the request is not handled"))
				}
				return err
			}},
		c.idle(app),
	})
}

// handOvers move an object to another Kustomization. Which of the two is first is a race, and costs different requests.
// Suspending one and holding the other decide it.
func (c *costs) handOvers(settled func()) []scenario {
	const name = "a commit moves one of them to another Kustomization, "
	declare := func(app, second string) {
		c.declare(c.kustomization("app", "./app", app), c.kustomization("second", "./second", second))
	}
	prepare := func(app, second string) func() {
		return func() {
			c.git.Commit("app", map[string]string{"second/d.yaml": "", "second/e.yaml": c.configMap("e")})
			settled()
			declare("", "")
			testenv.Eventually(c, "the other is Ready", func() error { return c.isAt("second") })
			declare(app, second)
		}
	}
	move := func(first string) {
		c.git.Commit("app", map[string]string{"app/d.yaml": "", "second/d.yaml": c.configMap("d")})
		c.pull()
		testenv.Eventually(c, first+" is first", func() error { return c.isAt(first) })
		declare("", "")
	}
	adopted := func() error {
		cm := &corev1.ConfigMap{}
		err := c.client.Get(c.Context(), types.NamespacedName{Namespace: c.namespace, Name: "d"}, cm)
		if cm.Labels["kustomize.toolkit.fluxcd.io/name"] != "second" {
			err = errors.Join(err, fmt.Errorf("labels %v", cm.Labels))
		}
		return errors.Join(err, c.applied(), c.isAt("second"))
	}
	return []scenario{
		{name: name + "which is first", prepare: prepare(", suspend: true", ""), act: func() { move("second") },
			done: adopted},
		{name: name + "which is last", prepare: prepare("", ", gates: [{name: second}]"), act: func() { move("app") },
			done: adopted},
	}
}

// webhook announces a commit.
func (c *costs) webhook(settled func()) scenario {
	path := ""
	return scenario{name: "a webhook announces a commit that changes one of them", prepare: func() {
		c.delete(&kustomizev1.Kustomization{}, "second")
		settled()
		c.declare(`{apiVersion: v1, kind: Secret, metadata: {name: hook}, stringData: {token: `+hookToken+`}}`,
			`{apiVersion: notification.toolkit.fluxcd.io/v1, kind: Receiver, metadata: {name: push}, spec: {
  type: generic-hmac, secretRef: {name: hook}, resources: [{kind: GitRepository, name: app}]}}`)
		testenv.Eventually(c, "the Receiver is Ready",
			c.isReady("notification.toolkit.fluxcd.io/v1", "Receiver", "push"))
		r := &notificationv1.Receiver{}
		if err := c.client.Get(c.Context(), types.NamespacedName{Namespace: c.namespace, Name: "push"},
			r); err != nil {
			c.Fatal(err)
		}
		path = r.Status.WebhookPath
	}, act: func() { c.commit("a"); c.post(path) }, done: c.applied}
}

// gate opens a gate that held a commit.
func (c *costs) gate() scenario {
	gate := func(state string) string {
		return `{apiVersion: gating.toolkit.fluxcd.io/v1alpha1, kind: Gate, metadata: {name: release},
  spec: {default: ` + state + `, interval: 1h}}`
	}
	return scenario{name: "a gate opens that held a change of one of them", prepare: func() {
		c.declare(gate("closed"), c.kustomization("app", "./app", ", gates: [{name: release}]"))
		c.commit("a")
		c.pull()
		testenv.Eventually(c, "the change waits", func() error {
			k := &kustomizev1.Kustomization{}
			err := c.client.Get(c.Context(), types.NamespacedName{Namespace: c.namespace, Name: "app"}, k)
			head := c.git.Run("app", "rev-parse", "main")
			if k.Status.Pending == nil || !strings.HasSuffix(k.Status.Pending.Revision, head) {
				err = errors.Join(err, fmt.Errorf("%v", k.Status.Conditions))
			}
			return err
		})
	}, act: func() { c.declare(gate("opened")) }, done: c.applied}
}

// chart upgrades a release of a chart in the repository.
func (c *costs) chart() scenario {
	commit := func() {
		c.version++
		c.git.Commit("app", map[string]string{
			"chart/Chart.yaml":          fmt.Sprintf("apiVersion: v2\nname: web\nversion: 1.0.%d\n", c.version),
			"chart/templates/web.yaml":  c.configMap("web"),
			"chart/templates/same.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: same}\n",
		})
		c.pull()
	}
	done := func() error {
		return errors.Join(c.data("web"), c.isReady("helm.toolkit.fluxcd.io/v2", "HelmRelease", "web")())
	}
	return scenario{name: "a new version of a chart changes one of two ConfigMaps", prepare: func() {
		commit()
		testenv.Eventually(c, "the chart is fetched", c.applied)
		c.declare(`{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: web},
  spec: {interval: 1h, chart: {spec: {chart: ./chart, reconcileStrategy: Revision,
    sourceRef: {kind: GitRepository, name: app}}}}}`)
		testenv.Eventually(c, "the release is Ready", done)
		for range 5 { // as many as Helm keeps: reading them, and deleting the oldest, is a part of the costs
			commit()
			testenv.Eventually(c, "the release is upgraded", done)
		}
	}, act: commit, done: done}
}

// image pushes an image, which an automation commits.
func (c *costs) image(settled func()) scenario {
	const group = "image.toolkit.fluxcd.io/v1"
	minor := 0
	head := ""
	return scenario{name: "a new image is committed and applied", prepare: func() {
		c.delete(&helmv2.HelmRelease{}, "web")
		settled()
		c.git.Commit("app", map[string]string{"app/image.yaml": fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\n"+
			"metadata: {name: image}\ndata:\n  image: %s/app:1.0.0 # {\"$imagepolicy\": \"%s:app\"}\n", c.registry.Host,
			c.namespace)})
		c.pull()
		c.declare(`{apiVersion: `+group+`, kind: ImageRepository, metadata: {name: app},
  spec: {image: "`+c.registry.Host+`/app", insecure: true, interval: 1h}}`,
			`{apiVersion: `+group+`, kind: ImagePolicy, metadata: {name: app},
  spec: {imageRepositoryRef: {name: app}, policy: {semver: {range: ">=1.0.0"}}}}`,
			`{apiVersion: `+group+`, kind: ImageUpdateAutomation, metadata: {name: app},
  spec: {interval: 1h, sourceRef: {kind: GitRepository, name: app},
    git: {commit: {author: {name: Robot, email: robot@example.com}}}}}`)
		testenv.Eventually(c, "the automation committed", func() error {
			return errors.Join(c.applied(), c.isReady(group, "ImageUpdateAutomation", "app")(), c.hasImage(minor))
		})
		head = c.git.Run("app", "rev-parse", "main")
	}, act: func() {
		minor++
		c.registry.Push("app", fmt.Sprintf("1.%d.0", minor), nil)
		c.request(group, "ImageRepository", "app")
	}, done: func() error {
		if c.git.Run("app", "rev-parse", "main") == head {
			return errors.New("no commit")
		}
		return errors.Join(c.applied(), c.hasImage(minor))
	}}
}

// hasImage returns whether the cluster has a version of the image.
func (c *costs) hasImage(minor int) error {
	cm := &corev1.ConfigMap{}
	err := c.client.Get(c.Context(), types.NamespacedName{Namespace: c.namespace, Name: "image"}, cm)
	if want := fmt.Sprintf("/app:1.%d.0", minor); !strings.HasSuffix(cm.Data["image"], want) {
		err = errors.Join(err, fmt.Errorf("image %s, want %s", cm.Data["image"], want))
	}
	return err
}

// idle has intervals that end, and nothing that changed.
func (c *costs) idle(app string) scenario {
	var polls int64
	return scenario{name: "three intervals of a second end", prepare: func() {
		c.declare(strings.ReplaceAll(app, "1h", "1s"), `{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository,
  metadata: {name: app}, spec: {url: "`+c.git.URL+`/app", interval: 1s, ref: {branch: main}}}`)
		testenv.Eventually(c, "the Kustomization is Ready", c.applied)
	}, act: func() { polls = c.git.Stats()["advertisements"] }, done: func() error {
		if n := c.git.Stats()["advertisements"] - polls; n < 3 {
			return fmt.Errorf("%d requests to the git server", n)
		}
		return nil
	}}
}
