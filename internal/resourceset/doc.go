// Package resourceset reconciles ResourceSets: it renders templates with sets of inputs and applies the objects.
// Rendering is in package expand, which runs in a child process; what a pass does with the cluster is in package
// rollout.
package resourceset
