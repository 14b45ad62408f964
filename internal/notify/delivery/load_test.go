package delivery

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

const (
	loadProviders = 10
	loadSlow      = 3
	loadDown      = 6
)

// alerts are twenty, two of which want each event, for two providers.
type alerts struct{}

func (alerts) Route(_ context.Context, e event.Event) (all []Delivery) {
	for _, alert := range wantedBy(e.InvolvedObject.Name) {
		all = append(all, Delivery{Alert: provider(fmt.Sprint("alert-", alert)),
			Provider: provider(fmt.Sprint(alert % loadProviders)), Event: e})
	}
	return all
}

// wantedBy are the alerts that want the events of an app.
func wantedBy(app string) []int {
	var n int
	if _, err := fmt.Sscanf(app, "app-%d", &n); err != nil {
		return nil
	}
	return []int{2 * n, 2*n + 1}
}

func numbered(n int) event.Event {
	return about1(fmt.Sprintf("app-%d", n%10), fmt.Sprintf("%d %s", n, strings.Repeat("x", 2000)), "")
}

// expected is how many of n events are for each provider.
func expected(n int) map[string]int {
	all := map[string]int{}
	for i := range n {
		for _, alert := range wantedBy(fmt.Sprintf("app-%d", i%10)) {
			all[fmt.Sprint(alert%loadProviders)]++
		}
	}
	return all
}

// distinct is how many different events a provider got.
func (o *outside) distinct(provider string) int {
	seen := map[string]bool{}
	for _, m := range o.of(provider) {
		number, _, _ := strings.Cut(m, " ")
		seen[number] = true
	}
	return len(seen)
}

func loadOptions(dir string, o *outside) Options {
	opts := options(dir, o)
	opts.Router, opts.Idle, opts.SyncEvery = alerts{}, time.Minute, 10*time.Millisecond
	return opts
}

// Events go through 20 alerts to 10 providers, one of which is down and one of which does not answer: the
// others have all, what waits is on the disk and not in memory, and none is lost.
func TestManyEvents(t *testing.T) {
	const events = 5000
	answers := make(chan struct{})
	up := make(chan struct{})
	o := newOutside(func(ctx context.Context, d Delivery) error {
		wait := map[string]chan struct{}{fmt.Sprint(loadSlow): answers, fmt.Sprint(loadDown): up}[d.Provider.Name]
		switch {
		case wait == nil:
			return nil
		case d.Provider.Name == fmt.Sprint(loadDown):
			select {
			case <-wait:
				return nil
			default:
				return errors.New("no route to host")
			}
		}
		select {
		case <-wait:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	o.brief = true
	b, _ := start(t, loadOptions(t.TempDir(), o))
	before := heap()
	for i := range events {
		post(t, b, numbered(i))
	}
	want := expected(events)
	for name, n := range want {
		if name != fmt.Sprint(loadSlow) && name != fmt.Sprint(loadDown) {
			eventually(t, "a healthy provider has all", func() bool { return len(o.of(name)) == n })
		}
	}
	for _, name := range []string{fmt.Sprint(loadSlow), fmt.Sprint(loadDown)} {
		if n := b.Waiting()[provider(name)]; n != want[name] {
			t.Errorf("%d wait for %s, which takes none, of %d", n, name, want[name])
		}
	}
	if more := heap() - before; more > 8<<20 { // 4 MB of texts wait, 20 MB went through
		t.Errorf("the heap has grown by %d bytes", more)
	}
	close(answers)
	close(up)
	for name, n := range want {
		eventually(t, "all have all", func() bool { return o.distinct(name) == n })
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

const killedBus = "SLUICE_TEST_BUS"

// A process that is killed in the midst loses nothing of what it took up: each provider has it, by this
// process or the next.
func TestKilledInTheMidst(t *testing.T) {
	if dir := os.Getenv(killedBus); dir != "" {
		untilKilled(t, dir)
		return
	}
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), killedBus+"="+dir)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	taken := 0
	for lines := bufio.NewScanner(out); taken < 2000 && lines.Scan(); taken++ {
		if lines.Text() != fmt.Sprint(taken) {
			t.Fatalf("the process says %q", lines.Text())
		}
	}
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	if taken < 2000 {
		t.Fatalf("the process ended after %d events", taken)
	}

	o := newOutside(nil)
	o.brief = true
	raw, err := os.ReadFile(filepath.Join(dir, "outside"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if name, number, whole := strings.Cut(strings.TrimSuffix(line, "\n"), " "); whole &&
			strings.HasSuffix(line, "\n") {
			o.got[name] = append(o.got[name], number)
		}
	}
	start(t, loadOptions(dir, o))
	for name, n := range expected(taken) {
		eventually(t, "each provider has all that was taken up", func() bool { return o.distinct(name) >= n })
	}
}

// untilKilled posts events, and says so of each that was taken up. What is delivered is written to a file.
func untilKilled(t *testing.T, dir string) {
	file, err := os.OpenFile(filepath.Join(dir, "outside"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	o := newOutside(func(ctx context.Context, d Delivery) error {
		switch d.Provider.Name {
		case fmt.Sprint(loadDown):
			return errors.New("no route to host")
		case fmt.Sprint(loadSlow):
			<-ctx.Done()
			return ctx.Err()
		}
		number, _, _ := strings.Cut(d.Event.Message, " ")
		_, err := fmt.Fprintln(file, d.Provider.Name, number)
		return err
	})
	b, _ := start(t, loadOptions(dir, o))
	for i := 0; ; i++ {
		post(t, b, numbered(i))
		if _, err := fmt.Fprintln(os.Stderr, i); err != nil {
			return // nobody listens any more
		}
	}
}
