package bench

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

var sluiceFlags = flag.String("sluice-flags", "", "further flags of bin/sluice, such as --pprof-addr=127.0.0.1:6060")

// clockTicks are those of a second in /proc/<pid>/stat, on every Linux that Go runs on.
const clockTicks = 100

// process is the built sluice, run as operators run it, with its bytes to and from the API server counted.
type process struct {
	tb      testing.TB
	command *exec.Cmd
	metrics string
	bytes   *atomic.Int64
}

// startController runs bin/sluice with its defaults for objects of one namespace.
func startController(tb testing.TB, namespace string, flags ...string) *process {
	tb.Helper()
	kubeconfig, bytes := countedKubeconfig(tb)
	p := startProcess(tb, kubeconfig, namespace, tb.TempDir(), flags...)
	p.bytes = bytes
	return p
}

// startProcess runs bin/sluice for objects of one namespace of any cluster, with a directory for its files.
func startProcess(tb testing.TB, kubeconfig, namespace, storage string, flags ...string) *process {
	tb.Helper()
	sluice, err := testenv.Binary("sluice")
	if err != nil {
		tb.Fatal(err)
	}
	p := &process{tb: tb, metrics: testenv.FreeAddress(tb), bytes: &atomic.Int64{}}
	args := append([]string{"controller", "--kubeconfig", kubeconfig, "-n", namespace, "--watch-all-namespaces=false",
		"--storage-path", storage,
		"--storage-addr", "127.0.0.1:0", "--metrics-addr", p.metrics, "--health-addr", "0", "--receiverAddr", "0",
		"--events-addr", "0", "--images-addr", "0", "--log-level", "error"}, flags...)
	args = append(args, strings.Fields(*sluiceFlags)...)
	p.command = exec.Command(sluice, args...)
	p.command.Stderr = os.Stderr
	if err := p.command.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.stop)
	testenv.Eventually(tb, "the controller runs", func() error {
		_, err := p.scrape()
		return err
	})
	return p
}

// stop asks the process to end, and waits for it. It may have been stopped before.
func (p *process) stop() {
	if p.command.ProcessState == nil {
		_ = p.command.Process.Signal(syscall.SIGTERM)
		_ = p.command.Wait()
	}
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.command.Process.Kill() // it may have ended
	_ = p.command.Wait()         // it was killed
}

// usage is what a process took up to a moment.
type usage struct {
	at       time.Time
	cpu      time.Duration
	server   time.Duration // CPU of the API server, with etcd and the controllers of Kubernetes
	bytes    int64         // to and from the API server
	mallocs  float64       // objects
	allocate float64       // bytes
}

func (p *process) usage() usage {
	p.tb.Helper()
	m, err := p.scrape()
	if err != nil {
		p.tb.Fatal(err)
	}
	return usage{
		at: time.Now(), cpu: cpuTime(p.tb, p.command.Process.Pid), server: cpuTime(p.tb, testenv.ClusterPID(p.tb)),
		bytes: p.bytes.Load(), mallocs: m["go_memstats_mallocs_total"], allocate: m["go_memstats_alloc_bytes_total"],
	}
}

// requests counts those of the process in a log that match the filter.
func (p *process) requests(log *testenv.AuditLog, filter testenv.Request) int {
	p.tb.Helper()
	filter.UserAgent = "sluice"
	return log.Count(p.tb, filter)
}

// memory returns a line of the process's status in megabytes: VmRSS is what it holds, VmHWM the most that it held.
func (p *process) memory(line string) float64 {
	p.tb.Helper()
	return memoryOf(p.tb, p.command.Process.Pid, line)
}

// scrape reads the metrics; the names of those that have labels hold them.
func (p *process) scrape() (map[string]float64, error) {
	resp, err := http.Get("http://" + p.metrics + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // it is read
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

// cpuTime is what a process took of the processors so far.
func cpuTime(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		tb.Fatal(err)
	}
	// the name before may hold anything
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime, proc(5)
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			tb.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks
}

// countedKubeconfig is access to the cluster by way of a forwarder that counts bytes, as they are on the wire.
func countedKubeconfig(tb testing.TB) (file string, bytes *atomic.Int64) {
	tb.Helper()
	cfg, err := clientcmd.LoadFromFile(testenv.Kubeconfig(tb))
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() }) // ends the forwarder
	bytes = &atomic.Int64{}
	for _, c := range cfg.Clusters {
		go forward(l, strings.TrimPrefix(c.Server, "https://"), bytes)
		c.Server = "https://" + l.Addr().String()
	}
	file = filepath.Join(tb.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		tb.Fatal(err)
	}
	return file, bytes
}

// forward carries connections to an address until the listener is closed.
func forward(l net.Listener, address string, bytes *atomic.Int64) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", address)
		if err != nil {
			_ = in.Close() // the client sees it
			continue
		}
		for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
			go func() {
				_, _ = io.Copy(counter{pair[0], bytes}, pair[1]) // one side ended
				_ = pair[0].Close()
			}()
		}
	}
}

// counter counts what is written to it.
type counter struct {
	io.Writer
	n *atomic.Int64
}

func (c counter) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.n.Add(int64(n))
	return n, err
}
