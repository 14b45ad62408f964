// Package kubewatch runs watches of a cluster's objects. All subscribers to the same objects share one watch. The store
// keeps only the values that a projection makes of the objects, so it is small for large clusters. The package does not
// depend on what the values are used for, and writes nothing to the cluster.
package kubewatch
