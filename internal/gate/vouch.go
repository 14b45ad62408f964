package gate

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies;validatingadmissionpolicybindings,verbs=get

// Policies that the API server checks authors by, and their bindings (config/policy).
const (
	ApprovalsPolicy = "sluice-gate-approvals"
	RequestsPolicy  = "sluice-gate-requests"
)

// How long an answer of the API server counts.
const (
	vouchedFor  = time.Minute
	doubtedFor  = 5 * time.Second
	keptAnswers = 10_000
)

// forger is nobody's name: an object in it is refused if authors are checked at all.
const forger = "sluice:gate:forger"

// Voucher tells whether the API server vouches for who made an approval or a request. It tries to forge one,
// as a dry-run, since that policies are installed does not mean that they are enforced here.
type Voucher struct {
	Client client.Client // tries
	Reader client.Reader // reads policies, past the cache
	Clock  clock.PassiveClock

	mu      sync.Mutex
	answers map[question]answer
}

type question struct{ policy, namespace string }

type answer struct {
	until time.Time
	since time.Time // from when on the policy is there
	err   error
}

// Approvals returns since when the authors of approvals in a namespace cannot be forged. The error is a fault
// with the reason PolicyMissing.
func (v *Voucher) Approvals(ctx context.Context, namespace string) (time.Time, error) {
	return v.ask(question{ApprovalsPolicy, namespace}, func() (time.Time, error) {
		since, err := v.installed(ctx, ApprovalsPolicy)
		if err != nil {
			return since, err
		}
		return since, v.forge(ctx, ApprovalsPolicy, &gatingv1.GateApproval{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "forged-"},
			Spec:       gatingv1.GateApprovalSpec{GateRef: meta.LocalObjectReference{Name: "forged"}, User: forger},
		})
	})
}

// Requests returns an error unless who requests something of a gate in a namespace cannot be forged, which is
// a fault as well.
func (v *Voucher) Requests(ctx context.Context, namespace string) error {
	_, err := v.ask(question{RequestsPolicy, namespace}, func() (time.Time, error) {
		const at = "2026-01-01T00:00:00Z"
		return time.Time{}, v.forge(ctx, RequestsPolicy, &gatingv1.Gate{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "forged-", Annotations: map[string]string{
				gatingv1.OpenPrefix + gatingv1.RequestedAtSuffix: at,
				gatingv1.OpenPrefix + gatingv1.RequestedBySuffix: at + " " + forger,
			}},
			Spec: gatingv1.GateSpec{Interval: meta.Duration{Duration: gatingv1.DefaultInterval}},
		})
	})
	return err
}

// ask returns an answer that is new enough.
func (v *Voucher) ask(q question, find func() (time.Time, error)) (time.Time, error) {
	now := v.Clock.Now()
	v.mu.Lock()
	known, ok := v.answers[q]
	v.mu.Unlock()
	if ok && known.until.After(now) && known.until.Sub(now) <= vouchedFor { // no clock was put back
		return known.since, known.err
	}
	a := answer{until: now.Add(vouchedFor)}
	if a.since, a.err = find(); a.err != nil {
		a.until = now.Add(doubtedFor)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.answers == nil || len(v.answers) >= keptAnswers {
		v.answers = map[question]answer{}
	}
	v.answers[q] = a
	return a.since, a.err
}

// forge returns nil if the policy refuses an object.
func (v *Voucher) forge(ctx context.Context, policy string, forged client.Object) error {
	err := v.Client.Create(ctx, forged, client.DryRunAll)
	if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'") {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("the API server took a forged %T", forged)
	}
	return missing(policy, err)
}

// installed returns since when a policy and its binding are there.
func (v *Voucher) installed(ctx context.Context, policy string) (time.Time, error) {
	var since time.Time
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
		if err := v.Reader.Get(ctx, types.NamespacedName{Name: policy}, m); err != nil {
			return since, missing(policy, err)
		}
		if at := m.CreationTimestamp.Time; at.After(since) {
			since = at
		}
	}
	return since, nil
}

func missing(policy string, err error) error {
	return fault.New(gatingv1.PolicyMissingReason,
		"nobody vouches for the names of people: policy '%s' is not enforced", policy).Because(err).
		WithHint("Apply what `sluice install --export` has of kind ValidatingAdmissionPolicy")
}
