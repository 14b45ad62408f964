// Package fleet is what clusters report to a hub, and what the hub answers: types, bounds and paths. It sends nothing.
//
// A hub only watches. Each cluster reconciles itself and sends a [Summary] of itself. Nothing that a hub answers
// changes what a cluster applies, except that a gate may ask the hub.
//
// # The HTTP API of a hub
//
// All bodies are JSON. Errors have the body of [Error].
//
//	POST /fleet/v1/reports                 a cluster sends its [Report]
//	POST /fleet/v1/stream                  a cluster opens its stream: HTTP/1.1 with Upgrade
//	GET  /fleet/v1/clusters                [List]; with ?since=VERSION only what changed after that version, and
//	                                       with &wait=25s the answer comes when something changed, or after that time;
//	                                       with ?labels=SELECTOR only clusters with these labels
//	GET  /fleet/v1/clusters/NAME           [Cluster]
//	GET  /fleet/v1/rollout                 [Rollout], for a [Question]
//	ANY  /fleet/v1/clusters/NAME/ui/PATH   the request goes through the stream of the cluster, as PATH
//
// Reports and streams need the bearer token of a ServiceAccount of the cluster, and the name of the cluster in the
// header [ClusterHeader]. A Secret of the hub with the label [ClusterLabel] says which issuer, subject and audience is
// which cluster, so a cluster speaks for itself only.
//
// Reads need the bearer token of a user of the hub's cluster (TokenReview), who may `list` or `get` the resource
// `clusters` of the API group [Group] (SubjectAccessReview); no such resource exists. The name of the cluster is the
// name of the resource, so a role can grant to get some clusters. The token of a cluster with its [ClusterHeader] is
// good for reads as well, if its Secret says so: other clusters are then shown without their problems and changes, so
// that gates can ask how far a revision has come.
//
// Requests through a stream are not authenticated by the hub: the cluster does that, by the token in the request. For
// people who are logged in at the hub by OIDC, that is their ID token, if the Secret of the cluster says so.
package fleet

import (
	"context"
	"time"
)

// Names of the API.
const (
	Group        = "fleet.toolkit.fluxcd.io"
	Resource     = "clusters"
	ClusterLabel = "sluice.dev/cluster" // of the Secrets that say whom the hub trusts; its value is the cluster's name

	ClusterHeader = "Sluice-Cluster" // the name of a cluster that sends a request
	// TokenHeader has the token of a user instead of Authorization, which an API server that proxies removes.
	TokenHeader = "Sluice-Token"

	Service = "sluice-hub" // of an installation, with port 443

	ReportsPath  = "/fleet/v1/reports"
	StreamPath   = "/fleet/v1/stream"
	ClustersPath = "/fleet/v1/clusters"
)

// Keys of the Secrets that register clusters. The values are not secret.
const (
	IssuerKey   = "issuer"
	SubjectKey  = "subject"
	AudienceKey = "audience"
	KeysKey     = "jwks"   // the public keys of the issuer, for one that the hub cannot reach
	LabelsKey   = "labels" // region=eu,stage=production
	ReadsKey    = "reads"  // true: the cluster may read how far the others are
	SSOKey      = "sso"    // true: the cluster gets the ID tokens of people who use it by the hub
)

// DefaultSubject is the user that reports without another subject: the ServiceAccount of an installation.
const DefaultSubject = "system:serviceaccount:flux-system:sluice"

// Times of the protocol.
const (
	// ReportInterval is how often a cluster reports, with or without a change.
	ReportInterval = time.Minute
	// SilentAfter is the age of the last report of a cluster that is shown as silent.
	SilentAfter = 3 * time.Minute
	// MaxSkew is how far the clock of a cluster may be ahead of the hub's.
	MaxSkew = 10 * time.Minute
)

// Report is what a cluster sends. Without a summary, it is a heartbeat: the last one that this instance sent with the
// sequence number still holds. The hub answers 204, or 409 if it does not have that summary.
type Report struct {
	Cluster  string `json:"cluster"`
	Instance string `json:"instance"` // random, of the reporting process
	// Sequence of the summary. It grows with each summary of an instance.
	Sequence int64    `json:"sequence"`
	Summary  *Summary `json:"summary,omitempty"`
}

// Counts is a number of objects by state, one of [States].
type Counts map[string]int

// Summary is the state of a cluster. Its size does not depend on the number of objects.
type Summary struct {
	Labels  map[string]string `json:"labels,omitempty"`
	Time    time.Time         `json:"time"` // when it was made, by the clock of the cluster
	Version string            `json:"version"`
	// HasStream is true if the cluster has a stream to a replica of the hub.
	HasStream bool `json:"stream,omitempty"`

	Counts Counts `json:"counts"`
	// Kinds are the counts of each kind.
	Kinds     map[string]Counts `json:"kinds,omitempty"`
	Revisions []Revision        `json:"revisions,omitempty"` // of sources, latest change first
	Problems  []Problem         `json:"problems,omitempty"`  // worst first
	Changes   []Change          `json:"changes,omitempty"`   // that wait at gates, oldest first
	Omitted   Omitted           `json:"omitted,omitzero"`
}

