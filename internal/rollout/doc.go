// Package rollout holds what all controllers that deploy objects to clusters share: the target cluster and the identity
// to use there, dependencies, health checks, drift reports, previews of changes, inventories, and events about changes.
//
// Its functions take the owner as a [reconcile.Ref] and the parts of the owner's spec as plain values. It contains
// nothing about Kustomizations or any other kind, and does not import a controller.
package rollout
