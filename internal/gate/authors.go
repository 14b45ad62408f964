package gate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicies,verbs=get
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingadmissionpolicybindings,verbs=get

// Names of the admission policies that verify authors, and of their bindings (config/policy).
const (
	ApprovalsPolicy = "sluice-gate-approvals"
	RequestsPolicy  = "sluice-gate-requests"
)

const (
	verifiedTTL   = time.Minute     // of a positive result
	unverifiedTTL = 5 * time.Second // of a negative result
	maxResults    = 10_000          // that are cached
)

// impersonatedUser is the user name of objects in dry-run impersonations. It is not the name of a real user.
const impersonatedUser = "sluice:gate:dry-run"

// AuthorVerifier checks whether the API server verifies the authors of approvals and requests. An installed policy may
// not be enforced, so it tries to create an object in the name of another user, as a dry run. It is safe for concurrent
// use.
type AuthorVerifier struct {
	Client client.Client // for dry runs
	Reader client.Reader // reads policies from the API server, not from the cache
	Clock  clock.PassiveClock

	mu      sync.Mutex
	results map[resultKey]result
}

// purpose is what a policy is verified for.
type purpose struct{ disabled, policy, reason string }

var (
	forApprovals  = purpose{"Approvals are disabled", ApprovalsPolicy, gatingv1.PolicyMissingReason}
	forOverrides  = purpose{"Overrides are disabled", RequestsPolicy, gatingv1.PolicyMissingReason}
	forSelections = purpose{"spec.selector selects objects of the gate's namespace only", RequestsPolicy,
		meta.AccessDeniedReason}
)

// errAccepted is the cause of a fault if the API server accepted what the policy must reject.
var errAccepted = errors.New("the API server accepted an object in the name of another user")

type resultKey struct {
	purpose   purpose
	namespace string
}

type result struct {
	expires time.Time
	since   time.Time // when the policy was installed
	err     error
}

// VerifyApprovals returns since when the authors of approvals in a namespace are verified. The error is a
// fault with the reason PolicyMissing.
func (v *AuthorVerifier) VerifyApprovals(ctx context.Context, namespace string) (time.Time, error) {
	return v.cached(resultKey{forApprovals, namespace}, func() (time.Time, error) {
		since, err := v.installedSince(ctx, forApprovals)
		if err != nil {
			return since, err
		}
		return since, v.dryRunImpersonation(ctx, forApprovals, &gatingv1.GateApproval{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "dry-run-"},
			Spec: gatingv1.GateApprovalSpec{
				GateRef: meta.LocalObjectReference{Name: "dry-run"}, User: impersonatedUser,
			},
		})
	})
}

// VerifyRequests returns an error unless the authors of requests for gates in a namespace are verified. The error is a
// fault with the reason PolicyMissing.
func (v *AuthorVerifier) VerifyRequests(ctx context.Context, namespace string) error {
	_, err := v.cached(resultKey{forOverrides, namespace}, func() (time.Time, error) {
		return time.Time{}, v.dryRunRequest(ctx, forOverrides, namespace)
	})
	return err
}

// dryRunRequest returns nil if the policy for requests rejects one in the name of another user.
func (v *AuthorVerifier) dryRunRequest(ctx context.Context, p purpose, namespace string) error {
	const at = "2026-01-01T00:00:00Z"
	return v.dryRunImpersonation(ctx, p, &gatingv1.Gate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "dry-run-",
			Annotations: map[string]string{
				gatingv1.OpenPrefix + gatingv1.RequestedAtSuffix: at,
				gatingv1.OpenPrefix + gatingv1.RequestedBySuffix: at + " " + impersonatedUser,
			}},
		Spec: gatingv1.GateSpec{Interval: meta.Duration{Duration: gatingv1.DefaultInterval}},
	})
}

// cached returns the cached result of a key, or calls verify and caches its result.
func (v *AuthorVerifier) cached(key resultKey, verify func() (time.Time, error)) (time.Time, error) {
	now := v.Clock.Now()
	v.mu.Lock()
	r, ok := v.results[key]
	v.mu.Unlock()
	if ok && r.expires.After(now) && r.expires.Sub(now) <= verifiedTTL { // longer if the clock was set back
		return r.since, r.err
	}
	r = result{expires: now.Add(verifiedTTL)}
	if r.since, r.err = verify(); r.err != nil {
		r.expires = now.Add(unverifiedTTL)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.results == nil || len(v.results) >= maxResults {
		v.results = map[resultKey]result{}
	}
	v.results[key] = r
	return r.since, r.err
}

// dryRunImpersonation returns nil if the policy rejects an object in the name of another user.
func (v *AuthorVerifier) dryRunImpersonation(ctx context.Context, p purpose, obj client.Object) error {
	err := v.Client.Create(ctx, obj, client.DryRunAll)
	if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+p.policy+"'") {
		return nil
	}
	if err == nil {
		err = errAccepted
	}
	return p.fault("is not enforced", err)
}

// installedSince returns when the policy and its binding were created.
func (v *AuthorVerifier) installedSince(ctx context.Context, p purpose) (time.Time, error) {
	var since time.Time
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
		if err := v.Reader.Get(ctx, types.NamespacedName{Name: p.policy}, m); apierrors.IsNotFound(err) {
			return since, p.fault("is not installed", err)
		} else if err != nil {
			return since, p.fault("cannot be read", err)
		}
		if created := m.CreationTimestamp.Time; created.After(since) {
			since = created
		}
	}
	return since, nil
}

func (p purpose) fault(problem string, err error) error {
	f := fault.New(p.reason, "%s: admission policy '%s' %s", p.disabled, p.policy, problem).Because(err)
	if errors.Is(err, errAccepted) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return f.WithHint("Run `sluice install`")
	}
	return f // the API server has a problem of its own
}
