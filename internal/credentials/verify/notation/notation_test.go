package notation

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/static"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/largekey"
	"github.com/sluice-gitops/sluice/internal/testenv/ociregistry"
	"github.com/sluice-gitops/sluice/internal/testenv/signing"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func target(t *testing.T, r *ociregistry.Server, repo string) signing.Target {
	t.Helper()
	return signing.Target{TB: t, Image: r.Push(repo, "latest", nil, static.NewLayer([]byte(repo), "text/plain")),
		Access: r.Access()}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	ours, theirs := signing.NewNotary(t, time.Now().Add(day)), signing.NewNotary(t, time.Now().Add(day))
	const release = "'CN=Release,O=Sluice,ST=BE,C=DE'"
	for kind, args := range map[string][]string{"with a referrers API": nil, "without one": {"--no-referrers"}} {
		t.Run(kind, func(t *testing.T) {
			r := ociregistry.New(t, args...)
			other := target(t, r, "other")
			for what, c := range map[string]struct {
				sign            func(signing.Target)
				trust           *signing.Notary
				level           string
				signer, wantErr string
			}{
				"trusted signature": {sign: func(to signing.Target) { ours.Sign(to, day) }, trust: ours,
					level:  "strict",
					signer: release, wantErr: ""},
				"untrusted signature as well": {sign: func(to signing.Target) {
					theirs.Sign(to, day)
					ours.Sign(to, day)
				},
					trust: ours, level: "strict", signer: release, wantErr: ""},
				"no signature": {sign: func(signing.Target) {}, trust: ours, level: "strict",
					wantErr: "no signature is associated"},
				"untrusted signature": {sign: func(to signing.Target) { theirs.Sign(to, day) }, trust: ours,
					level:   "strict",
					wantErr: "does not contain any trusted certificate"},
				"signature of other artifact": {sign: func(to signing.Target) { ours.SignOther(to, other.Image) },
					trust: ours,
					level: "strict", wantErr: "content descriptor mismatch"},
				"no signature required": {sign: func(signing.Target) {}, trust: ours, level: "skip", wantErr: ""},
			} {
				t.Run(what, func(t *testing.T) {
					v, err := New(map[string][]byte{"trustpolicy.json": c.trust.Policy(c.level), "ca.crt": c.trust.CA},
						http.DefaultTransport)
					if err != nil {
						t.Fatal(err)
					}
					to := target(t, r, strings.ReplaceAll(what, " ", "-"))
					c.sign(to)
					got, err := v.Verify(t.Context(), to.Image, to.Access...)
					if c.wantErr == "" {
						if err != nil || got != c.signer {
							t.Fatalf("got %q and %v, want %q", got, err, c.signer)
						}
						return
					}
					if err == nil || fault.Reason(err, "") != "VerificationError" ||
						!strings.Contains(err.Error(), c.wantErr) {
						t.Fatalf("got %q and %v, want an error with %q", got, err, c.wantErr)
					}
				})
			}
		})
	}
}

func TestVerifyRejectsExpiredSignature(t *testing.T) {
	t.Parallel()
	r := ociregistry.New(t)
	n := signing.NewNotary(t, time.Now().Add(time.Hour))
	v, err := New(map[string][]byte{"trustpolicy.json": n.Policy("strict"), "ca.crt": n.CA}, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	to := target(t, r, "app")
	n.Sign(to, time.Second)
	testenv.Eventually(t, "the signature expires", func() error {
		_, err := v.Verify(t.Context(), to.Image, to.Access...)
		if err == nil || !strings.Contains(err.Error(), "expired") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// The certificate of a signature says where lists of revoked ones are, and anyone who can push can sign.
func TestListsOfRevokedCertificatesTakeMemory(t *testing.T) {
	r := ociregistry.New(t)
	var list []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := w.Write(list); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	n := signing.NewNotary(t, time.Now().Add(time.Hour), server.URL)
	v, err := New(map[string][]byte{"trustpolicy.json": n.Policy("strict"), "ca.crt": n.CA}, http.DefaultTransport)
	if err != nil {
		t.Fatal(err)
	}
	to := target(t, r, "app")
	n.Sign(to, time.Hour)
	budget := guard.NewBudget(32 << 20)
	ctx := guard.WithBudget(t.Context(), budget)
	for revoked, want := range map[int]string{10: "", 100_000: guard.ReasonTooLarge} { // 100,000 have 2 MB
		list = n.List(t, revoked)
		if _, err := v.Verify(ctx, to.Image, to.Access...); fault.Reason(err, "") != want {
			t.Errorf("%d revoked certificates: %v, want %q", revoked, err, want)
		}
	}
	if budget.Used() != 0 {
		t.Errorf("%d bytes are still used", budget.Used())
	}
}

func TestNewRejects(t *testing.T) {
	n := signing.NewNotary(t, time.Now().Add(time.Hour))
	_, large := largekey.Certificate(t)
	for what, data := range map[string]map[string][]byte{
		"no data":                     nil,
		"policy without certificates": {"trustpolicy.json": n.Policy("strict")},
		"certificates without policy": {"ca.crt": n.CA},
		"invalid certificate": {"trustpolicy.json": n.Policy("strict"),
			"ca.pem": []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")},
		"large certificate":         {"trustpolicy.json": n.Policy("strict"), "ca.crt": large},
		"policy of unknown version": {"trustpolicy.json": []byte(`{"version":"9"}`), "ca.crt": n.CA},
		"policy with unknown field": {"trustpolicy.json": []byte(strings.Replace(string(n.Policy("strict")),
			"trustStores", "trustStore", 1)), "ca.crt": n.CA},
	} {
		_, err := New(data, http.DefaultTransport)
		if data["trustpolicy.json"] == nil && fault.As(err).Hint != "Create the Secret with sluice create secret "+
			"notation" {
			t.Errorf("%s: got %v", what, err)
		}
		if fault.Reason(err, "") != "VerificationError" ||
			what == "large certificate" && !strings.Contains(err.Error(), "the maximum is") {
			t.Errorf("%s: got %v", what, err)
		}
	}
}

func FuzzNew(f *testing.F) {
	f.Add([]byte(`{"version":"1.0","trustPolicies":[]}`),
		[]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, policy, cert []byte) {
		if _, err := New(map[string][]byte{"trustpolicy.json": policy, "ca.crt": cert},
			http.DefaultTransport); err != nil && fault.As(err) == nil {
			t.Errorf("%v is not a fault", err)
		}
	})
}
