package campaign

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kustomizev1 "github.com/sluice-gitops/sluice/api/kustomize/v1"
	"github.com/sluice-gitops/sluice/internal/process/kubeclient"
	"github.com/sluice-gitops/sluice/internal/reconcile"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	rolloutApps = 500
	// unanswered is how long before a kill the API server may have answered a request whose client repeats it, as the
	// answer or the status that records it was lost.
	unanswered = 5 * time.Second
)

// TestCampaignRestarts kills the API server again and again while 500 Kustomizations are rolled out, and starts it
// again. All must become Ready, and no object may be applied twice for a commit.
func TestCampaignRestarts(t *testing.T) {
	const short, full = 1, 100
	e := begin(t, short, full)
	r := &rollout{apps: 20, cluster: newMortalCluster(t), wanted: map[string]string{}}
	if *isFull {
		r.apps = rolloutApps
	}
	r.prepare(e)
	e.each(func(_ int, random *rand.Rand) {
		if r.isDone() == nil {
			r.mustNotRepeat()
			r.commit(random)
		}
		<-time.After(time.Duration(random.IntN(3000*r.apps/rolloutApps+500)) * time.Millisecond)
		r.cluster.restart()
		r.controller.mustLive()
	})
	r.complete()
	e.note("%d restarts in %d rollouts of %d Kustomizations, %d objects applied, %d of them again as the answer was "+
		"lost", len(r.cluster.kills), r.rollouts, r.apps, r.applied, r.repeated)
}

// rollout is a repository with many Kustomizations, each with a directory.
type rollout struct {
	*tenant
	apps       int
	cluster    *mortalCluster
	controller *controller

	wanted   map[string]string // values of the ConfigMaps, by name
	head     string
	checked  string            // the last commit whose requests were checked
	since    *testenv.AuditLog // of the last commit
	rollouts int
	applied  int // objects
	repeated int // of them, more than once
}

func (r *rollout) prepare(e *experiment) {
	t := e.T
	t.Helper()
	install(t, r.cluster.kubeconfig)
	config, err := clientcmd.BuildConfigFromFlags("", r.cluster.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	c, err := client.New(config, client.Options{Scheme: kubeclient.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	r.tenant = &tenant{T: t, client: c, git: testenv.NewGit(t), namespace: "tenant", repo: "tenant"}
	r.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}})
	r.commit(e.random(-1))
	r.create(r.source("app"))
	for i := range r.apps {
		r.create(r.app(fmt.Sprint("app-", i),
			func(k *kustomizev1.Kustomization) { k.Spec.Path = fmt.Sprint("./app-", i) }))
	}
	r.controller = start(t, settings{namespace: r.namespace, kubeconfig: r.cluster.kubeconfig})
	r.complete()
}

// commit changes the object of each Kustomization.
func (r *rollout) commit(random *rand.Rand) {
	r.Helper()
	files := map[string]string{}
	for i := range r.apps {
		name, value := fmt.Sprint("cm-", i), fmt.Sprint(random.Uint64())
		files[fmt.Sprintf("app-%d/app.yaml", i)], r.wanted[name] = configMap(name, value), value
	}
	r.since = testenv.OpenAuditLog(r, r.cluster.audit)
	r.rollouts++
	isFirst := r.head == ""
	r.head = r.git.Commit(r.repo, files)
	if !isFirst {
		r.fetch()
	}
}

// isDone returns an error unless all Kustomizations are Ready with the last commit.
func (r *rollout) isDone() error {
	var list kustomizev1.KustomizationList
	if err := r.client.List(context.Background(), &list); err != nil {
		return err
	}
	waiting, last := 0, ""
	for i := range list.Items {
		k := &list.Items[i]
		if !strings.HasSuffix(k.Status.LastAppliedRevision, r.head) || !reconcile.IsReady(k) {
			waiting++
			last = fmt.Sprintf("%s: %v", k.Name, k.Status.Conditions)
		}
	}
	if waiting > 0 || len(list.Items) != r.apps {
		return fmt.Errorf("%d of %d are not Ready, such as %s", waiting, len(list.Items), last)
	}
	return nil
}

