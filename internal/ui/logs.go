package ui

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/ui/state"
)

// Bounds of a stream of logs.
const (
	maxLogStreams     = 100 // of all users
	maxUserLogStreams = 10
	maxContainers     = 60        // whose logs are read at a time
	maxLogLine        = 4 << 10   // bytes; the rest of a line is left out
	maxContainerLog   = 256 << 20 // bytes of one container, after which its log ends
	maxLogEvent       = 256 << 10 // bytes of lines in one event
	defaultTail       = 200       // lines of each container
	logBuffer         = 64        // lines that wait to be sent; containers wait behind them
	logPodsPeriod     = 5 * time.Second
	logOverlap        = 10 * time.Second // that is sent again after a reconnect; the page drops what it has
)

// logTarget is a container whose log is read.
type logTarget struct {
	Pod       string `json:"pod"`
	Container string `json:"container"`
}

// logLine is a line of a container.
type logLine struct {
	logTarget
	At   time.Time `json:"at,omitzero"`
	Text string    `json:"text"`
}

// logProblem is why the log of a container cannot be read.
type logProblem struct {
	logTarget
	Error string `json:"error"`
}

// logStream sends the logs of the containers of a workload.
type logStream struct {
	*Server
	user      *User
	container string // only this one; empty: all
	options   corev1.PodLogOptions
	find      func(ctx context.Context) ([]corev1.Pod, error)
	out       *eventWriter

	lines    chan logLine
	ended    chan logProblem // containers whose log ended; without an error at its end
	active   map[logTarget]bool
	last     map[logTarget]time.Time // of the last line
	reported map[logTarget]string    // errors
	shown    []logTarget             // that the client knows
}

// streamLogs sends the logs of all pods of an object as server-sent events: `pods`, `lines`, `problem`, and `end`
// unless it follows. Parameters: kind, namespace, name, container, lines, previous and follow.
func (s *Server) streamLogs(w http.ResponseWriter, r *http.Request) {
	u, err := s.Login.User(r)
	if err != nil {
		failLogin(w, err)
		return
	}
	if !s.logStreams.Open(u.Name, maxLogStreams, maxUserLogStreams) {
		fail(w, http.StatusTooManyRequests, "too many logs are open. Close some, then try again.")
		return
	}
	defer s.logStreams.Close(u.Name)
	l, err := s.newLogStream(u, r)
	if err == nil {
		err = checkQuery(r)
	}
	if err != nil {
		s.sendError(w, err)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	pods, err := l.pods(ctx)
	if err != nil {
		s.sendError(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	l.out = &eventWriter{w: w, control: http.NewResponseController(w)}
	if l.start(ctx, pods) == nil {
		l.run(ctx, r)
	}
}

func (s *Server) newLogStream(u *User, r *http.Request) (*logStream, error) {
	q := r.URL.Query()
	lines, err := number(q.Get("lines"), defaultTail, maxLogLines)
	if err != nil {
		return nil, err
	}
	tail := int64(lines)
	l := &logStream{Server: s, user: u, container: q.Get("container"),
		options: corev1.PodLogOptions{TailLines: &tail, Timestamps: true, Follow: q.Get("follow") == "true",
			Previous: q.Get("previous") == "true"},
		lines: make(chan logLine, logBuffer), ended: make(chan logProblem, maxContainers),
		active: map[logTarget]bool{}, last: map[logTarget]time.Time{}, reported: map[logTarget]string{}}
	if l.options.Previous && l.options.Follow {
		return nil, badRequest("the log of a container that ended cannot be followed")
	}
	if at, err := time.Parse(time.RFC3339Nano, r.Header.Get("Last-Event-ID")); err == nil {
		l.options.SinceTime, l.options.TailLines = &metav1.Time{Time: at.Add(-logOverlap)}, nil
	}
	key := client.ObjectKey{Namespace: q.Get("namespace"), Name: q.Get("name")}
	l.find = func(ctx context.Context) ([]corev1.Pod, error) { return podsOf(ctx, u, q.Get("kind"), key) }
	return l, nil
}

// podsOf returns the pods of an object: itself, those of a workload, or those of all workloads that an object of ours
// made.
func podsOf(ctx context.Context, u *User, name string, key client.ObjectKey) ([]corev1.Pod, error) {
	if name == "Pod" {
		pod := corev1.Pod{}
		err := u.Client.Get(ctx, key, &pod)
		return []corev1.Pod{pod}, err
	}
	if version, ok := state.WorkloadKinds[name]; ok {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(version)
		o.SetKind(name)
		if err := u.Client.Get(ctx, key, o); err != nil {
			return nil, err
		}
		return state.Pods(ctx, u.Client, o)
	}
	k := kind.ByName(name)
	if k == nil {
		return nil, badRequest("%q has no pods: choose a workload, a Pod, or an object that made some",
			excerpt.Bytes(name, 100))
	}
	o := k.New()
	if err := u.Client.Get(ctx, key, o); err != nil {
		return nil, err
	}
	tree, err := state.ReadTree(ctx, u.Client, o, false, false)
	if err != nil {
		return nil, err
	}
	return podsBelow(tree.Top, nil), nil
}

// podsBelow returns the pods of a tree in the namespaces where they are.
func podsBelow(n *state.Node, found []corev1.Pod) []corev1.Pod {
	if n.Kind == "Pod" && n.Status != state.StatusHidden {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name}}
		for _, c := range n.Names {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
		}
		found = append(found, p)
	}
	for _, b := range n.Below {
		found = podsBelow(b, found)
	}
	return found
}

// pods returns the pods whose logs are read.
func (l *logStream) pods(ctx context.Context) ([]corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	done, err := l.large.take(ctx, l.user.Name)
	if err != nil {
		return nil, err
	}
	defer done()
	return l.find(ctx)
}

// start reads the logs of containers that are not read yet, and sends which there are if that has changed.
func (l *logStream) start(ctx context.Context, pods []corev1.Pod) error {
	targets, namespaces := []logTarget{}, map[logTarget]string{}
	for _, p := range pods {
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			t := logTarget{Pod: p.Name, Container: c.Name}
			if l.container == "" || l.container == c.Name {
				targets, namespaces[t] = append(targets, t), p.Namespace
			}
		}
	}
	omitted := max(0, len(targets)-maxContainers)
	targets = targets[:len(targets)-omitted]
	for _, t := range targets {
		if l.active[t] {
			continue
		}
		l.active[t] = true
		options := l.options
		options.Container = t.Container
		if last, ok := l.last[t]; ok { // the container was started again
			options.SinceTime, options.TailLines = &metav1.Time{Time: last.Add(time.Second)}, nil
		}
		guard.Go("a log for the UI", func() { l.read(ctx, namespaces[t], t, &options) })
	}
	if l.shown != nil && slices.Equal(l.shown, targets) {
		return nil
	}
	l.shown = targets
	return l.out.send("pods", map[string]any{"containers": targets, "omitted": omitted})
}

