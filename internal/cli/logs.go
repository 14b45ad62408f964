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
)

// logOptions of the logs command.
type logOptions struct {
	everywhere, follow               bool
	controllers, level, kind, object string
	since                            time.Duration
	sinceTime                        string
	tail                             int64
}

// controllerPods selects the pods of the controllers.
const controllerPods = "app=sluice"

func (a *app) logs() *cobra.Command {
	var o logOptions
	c := &cobra.Command{
		Use:   "logs",
		Short: "Show what the controllers say, of objects in a namespace or of one",
		Example: `  sluice logs --follow --level error -A
  sluice logs --kind Kustomization --name app -n apps
  sluice logs --since 10m --tail 100`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.showLogs(cmd.Context(), o) },
	}
	f := c.Flags()
	f.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "of objects in all namespaces")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on showing new lines")
	f.StringVar(&o.controllers, "flux-namespace", defaultNamespace, "namespace that the controllers run in")
	f.StringVar(&o.level, "level", "", "only lines of this level: debug, info or error")
	f.StringVar(&o.kind, "kind", "", "only lines about objects of this kind, such as Kustomization")
	f.StringVar(&o.object, "name", "", "only lines about objects of this name")
	f.DurationVar(&o.since, "since", 0, "only lines of this last while, such as 10m")
	f.StringVar(&o.sinceTime, "since-time", "", "only lines after this time, such as 2026-01-02T15:04:05Z")
	f.Int64Var(&o.tail, "tail", -1, "only so many of the last lines of each pod, before all other conditions; "+
		"-1 for all")
	return c
}

// pick returns the conditions on lines and what is asked of each pod.
func (a *app) pick(o logOptions) (*picker, *corev1.PodLogOptions, error) {
	p := &picker{level: o.level, name: o.object, namespace: a.namespace(), show: a.out}
	if o.everywhere {
		p.namespace = ""
	}
	if o.level != "" {
		if err := oneOf("level", o.level, "debug", "info", "error"); err != nil {
			return nil, nil, err
		}
	}
	if p.kind = o.kind; p.kind != "" {
		if k := byWord(o.kind); k != nil {
			p.kind = k.title()
		}
	}
	pod := &corev1.PodLogOptions{Follow: o.follow}
	switch {
	case o.since != 0 && o.sinceTime != "":
		return nil, nil, usagef("--since and --since-time say the same: give one")
	case o.since < 0:
		return nil, nil, usagef("--since %s is in the future", o.since)
	case o.since > 0:
		seconds := int64(max(o.since.Round(time.Second), time.Second).Seconds())
		pod.SinceSeconds = &seconds
	case o.sinceTime != "":
		at, err := time.Parse(time.RFC3339, o.sinceTime)
		if err != nil {
			return nil, nil, usagef("--since-time %q: write it as 2026-01-02T15:04:05Z", o.sinceTime)
		}
		pod.SinceTime = &metav1.Time{Time: at}
	}
	if o.tail >= 0 {
		pod.TailLines = &o.tail
	}
	return p, pod, nil
}

func (a *app) showLogs(ctx context.Context, o logOptions) error {
	p, ask, err := a.pick(o)
	if err != nil {
		return err
	}
	cfg, err := a.config()
	if err != nil {
		return err
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	pods, err := c.CoreV1().Pods(o.controllers).List(bounded, metav1.ListOptions{LabelSelector: controllerPods})
	if err != nil {
		return explain("cannot list the pods of the controllers", err)
	}
	if len(pods.Items) == 0 {
		return fmt.Errorf("no controllers run in namespace '%s'. Say by --flux-namespace where they do, or run "+
			"sluice install", o.controllers)
	}
	reading := bounded
	if o.follow {
		reading = ctx
	}
	failures := make([]error, len(pods.Items))
	read := func(i int) {
		pod := &pods.Items[i]
		stream, err := c.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, ask).Stream(reading)
		if err != nil {
			failures[i] = explain("cannot read the log of pod "+pod.Name, err)
			return
		}
		defer stream.Close() // only read
		failures[i] = p.read(stream)
	}
	if !o.follow {
		for i := range pods.Items {
			read(i)
		}
		return errors.Join(failures...)
	}
	var following sync.WaitGroup
	for i := range pods.Items {
		following.Go(func() { read(i) })
	}
	following.Wait()
	if ctx.Err() != nil {
		return nil // stopped by the person
	}
	return errors.Join(failures...)
}

// picker shows the lines of logs that meet all conditions; an empty one is always met.
type picker struct {
	level, kind, name string
	namespace         string // of the object; lines about none are shown unless kind or name are given
	show              *screen
	writing           sync.Mutex
}

// maxLogLine bounds a line, in bytes.
const maxLogLine = 1 << 20

func (p *picker) read(log io.Reader) error {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		text, ok := p.line(lines.Bytes())
		if !ok {
			continue
		}
		p.writing.Lock()
		_, err := fmt.Fprintln(p.show, text)
		p.writing.Unlock()
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// line words a line for people, and tells whether it is asked for.
func (p *picker) line(raw []byte) (string, bool) {
	var fields map[string]any
	if json.Unmarshal(raw, &fields) != nil {
		return printable(string(raw)), len(raw) > 0 && p.level == "" && p.kind == "" && p.name == ""
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
	if p.level != "" && p.level != level || p.kind != "" && !strings.EqualFold(p.kind, kind) ||
		p.name != "" && p.name != name ||
		p.namespace != "" && namespace != "" && p.namespace != namespace {
		return "", false
	}
	about := kind
	if name != "" {
		about = fmt.Sprintf("%s/%s/%s", kind, namespace, name)
	}
	words := []string{printable(at), p.show.paint(map[string]string{"error": red}[level], printable(level)),
		printable(about), "-", printable(message)}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if text, ok := fields[key].(string); ok &&
			(key == "error" || key == "message" || key == "reason" || key == "revision") {
			words = append(words, key+"="+fmt.Sprintf("%q", text))
		}
	}
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "), true
}
