// Package notation checks that an artifact in a registry carries a Notary Project signature that a trust
// policy accepts.
package notation

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/notaryproject/notation-core-go/revocation"
	"github.com/notaryproject/notation-core-go/revocation/crl"
	"github.com/notaryproject/notation-core-go/revocation/purpose"
	"github.com/notaryproject/notation-go"
	"github.com/notaryproject/notation-go/verifier"
	"github.com/notaryproject/notation-go/verifier/trustpolicy"
	"github.com/notaryproject/notation-go/verifier/truststore"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/fault"
)

// Reason is the documented condition reason of a signature that is missing or not trusted.
const Reason = sourcev1.VerificationErrorReason

// policyEntry is the entry of the Secret with the trust policy.
const policyEntry = "trustpolicy.json"

// maxSignatures is how many signatures of an artifact are tried.
const maxSignatures = 50

// Verifier trusts what a trust policy says. It is safe for concurrent use.
type Verifier struct{ policy notation.Verifier }

// New returns a verifier by the trustpolicy.json and the certificates (*.crt, *.pem) of a Secret. The
// certificates stand for every trust store that the policy names. Transport is used to ask whether
// certificates were revoked.
func New(data map[string][]byte, transport http.RoundTripper) (*Verifier, error) {
	policy := &trustpolicy.Document{}
	d := json.NewDecoder(bytes.NewReader(data[policyEntry]))
	d.DisallowUnknownFields()
	if err := d.Decode(policy); err != nil {
		return nil, unusable("the Secret's "+policyEntry+" cannot be read", err).
			WithHint("Make the Secret with sluice create secret notation")
	}
	store, err := certificates(data)
	if err != nil {
		return nil, unusable("the Secret's certificates cannot be used", err)
	}
	options, err := revocations(transport)
	if err != nil {
		return nil, unusable("revocation cannot be checked", err)
	}
	v, err := verifier.NewWithOptions(policy, store, nil, options)
	if err != nil {
		return nil, unusable("the Secret's "+policyEntry+" is not valid", err)
	}
	return &Verifier{v}, nil
}

// Verify returns who signed the manifest that the digest names; it is empty if the policy says that the
// repository's artifacts need no signature. Errors are faults with the reason VerificationError.
func (v *Verifier) Verify(ctx context.Context, image name.Digest, access ...remote.Option) (string, error) {
	repo := repository{image.Context(), append(slices.Clip(access), remote.WithContext(ctx))}
	_, outcomes, err := notation.Verify(ctx, v.policy, repo, notation.VerifyOptions{
		ArtifactReference: image.Name(), MaxSignatureAttempts: maxSignatures,
	})
	if err != nil {
		f := fault.New(Reason, "cannot verify '%s' with notation", image.Name()).Because(plain(err))
		if limited := fault.As(err); limited != nil {
			f.RetryAfter = limited.RetryAfter
		}
		return "", f
	}
	for _, o := range outcomes {
		if o.EnvelopeContent != nil {
			return "'" + o.EnvelopeContent.SignerInfo.CertificateChain[0].Subject.String() + "'", nil
		}
	}
	return "", nil
}

// plain puts what the library says in lines of their own into one.
func plain(err error) error { return errors.New(strings.ReplaceAll(err.Error(), "\n", ": ")) }

// store gives the same certificates for each name that a policy uses.
type store []*x509.Certificate

// GetCertificates implements truststore.X509TrustStore.
func (s store) GetCertificates(context.Context, truststore.Type, string) ([]*x509.Certificate, error) {
	return s, nil
}

func certificates(data map[string][]byte) (store, error) {
	var all store
	for _, entry := range slices.Sorted(maps.Keys(data)) {
		if ext := path.Ext(entry); ext != ".crt" && ext != ".pem" {
			continue
		}
		for rest := data[entry]; ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, fmt.Errorf("'%s': %w", entry, err)
			}
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there is none: an entry that ends in .crt or .pem must hold the authority's")
	}
	return all, truststore.ValidateCertificates(all)
}

// revocations ask the authorities over the given transport.
func revocations(transport http.RoundTripper) (o verifier.VerifierOptions, err error) {
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
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

func unusable(what string, err error) *fault.Fault {
	return fault.New(Reason, "%s", what).Because(err).Final()
}

func readAll(r io.Reader, most int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = errors.New("it is too large")
	}
	return b, err
}
