package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-gitops/sluice/api/meta"
)

// GateKind is the kind's name.
const GateKind = "Gate"

// OpenedCondition tells whether the gate is open.
const OpenedCondition = "Opened"

// State is what a gate is, or is to be.
// +kubebuilder:validation:Enum=opened;closed
type State string

// States of a gate.
const (
	Opened State = "opened"
	Closed State = "closed"
)

// What happens to a change that is under way when a gate closes.
const (
	OverrunFinish = "finish"
	OverrunStop   = "stop"
)

// DefaultInterval is how often a gate is looked at that sets no interval. Transitions come on time whatever
// the interval is.
const DefaultInterval = 30 * time.Second

// GateSpec says when a gate is open, and for whom.
type GateSpec struct {
	// Interval at which the gate is looked at anew, beside the times at which it is known to change; 30s when unset.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <=
	// +>  duration('87600h')",message="interval must be between 1s and 87600h"
	// +kubebuilder:default="30s"
	// +optional
	Interval meta.Duration `json:"interval,omitzero"`

	// Default is what the gate is when nothing says otherwise; closed when unset.
	// +kubebuilder:default=closed
	// +optional
	Default State `json:"default,omitempty"`

	// Window is how long a request to open or to close holds, from its time on; until the opposite one when unset.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <=
	// +>  duration('87600h')",message="window must be more than nothing, and 87600h at most"
	// +optional
	Window *meta.Duration `json:"window,omitempty"`

	// Selector puts the gate over objects that do not name it.
	// +optional
	Selector *Selector `json:"selector,omitempty"`

	// Schedule opens and closes the gate by the clock. Where several entries are in force, closed wins.
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Schedule []ScheduleEntry `json:"schedule,omitempty"`

	// Overridable lets requests to open and close win over the schedule; true when unset.
	// +kubebuilder:default=true
	// +optional
	Overridable *bool `json:"overridable,omitempty"`

	// AllowManual lets reconciles through that a person or a tool asked for.
	// +optional
	AllowManual bool `json:"allowManual,omitempty"`

	// Overrun says what becomes of a change that is under way when the gate closes: it may finish, or is
	// stopped; finish when unset.
	// +kubebuilder:validation:Enum=finish;stop
	// +kubebuilder:default=finish
	// +optional
	Overrun string `json:"overrun,omitempty"`

	// Approvals that the gate needs to open, as GateApproval objects.
	// +optional
	Approvals *Approvals `json:"approvals,omitempty"`

	// Checks keep the gate closed until all of them hold.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=name
	// +optional
	Checks []Check `json:"checks,omitempty"`

	// ServiceAccountName of the account in the gate's namespace that objects of checks are read as; default when unset.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// Selector selects the objects that a gate holds; what is unset selects all.
type Selector struct {
	// Kinds of the objects, such as Kustomization.
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Kinds []SelectedKind `json:"kinds,omitempty"`

	// Namespaces of the objects; the gate's own when unset. To select others takes the right to `select`
	// gates in all namespaces.
	// +optional
	Namespaces *NamespaceSelector `json:"namespaces,omitempty"`

	// Objects selects by the labels of the objects.
	// +optional
	Objects *metav1.LabelSelector `json:"objects,omitempty"`

	// Clusters that the objects deploy to; those that deploy nowhere, such as sources, are not selected then.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Clusters []ClusterSelector `json:"clusters,omitempty"`
}

// SelectedKind is a kind that gates hold.
// +kubebuilder:validation:Enum=GitRepository;OCIRepository;HelmRepository;HelmChart;Bucket;ExternalArtifact;
// +> ArtifactGenerator;Kustomization;HelmRelease;ImageRepository;ImageUpdateAutomation
type SelectedKind string

// NamespaceSelector selects namespaces: those of the names, and those with the labels.
// +kubebuilder:validation:XValidation:rule="has(self.names) || has(self.labels)",message="names or labels must be
// +>  set; labels: {} selects all namespaces"
type NamespaceSelector struct {
	// Names of namespaces.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=63
	// +optional
	Names []string `json:"names,omitempty"`

	// Labels of namespaces; an empty selector selects all.
	// +optional
	Labels *metav1.LabelSelector `json:"labels,omitempty"`
}

// ClusterSelector selects objects by the cluster that they deploy to, as spec.kubeConfig says.
// +kubebuilder:validation:XValidation:rule="[has(self.local) && self.local, has(self.secretRef),
// +>  has(self.configMapRef)].filter(x, x).size() == 1",message="exactly one of local, secretRef and configMapRef
// +>  must be set"
type ClusterSelector struct {
	// Local selects what deploys to the cluster of the gate.
	// +optional
	Local bool `json:"local,omitempty"`

	// SecretRef is the Secret with the kubeconfig.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`

	// ConfigMapRef is the ConfigMap with the cluster's address.
	// +optional
	ConfigMapRef *meta.LocalObjectReference `json:"configMapRef,omitempty"`
}

// ScheduleEntry is when the schedule has the gate opened or closed.
// +kubebuilder:validation:XValidation:rule="has(self.cron) != has(self.dates)",message="exactly one of cron and dates
// +>  must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.cron) || has(self.duration)",message="cron needs a duration"
type ScheduleEntry struct {
	// Name of the entry, for people.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Name string `json:"name,omitempty"`

	// State of the gate while the entry is in force.
	// +required
	State State `json:"state"`

	// Cron says when the entry comes into force: minute, hour, day of the month, month, day of the week. A
	// time that a daylight saving change skips is the first one after it, one that comes twice is the first
	// of the two.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Cron string `json:"cron,omitempty"`

	// Dates on which the entry comes into force at midnight, as 2026-12-24, or 12-25 for every year.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=366
	// +kubebuilder:validation:items:Pattern="^([0-9]{4}-)?[0-9]{2}-[0-9]{2}$"
	// +optional
	Dates []string `json:"dates,omitempty"`

	// Duration for which the entry is in force. Each 24h of it are a day by the calendar, which daylight
	// saving makes longer or shorter. With dates: a day when unset.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <=
	// +>  duration('8784h')",message="duration must be between 1m and 8784h"
	// +optional
	Duration *meta.Duration `json:"duration,omitempty"`

	// TimeZone that cron and dates are in, such as Europe/Berlin (IANA); UTC when unset.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// Approvals says whose approvals a gate needs.
type Approvals struct {
	// Required is how many people must approve.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	// +required
	Required int32 `json:"required"`

	// Groups whose members may approve. Where neither groups nor users are set, everybody may who may create
	// GateApprovals.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Groups []string `json:"groups,omitempty"`

	// Users who may approve.
	// +kubebuilder:validation:MaxItems=100
	// +optional
	Users []string `json:"users,omitempty"`

	// ValidFor is how long an approval counts that sets no end; spec.window when unset, and without one until
	// it is withdrawn.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <=
	// +>  duration('87600h')",message="validFor must be more than nothing, and 87600h at most"
	// +optional
	ValidFor *meta.Duration `json:"validFor,omitempty"`
}

// Check is something that must hold for a gate to be open.
// +kubebuilder:validation:XValidation:rule="[has(self.object), has(self.http), has(self.prometheus)].filter(x,
// +>  x).size() == 1",message="exactly one of object, http and prometheus must be set"
type Check struct {
	// Name of the check.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Name string `json:"name"`

	// Interval at which it is checked; 1m when unset.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <=
	// +>  duration('24h')",message="interval must be between 1s and 24h"
	// +optional
	Interval *meta.Duration `json:"interval,omitempty"`

	// Timeout of one try; 10s when unset.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1ms') && duration(self) <=
	// +>  duration('1m')",message="timeout must be between 1ms and 1m"
	// +optional
	Timeout *meta.Duration `json:"timeout,omitempty"`

	// For is how long it must have held without a break.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern="^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('720h')",message="for must be 720h at most"
	// +optional
	For *meta.Duration `json:"for,omitempty"`

	// Object must be there and meet an expression.
	// +optional
	Object *ObjectCheck `json:"object,omitempty"`

	// HTTP endpoint must answer with a 2xx status.
	// +optional
	HTTP *HTTPCheck `json:"http,omitempty"`

	// Prometheus query must give values below a threshold.
	// +optional
	Prometheus *PrometheusCheck `json:"prometheus,omitempty"`
}

// ObjectCheck is an expression over an object of the cluster, which is read as the gate's service account.
type ObjectCheck struct {
	// APIVersion of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +required
	APIVersion string `json:"apiVersion"`
	// Kind of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Kind string `json:"kind"`
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// Namespace of the object; the gate's own when unset. Without meaning for kinds that have none.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Expression in CEL over the variable object that must be true.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +required
	Expression string `json:"expression"`
}

// HTTPCheck is an endpoint that must answer with a 2xx status.
type HTTPCheck struct {
	// URL that is asked with GET.
	// +kubebuilder:validation:Pattern="^https?://.+$"
	// +kubebuilder:validation:MaxLength=2048
	// +required
	URL string `json:"url"`
	// SecretRef names a Secret with a bearerToken, or with a username and a password.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`
	// CertSecretRef names a Secret with ca.crt, and maybe tls.crt and tls.key.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`
}

// PrometheusCheck is an instant query whose values must all be below a threshold; a query that gives none
// does not hold.
type PrometheusCheck struct {
	// Address of Prometheus, to which /api/v1/query is added.
	// +kubebuilder:validation:Pattern="^https?://.+$"
	// +kubebuilder:validation:MaxLength=2048
	// +required
	Address string `json:"address"`
	// Query in PromQL.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +required
	Query string `json:"query"`
	// Below is the number that every value must be below.
	// +kubebuilder:validation:Pattern="^-?[0-9]+(\\.[0-9]+)?([eE][-+]?[0-9]+)?$"
	// +kubebuilder:validation:MaxLength=64
	// +required
	Below string `json:"below"`
	// SecretRef names a Secret with a bearerToken, or with a username and a password.
	// +optional
	SecretRef *meta.LocalObjectReference `json:"secretRef,omitempty"`
	// CertSecretRef names a Secret with ca.crt, and maybe tls.crt and tls.key.
	// +optional
	CertSecretRef *meta.LocalObjectReference `json:"certSecretRef,omitempty"`
}

// Gate lets changes through when it is open, and holds them when it is closed.
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

// Schedule returns how often the gate is looked at. A pass is bounded by the time that all its checks may take.
func (g *Gate) Schedule() meta.Schedule {
	interval := g.Spec.Interval.Duration
	if interval <= 0 {
		interval = DefaultInterval
	}
	return meta.Schedule{Interval: interval}
}

// IsOverridable tells whether requests win over the schedule.
func (g *Gate) IsOverridable() bool { return g.Spec.Overridable == nil || *g.Spec.Overridable }