// complete waits until the rollout is complete.
func (r *rollout) complete() {
	r.Helper()
	testenv.Eventually(r, "all are Ready", func() error {
		r.controller.mustLive()
		return r.isDone()
	})
	r.mustNotRepeat()
}

// mustNotRepeat fails the test if an object was applied twice since the last commit, although the answer of the API
// server arrived.
func (r *rollout) mustNotRepeat() {
	r.Helper()
	if r.checked == r.head {
		return
	}
	r.checked = r.head
	answered := map[string]time.Time{}
	for _, request := range r.since.Requests(r, testenv.Request{Verb: "patch", Resource: "configmaps"}) {
		if request.Code/100 != 2 || strings.Contains(request.URI, "dryRun=All") {
			continue
		}
		before, isRepeated := answered[request.Name]
		answered[request.Name] = request.Answered
		if !isRepeated {
			r.applied++
			continue
		}
		r.repeated++
		if !r.killedWithin(before, unanswered) {
			r.Errorf("%s was applied at %s and again at %s", request.Name, before.Format(time.StampMilli),
				request.Answered.Format(time.StampMilli))
		}
	}
	r.mustBeApplied()
}

// mustBeApplied fails the test unless the cluster has what the last commit declares. The audit log does not say it: a
// server that is killed may have written an object, but not the record of the request.
func (r *rollout) mustBeApplied() {
	r.Helper()
	var list corev1.ConfigMapList
	if err := r.client.List(context.Background(), &list, client.InNamespace(r.namespace)); err != nil {
		r.Fatal(err)
	}
	live := map[string]string{}
	for _, cm := range list.Items {
		live[cm.Name] = cm.Data["k"]
	}
	for name, value := range r.wanted {
		if live[name] != value {
			r.Errorf("%s has the value %q, the commit declares %q", name, live[name], value)
		}
	}
}

// killedWithin reports whether the API server was killed in the time after an answer.
func (r *rollout) killedWithin(answer time.Time, d time.Duration) bool {
	for _, at := range r.cluster.kills {
		if at.After(answer) && at.Sub(answer) < d {
			return true
		}
	}
	return false
}

// mortalCluster is a control plane of its own that can be killed and started again.
type mortalCluster struct {
	*testing.T
	kubeconfig, audit, dir, port string
	cmd                          *exec.Cmd
	kills                        []time.Time
}

func newMortalCluster(t *testing.T) *mortalCluster {
	t.Helper()
	dir := t.TempDir()
	m := &mortalCluster{T: t, dir: filepath.Join(dir, "state"), kubeconfig: filepath.Join(dir, "kubeconfig"),
		audit: filepath.Join(dir, "audit")}
	var err error
	if _, m.port, err = net.SplitHostPort(testenv.FreeAddress(t)); err != nil {
		t.Fatal(err)
	}
	m.launch()
	t.Cleanup(m.kill)
	return m
}

// launch starts the control plane and waits until it serves.
func (m *mortalCluster) launch() {
	m.Helper()
	playground, err := testenv.Binary("playground")
	if err != nil {
		m.Fatal(err)
	}
	m.cmd = exec.Command(playground, "cluster", "--kubeconfig", m.kubeconfig, "--dir", m.dir, "--port", m.port,
		"--audit-log", m.audit)
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		m.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		m.Fatal(err)
	}
	timer := time.AfterFunc(stopTime, func() { _ = m.cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			return
		}
	}
	m.Fatalf("the control plane did not start: %v", errors.Join(lines.Err(), m.cmd.Wait()))
}

func (m *mortalCluster) kill() {
	_ = m.cmd.Process.Kill() // it may have ended
	_ = m.cmd.Wait()         // it was killed
}

// restart kills the API server and starts it again.
func (m *mortalCluster) restart() {
	m.Helper()
	m.kills = append(m.kills, time.Now())
	m.kill()
	m.launch()
}
