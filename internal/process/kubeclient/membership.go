package kubeclient

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
)

// Label and annotation of the Lease of a replica that shares objects with others.
const (
	// ReplicasLabel is the same for all replicas that share their objects.
	ReplicasLabel = "shards.sluice.dev/group"
	// ViewAnnotation is the view that the replica acts on: the IDs of the replicas, as of [shard.View].
	ViewAnnotation = "shards.sluice.dev/replicas"
)

const (
	replicaPrefix = "sluice-replica-"
	// staleLeases is how many lease durations after its last renewal the Lease of a dead replica is deleted.
	staleLeases = 5
	// memberRetry is how long a replica waits after a failed request for leases.
	memberRetry = time.Second
	maxHostName = 40 // characters of a replica's ID
)

// removeTimeout is how long a replica that stops waits until its lease is deleted.
var removeTimeout = 5 * time.Second

// errLost is the error of a replica whose lease is not valid any longer.
var errLost = errors.New("the lease of this replica ended before it could be renewed")

// Membership makes a process one of the replicas that share all objects. Each replica has a Lease of its own, which it
// renews, and which names the view that it acts on; see package shard. A replica whose lease ends takes part again
// under another ID, as soon as its work has ended.
type Membership struct {
	leases   coordinationclient.LeaseInterface // not fenced
	shards   *shard.Shards
	fence    *Fence
	health   *Health
	group    string
	host     string
	duration time.Duration // after which a lease that is not renewed has ended
	deadline time.Duration // after which this replica does not use its own any longer
	renewal  time.Duration // between renewals
	now      func() time.Time
}

// NewMembership returns the membership of a process with these options. The configuration must not be fenced.
func NewMembership(cfg *rest.Config, o options.Options, shards *shard.Shards, fence *Fence, health *Health,
) (*Membership, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("cannot share objects with other replicas: cannot get the host name: %w", err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent, cfg.QPS, cfg.Timeout = "sluice-replica", -1, 0
	c, err := coordinationclient.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("cannot share objects with other replicas: %w", err)
	}
	m := &Membership{leases: c.Leases(o.RuntimeNamespace), shards: shards, fence: fence, health: health,
		group: fmt.Sprintf("%x", sha256.Sum256([]byte(o.LeaseName())))[:16], host: host,
		duration: o.LeaseDuration, deadline: o.RenewDeadline, renewal: o.RetryPeriod, now: o.GetClock().Now}
	m.reportWaiting("this replica has no lease yet")
	return m, nil
}

func (m *Membership) reportWaiting(reason string) {
	if m.health != nil {
		m.health.Set("shards", reason)
	}
}

var notInIDs = regexp.MustCompile(`[^a-z0-9-]+`)

// newID returns an ID that no process had before.
func newID(host string) string {
	host = notInIDs.ReplaceAllString(strings.ToLower(host), "-")
	host = strings.Trim(host[max(0, len(host)-maxHostName):], "-")
	return host + "-" + string(uuid.NewUUID())[:8]
}

// Run takes part until ctx ends. The controllers must have ended their work before.
func (m *Membership) Run(ctx context.Context) error {
	changes := make(chan leaseChange, 100)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	guard.Go("watching replicas", func() { m.watch(watching, changes) })
	for ctx.Err() == nil {
		r := &replica{Membership: m, changes: changes, others: map[string]*other{}}
		if err := r.takePart(ctx); err != nil && ctx.Err() == nil {
			log.Log.Error(err, "this replica does not reconcile objects until it has a lease again")
			m.reportWaiting("this replica lost its lease, and takes part again")
			pause(ctx, memberRetry)
		}
	}
	return nil
}

// leaseChange is a change of a Lease that the watch reported.
type leaseChange struct {
	id, version string
	view        shard.View
	deleted     bool
}

// watch reports changes of the leases of all replicas.
func (m *Membership) watch(ctx context.Context, changes chan<- leaseChange) {
	for ctx.Err() == nil {
		w, err := m.leases.Watch(ctx, metav1.ListOptions{LabelSelector: ReplicasLabel + "=" + m.group,
			TimeoutSeconds: ptr.To(int64(300))})
		if err != nil {
			pause(ctx, memberRetry)
			continue
		}
		for e := range w.ResultChan() {
			l, ok := e.Object.(*coordinationv1.Lease)
			if !ok {
				continue
			}
			select {
			case changes <- leaseChange{id: idOf(l), version: l.ResourceVersion,
				view: shard.ParseView(l.Annotations[ViewAnnotation]), deleted: e.Type == apiwatch.Deleted}:
			case <-ctx.Done():
			}
		}
		w.Stop()
	}
}

// idOf returns the ID of the replica that has a Lease; empty if it is not that of a replica. The name cannot be
// changed, so a Lease that was edited still stands for its replica.
func idOf(l *coordinationv1.Lease) string {
	if !strings.HasPrefix(l.Name, replicaPrefix) {
		return ""
	}
	return strings.TrimPrefix(l.Name, replicaPrefix)
}

// lease returns the Lease of a replica at a time.
func (m *Membership) lease(id string, at time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: replicaPrefix + id, Labels: map[string]string{ReplicasLabel: m.group},
			Annotations: map[string]string{ViewAnnotation: ""}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &id, AcquireTime: &metav1.MicroTime{Time: at},
			RenewTime: &metav1.MicroTime{Time: at}, LeaseDurationSeconds: ptr.To(int32(max(1, m.duration.Seconds())))},
	}
}
