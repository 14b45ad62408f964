package ui

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/internal/ui/state"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// Bounds of reading the metrics of the controllers.
const (
	maxMetricPods  = 5
	maxMetricBytes = 8 << 20
	metricTimeout  = 5 * time.Second
	metricPort     = "metrics" // of a pod of the controllers
	podsOfSluice   = "app.kubernetes.io/name=sluice"
)

// processes are the controllers with what they do now.
type processes struct {
	*state.Controllers

	Queue    *queue    `json:"queue,omitempty"`   // nil if it is not known
	LastSync time.Time `json:"lastSync,omitzero"` // when an object that the user may see was applied or released last
}

// queue is what waits for the controllers.
type queue struct {
	Waiting int `json:"waiting"` // passes of objects
	Working int `json:"working"`
	Pods    int `json:"pods"` // whose metrics were read
}

// processes returns the leader, the replicas and the queue of the controllers, as far as the user may read them.
func (s *Server) processes(ctx context.Context, u *User, _ *http.Request) (any, error) {
	may, err := s.filter(ctx, u)
	if err != nil {
		return nil, err
	}
	p := &processes{Controllers: state.ReadControllers(ctx, u.Client, s.Namespace, s.Now()),
		LastSync: lastSync(s.Model.List(may))}
	var why string
	if p.Queue, why = s.readQueue(ctx, u); why != "" {
		p.Hidden = append(p.Hidden, why)
	}
	return p, nil
}

// lastSync returns when one of the items was applied or released last.
func lastSync(items []*view.Item) (last time.Time) {
	for _, i := range items {
		if n := len(i.Past); n > 0 && i.Past[n-1].At.After(last) {
			last = i.Past[n-1].At
		}
	}
	return last
}

// readQueue reads the metrics of the pods of the controllers, through the API server. It returns why they are not
// known; both results are empty if no pod of the controllers runs in the cluster.
func (s *Server) readQueue(ctx context.Context, u *User) (q *queue, why string) {
	ctx, cancel := context.WithTimeout(ctx, metricTimeout)
	defer cancel()
	pods, err := u.Cluster.CoreV1().Pods(s.Namespace).List(ctx, metav1.ListOptions{LabelSelector: podsOfSluice})
	if err != nil {
		return nil, "you may not list Pods in namespace '" + s.Namespace + "'"
	}
	running := slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning })
	if len(running) == 0 {
		return nil, ""
	}
	q = &queue{}
	for _, p := range running[:min(len(running), maxMetricPods)] {
		if err := q.add(ctx, u, &p); err != nil {
			return nil, "the metrics of Pod '" + p.Name + "' cannot be read: this needs the right to get pods/proxy " +
				"in namespace '" + s.Namespace + "'"
		}
	}
	return q, ""
}

// add adds what waits in a process.
func (q *queue) add(ctx context.Context, u *User, p *corev1.Pod) error {
	answer, err := u.Cluster.CoreV1().Pods(p.Namespace).ProxyGet("http", p.Name, metricPort, "metrics", nil).Stream(ctx)
	if err != nil {
		return err
	}
	defer answer.Close() // only read
	q.Pods++
	return q.read(io.LimitReader(answer, maxMetricBytes))
}

// read sums the queues of all kinds in the text format of Prometheus.
func (q *queue) read(metrics io.Reader) error {
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		series, value, _ := strings.Cut(lines.Text(), "} ")
		name, _, _ := strings.Cut(series, "{")
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		switch {
		case err != nil:
		case name == "workqueue_depth":
			q.Waiting += int(n)
		case name == "controller_runtime_active_workers":
			q.Working += int(n)
		}
	}
	return lines.Err()
}
