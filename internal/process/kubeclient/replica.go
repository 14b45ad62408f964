package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/reconcile/shard"
)

// replica is one lease of this process, from when it is created until it ends.
type replica struct {
	*Membership
	id      string
	lease   *coordinationv1.Lease // as written last
	renewed time.Time             // when the last renewal began
	changes <-chan leaseChange

	others   map[string]*other // by ID
	view     shard.View        // published
	next     shard.View        // about to be published
	drained  <-chan struct{}   // closed when next may be published; nil if there is none
	reported int               // replicas that were logged last
}

// other is another replica, as it was listed last.
type other struct {
	view    shard.View
	version string    // resource version of its Lease
	seen    time.Time // when this process saw the version first
	uid     types.UID
	expires time.Duration // after the last renewal
}

// takePart creates the lease, and follows the other replicas until ctx ends, or the lease does. Then this replica owns
// nothing, and its work has ended.
func (r *replica) takePart(ctx context.Context) error {
	r.id = newID(r.host)
	if err := r.create(ctx); err != nil {
		return err
	}
	r.shards.Join(r.id)
	err := r.follow(ctx)
	left := r.shards.Leave()
	r.fence.release()
	select {
	case <-left:
	case <-ctx.Done(): // the controllers have ended
	}
	r.remove()
	return err
}

// follow renews the lease, and adapts to the other replicas.
func (r *replica) follow(ctx context.Context) error {
	for {
		pause, err := r.step(ctx)
		if err != nil {
			return err
		}
		if !r.wait(ctx, pause) {
			return nil
		}
	}
}

// wait returns when something is due; false if ctx has ended.
func (r *replica) wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-r.drained:
			r.drained = nil
			return true
		case c := <-r.changes:
			if r.isNews(c) {
				return true
			}
		}
	}
}

// isNews reports whether the leases must be listed because of a change. A renewal is only recorded.
func (r *replica) isNews(c leaseChange) bool {
	if c.id == r.id {
		return c.deleted
	}
	o := r.others[c.id]
	if o == nil || c.deleted || !c.view.Equal(o.view) {
		return true
	}
	if o.version != c.version {
		o.version, o.seen = c.version, r.now()
	}
	return false
}

// step does what is due: a renewal, another view, a look at the others. It returns when something may be due again.
func (r *replica) step(ctx context.Context) (pause time.Duration, err error) {
	now := r.now()
	if now.Sub(r.renewed) >= r.deadline {
		return 0, errLost
	}
	publishes := r.next != nil && r.drained == nil
	if publishes || now.Sub(r.renewed) >= r.renewal {
		view := r.view
		if publishes {
			view = r.next
		}
		if err := r.write(ctx, view); errors.Is(err, errLost) {
			return 0, err
		} else if err != nil { // perhaps it was written: nothing else happens before it is written again
			r.logFailure(ctx, err, "cannot renew the lease of this replica")
			return memberRetry, nil
		}
		if publishes {
			r.view, r.next = r.next, nil
		}
	}
	switch err := r.list(ctx); {
	case errors.Is(err, errLost):
		return 0, err
	case err != nil:
		r.logFailure(ctx, err, "cannot list the replicas")
		return memberRetry, nil
	}
	return r.adapt(), nil
}

// logFailure logs that a request failed, unless it was canceled as the process stops.
func (r *replica) logFailure(ctx context.Context, err error, message string) {
	if ctx.Err() == nil {
		log.Log.Error(err, message, "replica", r.id)
	}
}

// create creates the lease, with an empty view.
func (r *replica) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	at := r.now()
	l, err := r.leases.Create(ctx, r.Membership.lease(r.id, at), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("cannot create a Lease for this replica: %w", err)
	}
	r.lease, r.renewed = l, at
	r.fence.renew(at)
	return nil
}

