package gate

import (
	"context"
	"fmt"
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
	"github.com/sluice-gitops/sluice/internal/fault"
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

type resultKey struct{ policy, namespace string }

type result struct {
	expires time.Time
	since   time.Time // when the policy was installed
	err     error
}

// VerifyApprovals returns since when the authors of approvals in a namespace are verified. The error is a
// fault with the reason PolicyMissing.
func (v *AuthorVerifier) VerifyApprovals(ctx context.Context, namespace string) (time.Time, error) {
	return v.cached(resultKey{ApprovalsPolicy, namespace}, func() (time.Time, error) {
		since, err := v.installedSince(ctx, ApprovalsPolicy)
		if err != nil {
			return since, err
		}
		return since, v.dryRunImpersonation(ctx, ApprovalsPolicy, &gatingv1.GateApproval{
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
	_, err := v.cached(resultKey{RequestsPolicy, namespace}, func() (time.Time, error) {
		const at = "2026-01-01T00:00:00Z"
		return time.Time{}, v.dryRunImpersonation(ctx, RequestsPolicy, &gatingv1.Gate{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "dry-run-",
				Annotations: map[string]string{
					gatingv1.OpenPrefix + gatingv1.RequestedAtSuffix: at,
					gatingv1.OpenPrefix + gatingv1.RequestedBySuffix: at + " " + impersonatedUser,
				}},
			Spec: gatingv1.GateSpec{Interval: meta.Duration{Duration: gatingv1.DefaultInterval}},
		})
	})
	return err
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
func (v *AuthorVerifier) dryRunImpersonation(ctx context.Context, policy string, obj client.Object) error {
	err := v.Client.Create(ctx, obj, client.DryRunAll)
	if err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+"'") {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("the API server accepted a %T in the name of another user", obj)
	}
	return policyFault(policy, "is not enforced", err)
}

// installedSince returns when the policy and its binding were created.
func (v *AuthorVerifier) installedSince(ctx context.Context, policy string) (time.Time, error) {
	var since time.Time
	for _, kind := range []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kind))
		if err := v.Reader.Get(ctx, types.NamespacedName{Name: policy}, m); apierrors.IsNotFound(err) {
			return since, policyFault(policy, "is not installed", err)
		} else if err != nil {
			return since, policyFault(policy, "cannot be read", err)
		}
		if created := m.CreationTimestamp.Time; created.After(since) {
			since = created
		}
	}
	return since, nil
}

func policyFault(policy, problem string, err error) error {
	disabled := "Approvals"
	if policy == RequestsPolicy {
		disabled = "Overrides"
	}
	return fault.New(gatingv1.PolicyMissingReason, "%s are disabled: admission policy '%s' %s", disabled, policy,
		problem).Because(err).
		WithHint("Run `sluice install`")
}
