package apply

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// controlPlane is a cluster that the test may kill.
type controlPlane struct {
	t     *testing.T
	dir   string
	proxy *testenv.Proxy // proxy to the API server, whose port changes with a restart
	cmd   *exec.Cmd
}

// newControlPlane returns a control plane and a configuration that stays valid after a restart.
func newControlPlane(t *testing.T) (*controlPlane, *rest.Config) {
	t.Helper()
	c := &controlPlane{t: t, dir: t.TempDir(), proxy: testenv.NewProxy(t, "")}
	cfg := c.start()
	t.Cleanup(c.kill)
	cfg.Host, cfg.QPS = "https://"+c.proxy.Address(), -1
	return c, cfg
}

// start starts the control plane, waits until it is ready, and returns its configuration.
func (c *controlPlane) start() *rest.Config {
	c.t.Helper()
	kubeconfig := filepath.Join(c.dir, "kubeconfig")
	binary, err := testenv.Binary("playground")
	if err != nil {
		c.t.Fatal(err)
	}
	c.cmd = exec.Command(binary, "cluster", "--dir", filepath.Join(c.dir, "state"), "--kubeconfig", kubeconfig)
	c.cmd.Env = append(os.Environ(), "PLAYGROUND_PARENT_WATCH=1")
	if _, err := c.cmd.StdinPipe(); err != nil { // the control plane ends with this process
		c.t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	for out := bufio.NewScanner(stdout); out.Scan(); {
		if out.Text() != "ready" {
			continue
		}
		cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			c.t.Fatal(err)
		}
		c.proxy.SetTarget(strings.TrimPrefix(cfg.Host, "https://"))
		return cfg
	}
	c.t.Fatalf("the control plane ended: %v", c.cmd.Wait())
	return nil
}

// kill ends the control plane without a shutdown.
func (c *controlPlane) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func TestAPIServerRestartDuringApply(t *testing.T) {
	plane, cfg := newControlPlane(t)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, ns: metav1.NamespaceDefault, requests: &counter{}, notified: make(chan Owner, 100)}
	f.owner = Owner{Group: group, Namespace: f.ns, Name: "app"}
	killing := rest.CopyConfig(cfg)
	onRequest(func(r *http.Request) bool { return writes(r, "configmaps") && strings.HasSuffix(r.URL.Path, "c050") },
		plane.kill)(killing)
	f.connect(killing)
	var docs []string
	for n := range 200 {
		docs = append(docs, f.cm(fmt.Sprintf("c%03d", n)))
	}
	text := strings.Join(docs, "---\n")

	result, err := f.try(f.request(text))
	if err == nil || !strings.Contains(err.Error(), "cannot reach the cluster") || len(err.Error()) > 500 {
		t.Errorf("error %v does not say briefly that the cluster cannot be reached", err)
	}
	if len(f.saved) != 1 || len(f.saved[0]) != 200 || len(result.Inventory) != 200 {
		t.Errorf("%d saved, %d in the inventory, want all", len(f.saved[0]),
			len(result.Inventory))
	}
	if n := len(result.Changes); n == 0 || n >= len(docs) {
		t.Errorf("%d changes", n)
	}

	plane.start()
	f.inventory = result.Inventory
	again, err := f.try(f.request(text))
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().ConfigMaps(f.ns).
		List(t.Context(), metav1.ListOptions{LabelSelector: group + "/name=app"})
	if err != nil || len(list.Items) != 200 {
		t.Errorf("%d objects exist: %v", len(list.Items), err)
	}
	if s := Summarize(again.Changes); s.Created+s.Unchanged != 200 {
		t.Errorf("second apply: %s", s)
	}
	// The watches reconnect.
	if err := patched(types.MergePatchType, "other", `{"data":{"a":"9"}}`)(t.Context(), f.client(configMaps, f.ns),
		"c000"); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "drift", func() error {
		if !f.Drifted(f.owner) {
			return fmt.Errorf("no drift")
		}
		return nil
	})
	f.apply(text)
	if data := f.get(configMaps, "c000").Object["data"].(map[string]any)["a"]; data != "1" {
		t.Errorf("data is %v", data)
	}
}