// write renews the lease, and publishes a view. A renewal counts from the time before its request.
func (r *replica) write(ctx context.Context, view shard.View) error {
	at := r.now()
	ctx, cancel := context.WithTimeout(ctx, max(memberRetry, r.deadline-at.Sub(r.renewed)))
	defer cancel()
	l := r.lease.DeepCopy()
	own := r.Membership.lease(r.id, at).Spec // others may have edited it
	own.AcquireTime, l.Spec = l.Spec.AcquireTime, own
	l.Annotations[ViewAnnotation] = view.String()
	l, err := r.leases.Update(ctx, l, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: it was deleted", errLost)
	case apierrors.IsConflict(err): // an earlier request was done although it failed, or others edited the Lease
		return errors.Join(err, r.reread(ctx))
	case err != nil:
		return err
	}
	if r.now().Sub(r.renewed) >= r.deadline {
		return errLost // the answer came too late: others may have taken over in between
	}
	r.lease, r.renewed = l, at
	r.fence.renew(at)
	return nil
}

// reread reads the lease, so that it can be written again.
func (r *replica) reread(ctx context.Context) error {
	l, err := r.leases.Get(ctx, r.lease.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && l.UID != r.lease.UID:
		return fmt.Errorf("%w: it was deleted", errLost)
	case err != nil:
		return err
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	r.lease = l
	return nil
}

// list reads the leases of all replicas, as the API server has them now. A lease has ended if it is the same as before,
// and this process saw it first longer ago than it lasts.
func (r *replica) list(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.deadline)
	defer cancel()
	found, err := r.leases.List(ctx, metav1.ListOptions{LabelSelector: ReplicasLabel + "=" + r.group})
	if err != nil {
		return err
	}
	now, listed, mine := r.now(), map[string]*other{}, false
	for i := range found.Items {
		l := &found.Items[i]
		if l.UID == r.lease.UID {
			mine = true
			continue
		}
		id := idOf(l)
		if id == "" {
			continue
		}
		o := &other{view: shard.ParseView(l.Annotations[ViewAnnotation]), version: l.ResourceVersion, seen: now,
			uid: l.UID, expires: min(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0))*time.Second,
				options.MaxLeaseDuration)}
		if before := r.others[id]; before != nil && before.version == o.version {
			o.seen = before.seen
		}
		listed[id] = o
	}
	r.others = listed
	if !mine {
		return fmt.Errorf("%w: it was deleted", errLost)
	}
	return nil
}

// adapt makes the shards follow the replicas that are alive. It returns when something may be due again.
func (r *replica) adapt() time.Duration {
	now := r.now()
	pause := r.renewal - now.Sub(r.renewed)
	alive, peers := []string{r.id}, map[string]shard.View{}
	for id, o := range r.others {
		left := max(o.expires, r.duration) - now.Sub(o.seen)
		if left <= 0 {
			r.bury(id, o, now)
			continue
		}
		alive, peers[id] = append(alive, id), o.view
		pause = min(pause, left)
	}
	wanted := shard.NewView(alive...)
	drained := r.shards.Follow(r.view, wanted, peers)
	if r.next, r.drained = nil, nil; !wanted.Equal(r.view) {
		r.next, r.drained = wanted, drained
	}
	r.report()
	return max(pause, time.Millisecond)
}

// report logs how many replicas share the objects, and reports that this one takes part.
func (r *replica) report() {
	n := r.shards.Replicas()
	if n == 0 || n == r.reported {
		return
	}
	r.reported = n
	r.reportWaiting("")
	log.Log.Info("replicas share all objects", "replica", r.id, "replicas", n)
}

// bury deletes the lease of a replica that is dead for long, unless it was renewed since.
func (r *replica) bury(id string, o *other, now time.Time) {
	if now.Sub(o.seen) < staleLeases*max(o.expires, r.duration) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), memberRetry)
	defer cancel()
	_ = r.leases.Delete(ctx, replicaPrefix+id, metav1.DeleteOptions{ // else a later look deletes it
		Preconditions: &metav1.Preconditions{UID: &o.uid, ResourceVersion: &o.version}})
}

// remove deletes the lease, so that others take over at once.
func (r *replica) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	_ = r.leases.Delete(ctx, r.lease.Name, metav1.DeleteOptions{ // else it ends
		Preconditions: &metav1.Preconditions{UID: &r.lease.UID}})
}
