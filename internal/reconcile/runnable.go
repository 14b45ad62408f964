package reconcile

import "context"

// OnEveryReplica is a function that a manager runs on every replica, not only on the leader. It implements
// manager.Runnable and manager.LeaderElectionRunnable.
type OnEveryReplica func(ctx context.Context) error

// Start implements manager.Runnable.
func (f OnEveryReplica) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (OnEveryReplica) NeedLeaderElection() bool { return false }
