// Package hub is the server that clusters report to. It keeps what they report, and answers those who may read it. It
// knows no kubeconfig, and sends no request to a cluster.
package hub

import "net/http"

// Streams are the connections that clusters opened to the hub, for requests to their UI.
type Streams interface {
	// Accept makes the connection of a request, by which an authenticated cluster opens its stream, that stream.
	Accept(w http.ResponseWriter, r *http.Request, cluster string)
	// Forward sends a request of a user to the UI of a cluster. The hub has removed its own part of the path, and has
	// not authenticated the user: the cluster does.
	Forward(w http.ResponseWriter, r *http.Request, cluster string)
	// IsLinked reports whether the cluster has a stream, to this replica. It is called with the hub's lock held: call
	// [Hub.Linked] without a lock that IsLinked needs.
	IsLinked(cluster string) bool
}
