// Package notation verifies Notary Project signatures of artifacts in a registry by a trust policy.
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

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/notaryproject/notation-go"
	"github.com/notaryproject/notation-go/verifier"
	"github.com/notaryproject/notation-go/verifier/trustpolicy"
	"github.com/notaryproject/notation-go/verifier/truststore"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/limits/keysize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Reason is the condition reason for a signature that is missing or not trusted.
const Reason = sourcev1.VerificationErrorReason

// policyEntry is the key of the trust policy in the Secret.
const policyEntry = "trustpolicy.json"

// maxSignatures is the maximum number of signatures of an artifact that are verified.
const maxSignatures = 50

// Verifier verifies signatures by a trust policy. It is safe for concurrent use.
type Verifier struct{ policy notation.Verifier }

// New returns a verifier for the trustpolicy.json and the certificates (*.crt, *.pem) in the data of a Secret. Every
// trust store that the policy names consists of all these certificates. transport is used to check whether
// certificates are revoked.
func New(data map[string][]byte, transport http.RoundTripper) (*Verifier, error) {
	policy := &trustpolicy.Document{}
	d := json.NewDecoder(bytes.NewReader(data[policyEntry]))
	d.DisallowUnknownFields()
	if err := d.Decode(policy); err != nil {
		return nil, invalidConfig("cannot parse "+policyEntry+" of the Secret", err).
			WithHint("Create the Secret with sluice create secret notation")
	}
	store, err := certificates(data)
	if err != nil {
		return nil, invalidConfig("the certificates of the Secret are not valid", err)
	}
	options, err := revocationOptions(transport)
	if err != nil {
		return nil, invalidConfig("cannot set up revocation checks", err)
	}
	v, err := verifier.NewWithOptions(policy, store, nil, options)
	if err != nil {
		return nil, invalidConfig(policyEntry+" of the Secret is not valid", err)
	}
	return &Verifier{v}, nil
}

// Verify verifies the signatures of the manifest with the digest, and returns the name of the signer. The name is empty
// if the policy requires no signature for the repository. The error is a fault with the reason VerificationError.
func (v *Verifier) Verify(ctx context.Context, image name.Digest, access ...remote.Option) (string, error) {
	lease := guard.NewLease(ctx, work)
	defer lease.Release()
	ctx = context.WithValue(ctx, leaseKey{}, lease)
	repo := repository{image.Context(), append(slices.Clip(access), remote.WithContext(ctx))}
	_, outcomes, err := notation.Verify(ctx, v.policy, repo, notation.VerifyOptions{
		ArtifactReference: image.Name(), MaxSignatureAttempts: maxSignatures,
	})
	if missing := lease.Refusal(); err != nil && missing != nil {
		return "", missing // the library only says that it could not check
	}
	if err != nil {
		f := fault.New(Reason, "cannot verify '%s' with notation", image.Name()).Because(oneLine(err))
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

// oneLine returns err with its message in one line.
func oneLine(err error) error { return errors.New(strings.ReplaceAll(err.Error(), "\n", ": ")) }

// store is a trust store that contains the same certificates under each name.
type store []*x509.Certificate

// GetCertificates implements [truststore.X509TrustStore].
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
			if err := keysize.Check(c.PublicKey); err != nil {
				return nil, fmt.Errorf("'%s': %w", entry, err)
			}
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no certificates: add the certificate of the authority as a key that ends in " +
			".crt or .pem")
	}
	return all, truststore.ValidateCertificates(all)
}

func invalidConfig(what string, err error) *fault.Fault {
	return fault.New(Reason, "%s", what).Because(err).Final()
}

// readAll reads r to its end. It returns an error if r has more than limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("larger than %d bytes", limit)
	}
	return b, err
}
