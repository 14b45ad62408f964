package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// GateKind is the kind's name.
const GateKind = "Gate"

// OpenedCondition reports whether the gate is open.
const OpenedCondition = "Opened"

// State is the current or the future state of a gate.
// +kubebuilder:validation:Enum=opened;closed
type State string

// States of a gate.
const (
	Opened State = "opened"
	Closed State = "closed"
)

// Values of spec.overrun: what happens to a change in progress when the gate closes.
const (
	OverrunFinish = "finish"
	OverrunStop   = "stop"
)

// DefaultInterval is the interval of a gate that does not set one. Scheduled transitions do not depend on the interval.
const DefaultInterval = 30 * time.Second

// GateSpec defines when a gate is open, and to which objects it applies.
// +kubebuilder:validation:XValidation:rule="!has(self.rules) || size(self.rules) == 0 || !has(self.allowManual) ||
// +>  !self.allowManual",message="allowManual cannot be combined with rules, which decide about each change"
// +kubebuilder:validation:XValidation:rule="!has(self.soak) || has(self.onFailure)",message="soak needs onFailure"
type GateSpec struct {
	// Interval at which the gate is reconciled, in addition to its scheduled transitions. Defaults to 30s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <=
	// +>  duration('87600h')",message="interval must be between 1s and 87600h"
	// +kubebuilder:default="30s"
	// +optional
	Interval meta.Duration `json:"interval,omitzero"`

	// Default is the state of the gate if nothing else determines it. Defaults to closed.
	// +kubebuilder:default=closed
	// +optional
	Default State `json:"default,omitempty"`

	// Window is the duration for which an open or close request is in effect, from the time of the request.
	// If unset, a request is in effect until the opposite request.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <=
	// +>  duration('87600h')",message="window must be more than nothing, and 87600h at most"
	// +optional
	Window *meta.Duration `json:"window,omitempty"`

	// Selector applies the gate to objects that do not reference it.
	// +optional
	Selector *Selector `json:"selector,omitempty"`

	// Schedule opens and closes the gate at set times. If several entries are in effect, closed takes precedence.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Schedule []ScheduleEntry `json:"schedule,omitempty"`

	// Overridable gives open and close requests precedence over the schedule. Defaults to true.
	// +kubebuilder:default=true
	// +optional
	Overridable *bool `json:"overridable,omitempty"`

	// AllowManual allows reconciles that a user or a tool requested, even while the gate is closed.
	// +optional
	AllowManual bool `json:"allowManual,omitempty"`

	// Overrun defines what happens to a change in progress when the gate closes. With finish, it continues;
	// with stop, it is stopped. Defaults to finish.
	// +kubebuilder:validation:Enum=finish;stop
	// +kubebuilder:default=finish
	// +optional
	Overrun string `json:"overrun,omitempty"`

	// Approvals that the gate requires to open, as GateApproval objects.
	// +optional
	Approvals *Approvals `json:"approvals,omitempty"`

	// Checks that must all pass before the gate opens.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Checks []Check `json:"checks,omitempty"`

	// Rules decide about a change by its content. The first rule whose expression is true decides; if none is, the
	// rest of the gate does. A change that cannot be computed, such as that of a source, does not pass.
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	// +optional
	Rules []Rule `json:"rules,omitempty"`

	// OnFailure is what happens when a change that the gate let through becomes unhealthy within its soak time. With
	// Hold, the gate closes until the objects are healthy again, or until someone opens it. With Revert, the objects go
	// back to the last healthy revision in addition, and the failed revision is refused until someone approves it.
	// +optional
	OnFailure OnFailure `json:"onFailure,omitempty"`

	// Soak is how long a change is watched after the object was first Ready with it. Defaults to 10m.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <=
	// +>  duration('720h')",message="soak must be between 1s and 720h"
	// +optional
	Soak *meta.Duration `json:"soak,omitempty"`

	// Waves divide the Kustomizations and HelmReleases behind the gate, by their labels. While the gate is open, a
	// revision of a source goes to one wave after the other. Objects that no wave selects are the last wave.
	// +kubebuilder:validation:MaxItems=20
	// +listType=map
	// +listMapKey=name
	// +optional
	Waves []Wave `json:"waves,omitempty"`

	// ServiceAccountName is the ServiceAccount, in the namespace of the gate, that is used to read the
	// objects of checks. Defaults to default.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// Selector selects the objects that a gate applies to. An unset field does not restrict the selection, except
// namespaces, which defaults to the namespace of the gate.
type Selector struct {
	// Kinds of the objects, such as Kustomization.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Kinds []SelectedKind `json:"kinds,omitempty"`

	// Namespaces of the objects. Defaults to the namespace of the gate. Selecting other namespaces requires
	// permission for the verb `select` on gates in all namespaces.
	// +optional
	Namespaces *NamespaceSelector `json:"namespaces,omitempty"`

	// Objects selects by the labels of the objects.
	// +optional
	Objects *metav1.LabelSelector `json:"objects,omitempty"`

	// Clusters that the objects deploy to. If set, objects that do not deploy, such as sources, are not selected.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Clusters []ClusterSelector `json:"clusters,omitempty"`
}

// SelectedKind is a kind that gates can apply to.
// +kubebuilder:validation:Enum=GitRepository;OCIRepository;HelmRepository;HelmChart;Bucket;ExternalArtifact;
// +> ArtifactGenerator;Kustomization;HelmRelease;ImageRepository;ImageUpdateAutomation
type SelectedKind string

// NamespaceSelector selects namespaces by name or by label. A namespace is selected if either matches.
// +kubebuilder:validation:XValidation:rule="has(self.names) || has(self.labels)",message="names or labels must be
// +>  set; labels: {} selects all namespaces"
type NamespaceSelector struct {
	// Names of namespaces.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	// +optional
	Names []string `json:"names,omitempty"`

	// Labels of namespaces. An empty selector selects all namespaces.
	// +optional
	Labels *metav1.LabelSelector `json:"labels,omitempty"`
}

// ClusterSelector selects objects by the cluster that they deploy to, as set in their spec.kubeConfig.
// +kubebuilder:validation:XValidation:rule="[has(self.local) && self.local, has(self.secretRef),
// +>  has(self.configMapRef)].filter(x, x).size() == 1",message="exactly one of local, secretRef and configMapRef
// +>  must be set"
type ClusterSelector struct {
	// Local selects objects that deploy to the cluster of the gate.
	// +optional
	Local bool `json:"local,omitempty"`

	// SecretRef references the Secret with the kubeconfig.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// ConfigMapRef references the ConfigMap with the address of the cluster.
	// +optional
	ConfigMapRef *meta.LocalObjectReference `json:"configMapRef,omitempty"`
}

// ScheduleEntry is a recurring or fixed period during which the gate is opened or closed.
// +kubebuilder:validation:XValidation:rule="has(self.cron) != has(self.dates)",message="exactly one of cron and dates
// +>  must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.cron) || has(self.duration)",message="cron needs a duration"
type ScheduleEntry struct {
	// Name of the entry, for display.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Name string `json:"name,omitempty"`

	// State of the gate while the entry is in effect.
	// +required
	State State `json:"state"`

	// Cron expression for when the entry takes effect: minute, hour, day of the month, month, day of the
	// week. If a daylight saving change skips a time, the first time after the change is used. If a time
	// occurs twice, the first one is used.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Cron string `json:"cron,omitempty"`

	// Dates on which the entry takes effect, at midnight: 2026-12-24 for one date, or 12-25 for every year.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=366
	// +kubebuilder:validation:items:Pattern="^([0-9]{4}-)?[0-9]{2}-[0-9]{2}$"
	// +optional
	Dates []string `json:"dates,omitempty"`

	// Duration for which the entry is in effect. Each 24h count as one calendar day, which can be longer or
	// shorter because of daylight saving. With dates, it defaults to one day.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <=
	// +>  duration('8784h')",message="duration must be between 1m and 8784h"
	// +optional
	Duration *meta.Duration `json:"duration,omitempty"`

	// TimeZone of cron and dates, as an IANA name such as Europe/Berlin. Defaults to UTC.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// Approvals defines whose approvals a gate requires.
type Approvals struct {
	// Required is the number of users who must approve.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +required
	Required int32 `json:"required"`

	// Groups whose members may approve. If groups and users are both unset, any user with permission to
	// create GateApprovals may approve.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Groups []string `json:"groups,omitempty"`

	// Users who may approve.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Users []string `json:"users,omitempty"`

	// ValidFor is how long an approval without expiresAt is valid. Defaults to spec.window. If both are
	// unset, the approval is valid until it is withdrawn.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <=
	// +>  duration('87600h')",message="validFor must be more than nothing, and 87600h at most"
	// +optional
	ValidFor *meta.Duration `json:"validFor,omitempty"`
}

// Gate allows changes while it is open, and blocks them while it is closed.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Opened",type="string",JSONPath=".status.conditions[?(@.type==\"Opened\")].status",
// +> description=""
// +kubebuilder:printcolumn:name="Status",type="string",JSONPath=".status.conditions[?(@.type==\"Opened\")].message",
// +> description=""
// +kubebuilder:printcolumn:name="Next",type="string",JSONPath=".status.nextTransition.at",description=""
// +kubebuilder:printcolumn:name="Waiting",type="integer",JSONPath=".status.waitingCount",description=""
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",
// +> priority=1,description=""
type Gate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   GateSpec   `json:"spec,omitempty"`
	Status GateStatus `json:"status,omitempty"`
}

// GateList is a list of gates.
// +kubebuilder:object:root=true
type GateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gate `json:"items"`
}

// CommonStatus returns the part of the status that the kernel writes.
func (g *Gate) CommonStatus() *meta.Status { return &g.Status.Status }

// Schedule returns how often the gate is reconciled. A reconcile is limited by the timeouts of its checks.
func (g *Gate) Schedule() meta.Schedule {
	interval := g.Spec.Interval.Duration
	if interval <= 0 {
		interval = DefaultInterval
	}
	return meta.Schedule{Interval: interval}
}

// IsOverridable reports whether requests take precedence over the schedule.
func (g *Gate) IsOverridable() bool { return g.Spec.Overridable == nil || *g.Spec.Overridable }
