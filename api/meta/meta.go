// Package meta holds the types that the API kinds share: references, artifacts, conditions and the common
// part of every status. It contains types and getters only.
// +kubebuilder:object:generate=true
package meta

import (
	"path"
	"strings"
	"time"
)

// ReconcileRequestAnnotation requests a reconcile now. The last handled value is written to
// status.lastHandledReconcileAt.
const ReconcileRequestAnnotation = "reconcile.fluxcd.io/requestedAt"

// LocalObjectReference references an object in the namespace of the referencing object.
type LocalObjectReference struct {
	// Name of the referent.
	// +required
	Name string `json:"name"`
}

// Artifact is the packaged content of a source at a revision.
type Artifact struct {
	// Path is the file's path relative to the root of the artifact store.
	// +required
	Path string `json:"path"`

	// URL is the HTTP address at which the artifact is served in the cluster.
	// +required
	URL string `json:"url"`

	// Revision is a human-readable identifier that can be traced in the origin system.
	// +required
	Revision string `json:"revision"`

	// Digest of the file, as <algorithm>:<hex>.
	// +required
	// +kubebuilder:validation:Pattern="^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[a-zA-Z0-9=_-]+$"
	Digest string `json:"digest"`

	// LastUpdateTime is when the artifact was last written.
	// +required
	LastUpdateTime Time `json:"lastUpdateTime"`

	// Size of the file in bytes.
	// +optional
	Size *int64 `json:"size,omitempty"`

	// Metadata holds upstream information such as annotations.
	// +optional
	Metadata map[string]string `json:"metadata,omitempty"`

	// Checksum is the SHA256 of the file in hex, for clients of v1beta1 and v1beta2.
	// Deprecated: use Digest.
	// +optional
	Checksum string `json:"checksum,omitempty"`
}

// Annotations of OCI artifacts that hold the revision their content was built from, and the URL of its repository
// (https://specs.opencontainers.org/image-spec/annotations/).
const (
	OriginRevisionKey = "org.opencontainers.image.revision"
	OriginURLKey      = "org.opencontainers.image.source"
)

// TraceKey is the key of an artifact's metadata, and the annotation of an OCI artifact, that names the OpenTelemetry
// trace of the change (https://www.w3.org/TR/trace-context/#traceparent-header).
const TraceKey = "traceparent"

// Keys of the metadata of a GitRepository's artifact.
const (
	RepositoryURLKey = "source.toolkit.fluxcd.io/url"            // URL of the repository, without credentials
	CommitAuthorKey  = "source.toolkit.fluxcd.io/commit-author"  // name and email address
	CommitNoteKey    = "source.toolkit.fluxcd.io/commit-note"    // git note in refs/notes/sluice, 4 KiB at most
	CommitSubjectKey = "source.toolkit.fluxcd.io/commit-subject" // first paragraph of the message, on one line
	CommitTimeKey    = "source.toolkit.fluxcd.io/commit-time"    // when it was committed, as RFC 3339
)

// ReceiverFieldOwner is the field manager of requests that a Receiver makes for a webhook.
const ReceiverFieldOwner = "sluice-receiver"

// Keys of the metadata of events that describe an artifact.
const (
	EventRevisionKey       = "revision"
	EventOriginRevisionKey = "originRevision"
	EventOriginURLKey      = "originURL" // URL of the repository of the revision, without credentials
	EventCommitAuthorKey   = "commit_author"
	EventCommitMessageKey  = "commit_message"
	EventNoteKey           = "note" // content of refs/notes/sluice of the applied commit
)

// EventCommitStatusKey is the metadata of an event that only updates a commit status.
const (
	EventCommitStatusKey    = "commit_status"
	EventCommitStatusUpdate = "update"
)

// OriginRevision returns the revision that the content of an OCI artifact was built from, such as a commit;
// empty if unknown.
func (a *Artifact) OriginRevision() string {
	if a == nil {
		return ""
	}
	return a.Metadata[OriginRevisionKey]
}

// HasRevision reports whether the artifact has the given revision. A nil artifact has no revision.
func (a *Artifact) HasRevision(revision string) bool {
	return a != nil && a.Revision == revision
}

// LatestURL returns the URL that always serves the newest artifact of the same object; empty for a nil artifact.
func (a *Artifact) LatestURL() string {
	if a == nil {
		return ""
	}
	dir, file := path.Split(a.URL)
	extension := path.Ext(file)
	if strings.HasSuffix(file, ".tar.gz") {
		extension = ".tar.gz"
	}
	return dir + "latest" + extension
}

// Status is the part of the status that every kind has. Only the reconcile kernel writes it.
type Status struct {
	// ObservedGeneration is the last generation of the object that was reconciled.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the object.
	// +optional
	Conditions Conditions `json:"conditions,omitempty"`

	// LastHandledReconcileAt is the last handled value of the reconcile request annotation.
	// +optional
	LastHandledReconcileAt string `json:"lastHandledReconcileAt,omitempty"`
}

// Schedule defines when an object is reconciled, and for how long at most.
type Schedule struct {
	Interval      time.Duration
	RetryInterval time.Duration // zero: exponential backoff
	Timeout       time.Duration // zero: the kernel's default
	Suspended     bool
}

// AccessFrom defines which namespaces may reference an object.
type AccessFrom struct {
	// NamespaceSelectors select namespaces by label. A namespace is allowed if any selector matches.
	// +required
	NamespaceSelectors []NamespaceSelector `json:"namespaceSelectors"`
}

// NamespaceSelector selects namespaces by label.
type NamespaceSelector struct {
	// MatchLabels of the namespace. If empty, all namespaces match.
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}
