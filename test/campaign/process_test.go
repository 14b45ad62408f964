package campaign

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

const stopTime = 90 * time.Second // until a process must have ended

// settings are how a controller runs.
type settings struct {
	binary     string // default: bin/sluice
	kubeconfig string // default: that of the test cluster
	storage    string // default: a directory of the test
	namespace  string // the runtime namespace
	isAlone    bool   // watches only its namespace
	flags      []string
	env        []string
	group      *cgroup
}

// controller is a running sluice.
type controller struct {
	*testing.T
	settings
	cmd     *exec.Cmd
	metrics string
	log     string // file
	ended   chan struct{}
	peak    int  // MiB, of former processes too
	stopped bool // on purpose
}

// start runs a controller. It ends with the test, which fails if the process ends before.
func start(t *testing.T, s settings) *controller {
	t.Helper()
	var err error
	if s.binary == "" {
		if s.binary, err = testenv.Binary("sluice"); err != nil {
			t.Fatal(err)
		}
	}
	if s.kubeconfig == "" {
		s.kubeconfig = testenv.Kubeconfig(t)
	}
	if s.storage == "" {
		s.storage = t.TempDir()
	}
	if s.group == nil {
		group := newCgroup(t)
		s.group = &group
	}
	c := &controller{T: t, settings: s, metrics: testenv.FreeAddress(t), log: filepath.Join(t.TempDir(), "log")}
	c.launch()
	t.Cleanup(func() {
		c.stop(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("last lines of the controller's log:\n%s", c.tail(30))
		}
	})
	return c
}

// launch starts the process, as after a restart of the pod.
func (c *controller) launch() {
	c.Helper()
	args := []string{"controller", "--kubeconfig", c.kubeconfig, "-n", c.namespace, "--runtime-namespace", c.namespace,
		"--watch-all-namespaces=" + strconv.FormatBool(!c.isAlone), "--storage-path", c.storage,
		"--storage-addr",
		"127.0.0.1:0", "--metrics-addr", c.metrics, "--min-retry-delay", "50ms", "--max-retry-delay", "2s",
		"--log-level", "error"}
	for _, address := range []string{"health-addr", "receiverAddr", "events-addr", "images-addr"} {
		if !slices.Contains(c.flags, "--"+address) {
			args = append(args, "--"+address, "0")
		}
	}
	command := c.group.command(c.binary, append(args, c.flags...)...)
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		c.Fatal(err)
	}
	defer log.Close() // the process has it open
	c.cmd = exec.Command(command[0], command[1:]...)
	c.cmd.Stderr, c.cmd.Stdout, c.cmd.Env = log, log, append(os.Environ(), c.env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.stopped = false
	if err := c.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	ended, cmd := make(chan struct{}), c.cmd
	c.ended = ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // alive reports it
	}()
}

// alive returns an error if the process has ended.
func (c *controller) alive() error {
	select {
	case <-c.ended:
		return fmt.Errorf("the controller ended: %s\n%s", c.cmd.ProcessState, c.tail(30))
	default:
	}
	if peak, err := peakMemory(c.cmd.Process.Pid); err == nil {
		c.peak = max(c.peak, peak)
	}
	return nil
}

// mustLive fails the test if the process has ended or the kernel has killed one for its memory.
func (c *controller) mustLive() {
	c.Helper()
	alive := c.alive()
	if n := c.group.kills(c.T); n > 0 {
		c.Fatalf("the kernel killed %d processes for their memory, the last peak was %d MiB", n, c.peak)
	}
	if alive != nil {
		c.Fatal(alive)
	}
}

// stop ends the process by a signal and waits for its end.
func (c *controller) stop(s os.Signal) {
	if c.stopped {
		return
	}
	c.stopped = true
	if err := c.alive(); err != nil {
		if s == syscall.SIGTERM {
			c.Error(err)
		}
		return
	}
	_ = c.cmd.Process.Signal(s) // it may have ended
	select {
	case <-c.ended:
	case <-time.After(stopTime):
		c.Errorf("the controller did not end within %s of %s", stopTime, s)
		_ = c.cmd.Process.Signal(syscall.SIGQUIT) // prints all goroutines to its log
		<-c.ended
	}
}

// restart kills the process and starts it again.
func (c *controller) restart() {
	c.Helper()
	c.stop(syscall.SIGKILL)
	c.launch()
}

// runs waits until the process answers.
func (c *controller) runs() {
	c.Helper()
	testenv.Eventually(c, "the controller runs", func() error {
		_, err := c.scrape()
		return errors.Join(err, c.dead())
	})
}

// dead fails the test at once if the process has ended.
func (c *controller) dead() error {
	c.Helper()
	if err := c.alive(); err != nil {
		c.Fatal(err)
	}
	return nil
}

// tail returns the last lines of the log.
func (c *controller) tail(n int) string {
	b, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// scrape reads the metrics. Their names include the labels.
func (c *controller) scrape() (map[string]float64, error) {
	resp, err := http.Get("http://" + c.metrics + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	found := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		end := strings.LastIndexByte(lines.Text(), ' ')
		if v, err := strconv.ParseFloat(lines.Text()[end+1:], 64); err == nil && end > 0 {
			found[lines.Text()[:end]] = v
		}
	}
	return found, lines.Err()
}