// read sends the lines of a container until its log ends.
func (l *logStream) read(ctx context.Context, namespace string, t logTarget, options *corev1.PodLogOptions) {
	end := logProblem{logTarget: t}
	if err := l.copyLines(ctx, namespace, t, options); err != nil && ctx.Err() == nil {
		end.Error = explain(err)
	}
	select {
	case l.ended <- end:
	case <-ctx.Done():
	}
}

func (l *logStream) copyLines(ctx context.Context, namespace string, t logTarget,
	options *corev1.PodLogOptions) error {
	stream, err := l.user.Cluster.CoreV1().Pods(namespace).GetLogs(t.Pod, options).Stream(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	limited := &io.LimitedReader{R: stream, N: maxContainerLog}
	in := bufio.NewReaderSize(limited, maxLogLine)
	for {
		text, err := readLine(in)
		if text != "" {
			select {
			case l.lines <- parseLine(t, text):
			case <-ctx.Done():
				return nil
			}
		}
		switch {
		case errors.Is(err, io.EOF) && limited.N == 0:
			return fmt.Errorf("more than %s were read: open the log again to read on", guard.Bytes(maxContainerLog))
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// readLine returns the next line, without its end and what is beyond the limit.
func readLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	text := strings.TrimRight(strings.ToValidUTF8(string(line), "\uFFFD"), "\r\n")
	for errors.Is(err, bufio.ErrBufferFull) {
		if !strings.HasSuffix(text, "…") {
			text += "…"
		}
		_, err = in.ReadSlice('\n')
	}
	return text, err
}

// parseLine splits the time that the kubelet puts before each line.
func parseLine(t logTarget, text string) logLine {
	stamp, rest, _ := strings.Cut(text, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return logLine{logTarget: t, Text: text}
	}
	return logLine{logTarget: t, At: at, Text: rest}
}

// run sends lines until the client is gone, or until all logs ended and it does not follow.
func (l *logStream) run(ctx context.Context, r *http.Request) {
	tick, pods := time.NewTicker(streamPeriod), time.NewTicker(logPodsPeriod)
	heartbeat := time.NewTicker(streamHeartbeat)
	defer tick.Stop()
	defer pods.Stop()
	defer heartbeat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-heartbeat.C:
			if _, err = l.Login.User(r); err == nil { // else logged out
				err = l.out.send("ping", struct{}{})
			}
		case <-pods.C:
			if l.options.Follow {
				err = l.refresh(ctx)
			}
		case end := <-l.ended:
			err = l.end(end)
		case <-tick.C:
			err = l.sendLines()
		}
		if err != nil {
			return
		}
		if !l.options.Follow && len(l.active) == 0 && len(l.lines) == 0 {
			_ = l.out.send("end", struct{}{}) // the client may be gone
			return
		}
	}
}

// refresh reads the logs of pods that were created since. A failure to list them is reported.
func (l *logStream) refresh(ctx context.Context) error {
	pods, err := l.pods(ctx)
	if err != nil {
		return l.report(logProblem{Error: explain(err)})
	}
	return l.start(ctx, pods)
}

// end records that the log of a container ended. It is read again if the container is started again.
func (l *logStream) end(p logProblem) error {
	if err := l.sendLines(); err != nil {
		return err
	}
	delete(l.active, p.logTarget)
	return l.report(p)
}

// report sends an error, once until another one takes its place.
func (l *logStream) report(p logProblem) error {
	if p.Error == "" || l.reported[p.logTarget] == p.Error {
		return nil
	}
	l.reported[p.logTarget] = p.Error
	return l.out.send("problem", p)
}

// sendLines sends the lines that wait, as one event for each [maxLogEvent] bytes. The ID of an event is the time from
// which a client that connects again reads on.
func (l *logStream) sendLines() error {
	for len(l.lines) > 0 {
		var lines []logLine
		var latest time.Time
		for size := 0; len(l.lines) > 0 && size < maxLogEvent; {
			line := <-l.lines
			size += len(line.Text)
			lines = append(lines, line)
			if line.At.After(l.last[line.logTarget]) {
				l.last[line.logTarget] = line.At
			}
			if line.At.After(latest) {
				latest = line.At
			}
		}
		slices.SortStableFunc(lines, func(a, b logLine) int { return a.At.Compare(b.At) })
		if err := l.out.sendAs(latest, "lines", lines); err != nil {
			return err
		}
	}
	return nil
}
