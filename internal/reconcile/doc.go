// Package reconcile is the kernel: one reconcile loop that all kinds share.
//
// The kernel loads objects and handles finalizers, suspension, reconcile requests, gates, conditions (by the kstatus
// contract), the status patch, events and requeueing. The controller of a kind implements [Step] and returns an
// [Outcome]. A step that has to wait for more than a few seconds returns [Progressing] or [Waiting] instead, and an
// edge or a deadline enqueues the object again. So a few workers serve many objects.
//
// The kernel contains nothing about any kind: of this module it imports only the shared API types and packages without
// controllers.
package reconcile
