package health

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// Bounds of looks at why objects are not healthy yet. A look needs at most three requests for each object.
const (
	lookEvery      = 2 * time.Second  // in the first minute of a wait
	lookSeldom     = 15 * time.Second // after it
	lookLimit      = time.Minute      // between the looks of an owner whose cause changes again and again
	looksPerSecond = 10               // of all owners
	lookTimeout    = 5 * time.Second
	lookedAt       = 3 // objects of an owner in a look
	manyChanges    = 5 // of the cause in a wait, after which looks become rare
	// probeGrace is how long a pod that runs and is not ready is not yet a cause: most programs need time to start.
	probeGrace = 10 * time.Second
)

// causes are why the objects of owners that wait are not healthy yet. The zero value is ready to use.
type causes struct {
	mu      sync.Mutex
	running bool // a goroutine looks
	owners  map[string]*cause
}

// cause is why the objects of an owner are not healthy yet, as far as the last look found out.
type cause struct {
	text, class string
	empty       int // looks in a row that found no cause
	changes     int
	since, next time.Time
}

// Cause returns why the targets of an owner are not healthy yet; empty if that is not known. The first call starts to
// look for causes, until [Watcher.ForgetCause]: onChange is called when the cause changes.
func (w *Watcher) Cause(owner string) string {
	w.causes.mu.Lock()
	defer w.causes.mu.Unlock()
	if c := w.causes.owners[owner]; c != nil {
		return c.text
	}
	if w.causes.owners == nil {
		w.causes.owners = map[string]*cause{}
	}
	now := time.Now()
	w.causes.owners[owner] = &cause{since: now, next: now.Add(lookEvery)}
	if !w.causes.running {
		w.causes.running = true
		guard.Go("looking for causes of unhealthy objects", w.lookForCauses)
	}
	return ""
}

// ForgetCause ends the looks for the cause of an owner.
func (w *Watcher) ForgetCause(owner string) {
	w.causes.mu.Lock()
	defer w.causes.mu.Unlock()
	delete(w.causes.owners, owner)
}

// lookForCauses looks at the owners that are due until none waits.
func (w *Watcher) lookForCauses() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for range ticker.C {
		due, isDone := w.causes.due(time.Now())
		if isDone {
			return
		}
		for _, owner := range due {
			text, class := w.look(owner)
			if w.causes.found(owner, text, class, time.Now()) {
				w.onChange(owner)
			}
		}
	}
}

// due returns the owners to look at now, those that wait longest first. It is done if no owner waits.
func (c *causes) due(now time.Time) (owners []string, isDone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.owners) == 0 {
		c.running = false
		return nil, true
	}
	for owner, o := range c.owners {
		if !now.Before(o.next) {
			owners = append(owners, owner)
		}
	}
	slices.SortFunc(owners, func(a, b string) int {
		return cmp.Or(c.owners[a].next.Compare(c.owners[b].next), cmp.Compare(a, b))
	})
	return owners[:min(len(owners), looksPerSecond)], false
}

// found records what a look found, and reports whether the cause changed. A text of the same class is the same cause: a
// kubelet alternates between two reasons for an image that it cannot pull.
func (c *causes) found(owner, text, class string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.owners[owner]
	if o == nil {
		return false
	}
	if class == probe && now.Sub(o.since) < probeGrace {
		text, class = "", ""
	}
	defer func() { o.next = now.Add(o.pause(now)) }()
	switch {
	case class == o.class:
		o.empty = 0
		return false
	case text == "" && o.empty == 0: // pods that are replaced have no reason for a moment
		o.empty++
		return false
	}
	o.text, o.class, o.empty = text, class, 0
	o.changes++
	return true
}

// pause returns the time until the next look.
func (o *cause) pause(now time.Time) time.Duration {
	switch {
	case o.changes >= manyChanges:
		return lookLimit
	case now.Sub(o.since) > time.Minute:
		return lookSeldom
	}
	return lookEvery
}

// look returns why the first unhealthy targets of an owner are not healthy, and the class of that cause.
func (w *Watcher) look(owner string) (text, class string) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	results, _ := w.Results(owner)
	looked := 0
	for _, r := range results {
		if r.Status != InProgress && r.Status != Failed {
			continue
		}
		if looked++; looked > lookedAt {
			break
		}
		if reason := w.reason(ctx, r.Target); reason != "" {
			class := classOf(reason)
			if class != probe {
				class += " " + r.Target.String()
			}
			return r.Target.String() + ": " + reason, class
		}
	}
	return "", ""
}

// probe is the class of pods that run and are not ready.
const probe = "probe"

// classes are causes that kubelets and controllers report in several words.
var classes = []struct {
	name  string
	match *regexp.Regexp
}{
	{"quota", regexp.MustCompile(`exceeded quota`)},
	{"image", regexp.MustCompile(`ErrImagePull|ImagePullBackOff`)},
	{"crash", regexp.MustCompile(`CrashLoopBackOff|exit code|BackOff`)},
	{"schedule", regexp.MustCompile(`Unschedulable|FailedScheduling`)},
	{probe, regexp.MustCompile(`^pod [^ ]+: ` + notReady)},
}

var (
	podName = regexp.MustCompile(`^pod [^ ]+: `)
	digits  = regexp.MustCompile(`[0-9]+`)
)

// classOf returns what stays the same of a reason while its cause does not change.
func classOf(reason string) string {
	for _, c := range classes {
		if c.match.MatchString(reason) {
			return c.name
		}
	}
	return digits.ReplaceAllString(podName.ReplaceAllString(reason, ""), "0")
}
