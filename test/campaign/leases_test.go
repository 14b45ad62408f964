package campaign

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	leaseDuration = 6 * time.Second
	leaseObjects  = 40 // in the repository, half of them in every other commit only
	// leaseLatency is added to each write, so that a pass takes a while.
	leaseLatency = 20 * time.Millisecond
)

// TestCampaignLeases takes the lease from the leader in the middle of applying and pruning: it is stopped, or cut off
// from the API server, until another process has completed its work. After that it must write nothing.
func TestCampaignLeases(t *testing.T) {
	const short, full = 2, 200
	e := begin(t, short, full)
	l := newLeased(t)
	e.each(func(i int, random *rand.Rand) {
		l.commit(i + 1)
		<-time.After(time.Duration(random.IntN(1500)) * time.Millisecond)
		l.lose(i%2 == 0, random)
	})
	e.note("%d leases lost, %d of them by SIGSTOP; %d writes by deposed processes, %d cut off; takeover within %s",
		e.count, (e.count+1)/2, l.wrong, l.cut, l.slowest.Round(100*time.Millisecond))
}

// leased is a tenant with two processes, one of which leads.
type leased struct {
	*tenant
	leader, standby *replica
	replicas        int // started ones
	wanted          map[string]string
	head            string
	wrong, cut      int // writes by deposed processes, and those that ended early
	slowest         time.Duration
	flags, env      []string // of all processes
}

// replica is a process that the audit log shows under a name of its own.
type replica struct {
	*controller
	proxy *apiProxy
	name  atomic.Pointer[string]
	audit *testenv.AuditLog // since the process was started
}

func newLeased(t *testing.T) *leased {
	t.Helper()
	l := &leased{tenant: newTenant(t, testenv.NewGit(t))}
	l.commit(0)
	l.leader = l.start()
	l.create(l.source("app"), l.app("app"))
	l.completes(l.leader)
	l.standby = l.start()
	return l
}

// start starts a process behind a proxy. It has flags of its own.
func (l *leased) start(flags ...string) *replica {
	l.Helper()
	r := &replica{proxy: newAPIProxy(l.T)}
	l.rename(r)
	r.proxy.seen = func(req *http.Request) {
		req.Header.Set("User-Agent", *r.name.Load())
		if req.Method == http.MethodPatch && strings.Contains(req.URL.Path, "/configmaps/") {
			<-time.After(leaseLatency)
		}
	}
	flags = append(flags, "--enable-leader-election", "--leader-election-lease-duration", leaseDuration.String(),
		"--leader-election-renew-deadline", "4s", "--leader-election-retry-period", "2s")
	r.controller = start(l.T, settings{namespace: l.namespace, isAlone: true, kubeconfig: r.proxy.kubeconfig,
		flags: append(flags, l.flags...), env: l.env})
	l.Cleanup(func() { _ = r.cmd.Process.Signal(syscall.SIGCONT) }) // so that it can end
	return r
}

// rename gives the next process of a replica a name that none had before.
func (l *leased) rename(r *replica) {
	l.replicas++
	name := fmt.Sprintf("replica-%d.", l.replicas)
	r.name.Store(&name)
	r.audit = testenv.NewAuditLog(l)
}

// commit changes all objects, and requests a fetch.
func (l *leased) commit(n int) {
	l.Helper()
	isFirst := l.head == ""
	l.write(n)
	if !isFirst {
		l.fetch()
	}
}

// write changes all objects in the repository. Half of them are only in every other commit.
func (l *leased) write(n int) {
	l.Helper()
	files := map[string]string{}
	l.wanted = map[string]string{}
	for i := range leaseObjects {
		name := fmt.Sprint("cm-", i)
		if i%2 == 1 && n%2 == 1 {
			files[name+".yaml"] = testenv.Delete
			continue
		}
		l.wanted[name] = fmt.Sprint(n)
		files[name+".yaml"] = configMap(name, l.wanted[name])
	}
	l.head = l.git.Commit(l.repo, files)
}

// completes waits until a process has applied the last commit.
func (l *leased) completes(r *replica) {
	l.Helper()
	testenv.Eventually(l, "the last commit is applied", func() error {
		_ = r.dead()
		return errors.Join(l.applied("app", l.head), l.hasObjects(l.wanted))
	})
}

// lose takes the lease from the leader until the other process has completed its work.
func (l *leased) lose(byStop bool, random *rand.Rand) {
	l.Helper()
	audit, old := l.standby.audit, l.leader
	began := time.Now()
	if byStop {
		l.signal(old, syscall.SIGSTOP)
	} else {
		old.proxy.partition(true)
	}
	took := l.takeover(audit, l.standby)
	l.slowest = max(l.slowest, time.Since(began))
	<-time.After(time.Duration(random.IntN(500)) * time.Millisecond)
	if byStop {
		l.signal(old, syscall.SIGCONT)
	} else {
		old.proxy.partition(false)
	}
	l.completes(l.standby)
	l.ends(old)
	l.mustNotWrite(audit, *old.name.Load(), took)
	l.leader, l.standby = l.standby, old
	l.rename(old)
	old.launch()
	old.runs()
}

func (l *leased) signal(r *replica, s syscall.Signal) {
	l.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		l.Fatal(err)
	}
}

// takeover waits until one of the processes has acquired the lease, and returns the request.
func (l *leased) takeover(audit *testenv.AuditLog, standbys ...*replica) (acquired testenv.Request) {
	l.Helper()
	testenv.Eventually(l, "a standby acquires the lease", func() error {
		for _, standby := range standbys {
			found := audit.Requests(l, testenv.Request{Verb: "update", Resource: "leases", Namespace: l.namespace,
				Code: 200, UserAgent: *standby.name.Load()})
			if len(found) > 0 {
				acquired = found[0]
				return nil
			}
		}
		return errors.New("none has updated the lease")
	})
	return acquired
}

// ends waits until a process that lost its lease has ended by itself.
func (l *leased) ends(r *replica) {
	l.Helper()
	select {
	case <-r.ended:
		r.stopped = true
	case <-time.After(stopTime):
		l.Fatalf("the process has not ended %s after it lost its lease", stopTime)
	}
}

// mustNotWrite fails the test if the former leader wrote after another process had the lease, or the new one before. A
// write whose body the fence cut off changes nothing: the API server answers 500.
func (l *leased) mustNotWrite(audit *testenv.AuditLog, former string, acquired testenv.Request) {
	l.Helper()
	for _, r := range audit.Requests(l, testenv.Request{}) {
		isWrite := r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && r.Resource != "leases" &&
			!strings.HasSuffix(r.Resource, "reviews") && !strings.Contains(r.URI, "fieldManager=sluice-receiver")
		late := strings.HasPrefix(r.UserAgent, former) && r.Received.After(acquired.Received)
		early := strings.HasPrefix(r.UserAgent, acquired.UserAgent) && r.Received.Before(acquired.Received)
		if isWrite && late && r.Code == http.StatusInternalServerError {
			l.cut++
			continue
		}
		if isWrite && (late || early) {
			l.wrong++
			l.Errorf("%s sent at %s, when the lease was acquired at %s: %s %s (status %d)", r.UserAgent,
				r.Received.Format(time.StampMicro), acquired.Received.Format(time.StampMicro), r.Verb, r.URI, r.Code)
		}
	}
}
