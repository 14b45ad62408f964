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
	"github.com/sluice-gitops/sluice/internal/testenv"
)

const (
	loadProviders = 10
	loadSlow      = 3
	loadDown      = 6
)

// alertRouter routes as twenty alerts for ten providers: two alerts, of two providers, select each event.
type alertRouter struct{}

func (alertRouter) Route(_ context.Context, e event.Event) (all []Delivery) {
	for _, alert := range alertsOf(e.InvolvedObject.Name) {
		all = append(all, Delivery{Alert: provider(fmt.Sprint("alert-", alert)),
			Provider: provider(fmt.Sprint(alert % loadProviders)), Event: e})
	}
	return all
}

// alertsOf returns the numbers of the alerts that select the events of an app.
func alertsOf(app string) []int {
	var n int
	if _, err := fmt.Sscanf(app, "app-%d", &n); err != nil {
		return nil
	}
	return []int{2 * n, 2*n + 1}
}

func numberedEvent(n int) event.Event {
	return newEvent(fmt.Sprintf("app-%d", n%10), fmt.Sprintf("%d %s", n, strings.Repeat("x", 2000)), "")
}

// expected returns how many of n events each provider gets.
func expected(n int) map[string]int {
	all := map[string]int{}
	for i := range n {
		for _, alert := range alertsOf(fmt.Sprintf("app-%d", i%10)) {
			all[fmt.Sprint(alert%loadProviders)]++
		}
	}
	return all
}

// distinct returns the number of different events a provider received.
func (o *fakeProviders) distinct(provider string) int {
	seen := map[string]bool{}
	for _, m := range o.received(provider) {
		number, _, _ := strings.Cut(m, " ")
		seen[number] = true
	}
	return len(seen)
}

func loadOptions(dir string, o *fakeProviders) Options {
	opts := options(dir, o)
	opts.Router, opts.IdleTimeout, opts.FlushInterval = alertRouter{}, time.Minute, 10*time.Millisecond
	return opts
}

// TestManyEvents sends events to 10 providers, one of which is down and one of which does not respond. The
// others receive all events, pending events are on disk and not in memory, and none is lost.
func TestManyEvents(t *testing.T) {
	const events = 5000
	responds := make(chan struct{})
	up := make(chan struct{})
	o := newFakeProviders(func(ctx context.Context, delivery Delivery) error {
		wait := map[string]chan struct{}{fmt.Sprint(loadSlow): responds,
			fmt.Sprint(loadDown): up}[delivery.Provider.Name]
		switch {
		case wait == nil:
			return nil
		case delivery.Provider.Name == fmt.Sprint(loadDown):
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
	o.firstWordOnly = true
	d, _ := start(t, loadOptions(t.TempDir(), o))
	before := heap()
	for i := range events {
		post(t, d, numberedEvent(i))
	}
	want := expected(events)
	for name, n := range want {
		if name != fmt.Sprint(loadSlow) && name != fmt.Sprint(loadDown) {
			eventually(t, "a healthy provider has all events", func() bool { return len(o.received(name)) == n })
		}
	}
	for _, name := range []string{fmt.Sprint(loadSlow), fmt.Sprint(loadDown)} {
		if n := d.Pending()[provider(name)]; n != want[name] {
			t.Errorf("%d events are pending for provider %s, want %d", n, name, want[name])
		}
	}
	testenv.Eventually(t, "the heap is small", func() error {
		if more := heap() - before; more > 8<<20 { // 4 MB are pending, 20 MB were sent
			return fmt.Errorf("it grew by %d bytes", more)
		}
		return nil
	})
	close(responds)
	close(up)
	for name, n := range want {
		eventually(t, "each provider has all events", func() bool { return o.distinct(name) == n })
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// childDir is the environment variable that makes the test post events until it is killed.
const childDir = "SLUICE_TEST_DELIVERY"

// TestAcceptedEventsSurviveKill kills a process while it accepts and delivers events. Each accepted event is
// delivered to each provider, by this process or the next.
func TestAcceptedEventsSurviveKill(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		postUntilKilled(t, dir)
		return
	}
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childDir+"="+dir)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for lines := bufio.NewScanner(out); accepted < 2000 && lines.Scan(); accepted++ {
		if lines.Text() != fmt.Sprint(accepted) {
			t.Fatalf("unexpected output %q of the process", lines.Text())
		}
	}
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	if accepted < 2000 {
		t.Fatalf("the process ended after %d events", accepted)
	}

	o := newFakeProviders(nil)
	o.firstWordOnly = true
	raw, err := os.ReadFile(filepath.Join(dir, "delivered"))
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
	for name, n := range expected(accepted) {
		eventually(t, "each provider has all accepted events", func() bool { return o.distinct(name) >= n })
	}
}

// postUntilKilled posts events and prints the number of each accepted one. Delivered events are written to a file.
func postUntilKilled(t *testing.T, dir string) {
	file, err := os.OpenFile(filepath.Join(dir, "delivered"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	o := newFakeProviders(func(ctx context.Context, delivery Delivery) error {
		switch delivery.Provider.Name {
		case fmt.Sprint(loadDown):
			return errors.New("no route to host")
		case fmt.Sprint(loadSlow):
			<-ctx.Done()
			return ctx.Err()
		}
		number, _, _ := strings.Cut(delivery.Event.Message, " ")
		_, err := fmt.Fprintln(file, delivery.Provider.Name, number)
		return err
	})
	d, _ := start(t, loadOptions(dir, o))
	for i := 0; ; i++ {
		post(t, d, numberedEvent(i))
		if _, err := fmt.Fprintln(os.Stderr, i); err != nil {
			return // the parent stopped reading
		}
	}
}
