// Package kustomization is the Kustomization controller. controller.go lists the steps of a pass in order;
// each step has its own file: source, admit, build, apply, prune, health, report. What a pass needs from the
// previous ones is in state.go.
//
// The controller decides which steps a change requires. Building, applying and health checks themselves are done by the
// packages build, apply, health and rollout.
package kustomization
