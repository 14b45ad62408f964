package notation

import (
	"io"
	"net/http"
	"time"

	"github.com/notaryproject/notation-core-go/revocation"
	"github.com/notaryproject/notation-core-go/revocation/crl"
	"github.com/notaryproject/notation-core-go/revocation/purpose"
	"github.com/notaryproject/notation-go/verifier"

	"github.com/sluice-gitops/sluice/internal/guard"
)

const (
	work = "lists of revoked certificates" // that takes memory

	listMemory = 32 // for each byte of a list: an entry of 20 bytes is parsed to 250, and the slice grows
)

// revocationOptions returns options that check revocation over the transport.
func revocationOptions(transport http.RoundTripper) (o verifier.VerifierOptions, err error) {
	client := &http.Client{Transport: metered{transport}, Timeout: 10 * time.Second}
	lists, err := crl.NewHTTPFetcher(client)
	if err != nil {
		return o, err
	}
	for which, to := range map[purpose.Purpose]*revocation.Validator{
		purpose.CodeSigning:  &o.RevocationCodeSigningValidator,
		purpose.Timestamping: &o.RevocationTimestampingValidator,
	} {
		if *to, err = revocation.NewWithOptions(revocation.Options{OCSPHTTPClient: client, CRLFetcher: lists,
			CertChainPurpose: which}); err != nil {
			return o, err
		}
	}
	return o, nil
}

// leaseKey is the key of the context for the lease of a verification: the library passes requests the context only.
type leaseKey struct{}

// metered takes memory for lists of revoked certificates while they are downloaded. The certificate of a signature says
// where they are, and the library reads and parses up to 32 MiB for each certificate, at the same time.
type metered struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (m metered) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := m.next.RoundTrip(r)
	if lease, ok := r.Context().Value(leaseKey{}).(*guard.Lease); ok && err == nil {
		resp.Body = body{guard.Metered(r.Context(), resp.Body, listMemory, lease), resp.Body}
	}
	return resp, err
}

type body struct {
	io.Reader
	io.Closer
}
