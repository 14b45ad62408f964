package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-gitops/sluice/internal/cli/cluster"
	"github.com/sluice-gitops/sluice/internal/cli/install"
	"github.com/sluice-gitops/sluice/internal/cli/term"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/model/kind"
)

const (
	// controllerPods selects the Pods of the controllers.
	controllerPods = install.NameLabel + "=sluice"
	// maxLogLine is the maximum length of a log line in bytes.
	maxLogLine = 1 << 20
)

// logsCommand is `sluice logs`.
type logsCommand struct {
	*env
	allNamespaces, follow bool
	controllerNamespace   string
	level, kind, object   string
	since                 time.Duration
	sinceTime             string
	tail                  int64
}

func newLogsCommand(e *env) *cobra.Command {
	o := &logsCommand{env: e}
	c := &cobra.Command{
		Use:   "logs",
		Short: "Show the logs of the controllers, filtered by object",
		Example: `  sluice logs --follow --level error -A
  sluice logs --kind Kustomization --name app -n apps
  sluice logs --since 10m --tail 100`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := c.Flags()
	f.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, "lines about objects in all namespaces")
	f.BoolVarP(&o.follow, "follow", "f", false, "keep printing new lines")
	f.StringVar(&o.controllerNamespace, "flux-namespace", cluster.DefaultNamespace, "namespace of the controllers")
	f.StringVar(&o.level, "level", "", "only lines of this level: debug, info or error")
	f.StringVar(&o.kind, "kind", "", "only lines about objects of this kind, such as Kustomization")
	f.StringVar(&o.object, "name", "", "only lines about objects with this name")
	f.DurationVar(&o.since, "since", 0, "only lines newer than this duration, such as 10m")
	f.StringVar(&o.sinceTime, "since-time", "", "only lines newer than this time, such as 2026-01-02T15:04:05Z")
	f.Int64Var(&o.tail, "tail", -1, "number of last lines to read of each Pod, before other filters; -1 for all")
	return c
}

// filter returns the filter for lines, or a usage error.
func (o *logsCommand) filter() (*logFilter, error) {
	if err := optionalOneOf("level", o.level, "debug", "info", "error"); err != nil {
		return nil, err
	}
	f := &logFilter{level: o.level, kind: o.kind, name: o.object, namespace: o.NamespaceOr(o.allNamespaces)}
	if k := kind.ByWord(o.kind); k != nil {
		f.kind = k.Name()
	}
	return f, nil
}

// podOptions returns what to request of each Pod, or a usage error.
func (o *logsCommand) podOptions() (*corev1.PodLogOptions, error) {
	pod := &corev1.PodLogOptions{Follow: o.follow}
	switch {
	case o.since != 0 && o.sinceTime != "":
		return nil, usagef("--since and --since-time exclude each other")
	case o.since < 0:
		return nil, usagef("invalid --since %s: it is in the future", o.since)
	case o.since > 0:
		seconds := int64(max(o.since.Round(time.Second), time.Second).Seconds())
		pod.SinceSeconds = &seconds
	case o.sinceTime != "":
		at, err := time.Parse(time.RFC3339, o.sinceTime)
		if err != nil {
			return nil, usagef("invalid --since-time %q: use RFC 3339, such as 2026-01-02T15:04:05Z", o.sinceTime)
		}
		pod.SinceTime = &metav1.Time{Time: at}
	}
	if o.tail >= 0 {
		pod.TailLines = &o.tail
	}
	return pod, nil
}

func (o *logsCommand) run(ctx context.Context) error {
	filter, err := o.filter()
	if err != nil {
		return err
	}
	options, err := o.podOptions()
	if err != nil {
		return err
	}
	cfg, err := o.Config()
	if err != nil {
		return err
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	bounded, cancel := o.WithTimeout(ctx)
	defer cancel()
	pods, err := c.CoreV1().Pods(o.controllerNamespace).List(bounded, metav1.ListOptions{LabelSelector: controllerPods})
	if err != nil {
		return cluster.Explain("cannot list the Pods of the controllers", err)
	}
	if len(pods.Items) == 0 {
		return fmt.Errorf("no controllers found in namespace '%s'. Set --flux-namespace, or run sluice install",
			o.controllerNamespace)
	}
	read := func(ctx context.Context, pod *corev1.Pod) error {
		stream, err := c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
		if err != nil {
			return cluster.Explain("cannot read the log of Pod "+pod.Name, err)
		}
		defer func() { _ = stream.Close() }()
		return filter.copy(o.Out, stream)
	}
	if o.follow {
		return o.untilStopped(ctx, func(ctx context.Context) error { return followPods(ctx, pods.Items, read) })
	}
	var failures []error
	for i := range pods.Items {
		failures = append(failures, read(bounded, &pods.Items[i]))
	}
	return errors.Join(failures...)
}

// followPods reads all Pods at once, until ctx is cancelled or all streams end.
func followPods(ctx context.Context, pods []corev1.Pod, read func(context.Context, *corev1.Pod) error) error {
	failures := make([]error, len(pods))
	var following guard.WaitGroup
	for i := range pods {
		following.Go("reading a log", func() { failures[i] = read(ctx, &pods[i]) })
	}
	following.Wait()
	if ctx.Err() != nil {
		return nil // stopped by the user
	}
	return errors.Join(failures...)
}

// logFilter selects and formats log lines. Empty fields match all lines.
type logFilter struct {
	level, kind, name string
	namespace         string // of the object; lines without an object match unless kind or name are set
	writing           sync.Mutex
}

// copy writes the lines of a log that match.
func (f *logFilter) copy(out *term.Screen, log io.Reader) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		text, ok := f.format(out, lines.Bytes())
		if !ok {
			continue
		}
		f.writing.Lock()
		_, err := fmt.Fprintln(out, text)
		f.writing.Unlock()
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// format returns a line as text, and whether it matches. Lines that are not JSON match if only the namespace is set.
func (f *logFilter) format(out *term.Screen, raw []byte) (string, bool) {
	var fields map[string]any
	if json.Unmarshal(raw, &fields) != nil {
		return term.Printable(string(raw)), len(raw) > 0 && f.level == "" && f.kind == "" && f.name == ""
	}
	take := func(key string) string {
		s, _ := fields[key].(string)
		delete(fields, key)
		return s
	}
	at, level, message := take("ts"), take("level"), take("msg")
	logger, kind, namespace, name := take("logger"), take("controllerKind"), take("namespace"), take("name")
	if kind == "" {
		kind, _, _ = strings.Cut(logger, ".")
	}
	if f.level != "" && f.level != level || f.kind != "" && !strings.EqualFold(f.kind, kind) ||
		f.name != "" && f.name != name ||
		f.namespace != "" && namespace != "" && f.namespace != namespace {
		return "", false
	}
	object := kind
	if name != "" {
		object = fmt.Sprintf("%s/%s/%s", kind, namespace, name)
	}
	words := []string{term.Printable(at),
		out.Paint(map[string]string{"error": term.Red}[level], term.Printable(level)),
		term.Printable(object), "-", term.Printable(message)}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if text, ok := fields[key].(string); ok &&
			(key == "error" || key == "message" || key == "reason" || key == "revision") {
			words = append(words, key+"="+fmt.Sprintf("%q", text))
		}
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "), true
}