// Omitted is how many entries a summary leaves out.
type Omitted struct {
	Revisions int `json:"revisions,omitempty"`
	Problems  int `json:"problems,omitempty"`
	Changes   int `json:"changes,omitempty"`
}

// Revision is the revision of a source, and how far it has come in the cluster.
type Revision struct {
	Source    string    `json:"source"` // Kind/namespace/name
	URL       string    `json:"url,omitempty"`
	Revision  string    `json:"revision"` // such as main@sha1:…
	Subject   string    `json:"subject,omitempty"`
	Author    string    `json:"author,omitempty"`
	Committed time.Time `json:"committed,omitzero"`
	Fetched   time.Time `json:"fetched,omitzero"`

	Objects int `json:"objects"` // that are built from it: Kustomizations, and HelmReleases of charts in OCI
	Current int `json:"current"` // of these, that applied the revision and are Ready
	// Since is when the last of these became Ready at the revision; zero while one of them is not.
	Since   time.Time `json:"since,omitzero"`
	Applied []Applied `json:"applied,omitempty"` // other revisions that objects have applied
}

// Applied is another revision of a source that objects have applied.
type Applied struct {
	Revision string `json:"revision"`
	Subject  string `json:"subject,omitempty"`
	Objects  int    `json:"objects"`
}

// Problem is an object that failed.
type Problem struct {
	Object   string    `json:"object"` // Kind/namespace/name
	State    string    `json:"state"`
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
	Since    time.Time `json:"since,omitzero"`
	Affected int       `json:"affected,omitempty"` // other objects that fail or wait because of it
}

// Change is a revision of an object that waits at a gate.
type Change struct {
	Gate     string    `json:"gate"`   // Gate/namespace/name
	Object   string    `json:"object"` // Kind/namespace/name
	Revision string    `json:"revision"`
	Digest   string    `json:"digest,omitempty"` // of the change, if it is known
	Risk     string    `json:"risk,omitempty"`
	Message  string    `json:"message,omitempty"` // why it waits
	Since    time.Time `json:"since,omitzero"`
	Until    time.Time `json:"until,omitzero"` // when the gate opens by itself
	// Required and Approved are numbers of approvals. Users and Groups may approve; anybody with the right to do so in
	// the cluster if both are empty.
	Required int      `json:"required,omitempty"`
	Approved int      `json:"approved,omitempty"`
	Users    []string `json:"users,omitempty"`
	Groups   []string `json:"groups,omitempty"`
}

// Status is whether a hub hears of a cluster.
type Status string

// Statuses of clusters.
const (
	Reporting Status = "Reporting"
	Silent    Status = "Silent"   // the last report is too old
	Expected  Status = "Expected" // it is registered, but has never reported
)

// Cluster is what a hub knows about a cluster.
type Cluster struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"` // those of the Secret take precedence over those of the summary
	Status Status            `json:"status"`
	// Received is when the hub last heard of the cluster, by the clock of the hub.
	Received time.Time `json:"received,omitzero"`
	// Skew is how many seconds the clock of the cluster is ahead of the hub's, if that is more than a minute.
	Skew     int    `json:"skew,omitempty"`
	IsLinked bool   `json:"linked,omitempty"`  // it has a stream to the hub, so its UI can be reached
	Refused  string `json:"refused,omitempty"` // why the last report was refused, if none was accepted since
	// Summary is the last one. A list has only the worst problem in it, and leaves out the counts by kind.
	Summary *Summary `json:"summary,omitempty"`
}

// List is the answer to a read of all clusters, by name.
type List struct {
	Version  string    `json:"version"` // for ?since=
	Time     time.Time `json:"time"`    // of the hub
	Partial  bool      `json:"partial,omitempty"`
	Clusters []Cluster `json:"clusters"`
	Removed  []string  `json:"removed,omitempty"` // names, since the version that was asked for
}

// Error is the body of an answer that is an error.
type Error struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"` // what to do
}

// Reader reads what a hub knows: the hub itself, or a client of it.
type Reader interface {
	// List returns all clusters, or with a version of an earlier list those that changed since. With a wait, it returns
	// when something changed, or after that time.
	List(ctx context.Context, since string, wait time.Duration) (*List, error)
	// Get returns a cluster. The error is [ErrNotFound] if the hub does not know it.
	Get(ctx context.Context, name string) (*Cluster, error)
}
