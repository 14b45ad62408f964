// Package reconcile is the kernel: the one loop that every kind shares.
//
// It owns loading, finalizers, suspension, reconcile requests, conditions by the kstatus contract, the status patch,
// events, requeueing and wake-ups. A kind's controller holds only its domain step and returns an [Outcome].
// The kernel knows no kind: it may import nothing of Sluice but the API's shared types and faults.
package reconcile
