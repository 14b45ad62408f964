package cosign

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/sigstore/cosign/v3/pkg/cosign"
	"github.com/sigstore/cosign/v3/pkg/oci"
	ociremote "github.com/sigstore/cosign/v3/pkg/oci/remote"
	"github.com/sigstore/cosign/v3/pkg/types"
	"github.com/sigstore/sigstore-go/pkg/bundle"

	"github.com/sluice-gitops/sluice/internal/limits/keysize"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Limits for the signatures of an artifact. Anyone who can push to the repository can add signatures.
const (
	maxSignatures     = 50
	maxSignatureBytes = 128 << 10
)

// bundleMediaType is the prefix of the media types of bundles.
const bundleMediaType = "application/vnd.dev.sigstore.bundle"

// candidate is a signature to verify.
type candidate struct {
	name  string
	check func(ctx context.Context, digest v1.Hash, checks cosign.CheckOpts) error
}

// candidates returns the signatures of an artifact: bundles first, then those under its signature tag.
func candidates(image name.Digest, access []remote.Option) ([]candidate, error) {
	referring, err := bundles(image, access)
	if err != nil {
		return nil, err
	}
	tagged, err := tagged(image, access)
	return append(referring, tagged...), err
}

// bundles returns the bundles that refer to an artifact. It skips malformed bundles.
func bundles(image name.Digest, access []remote.Option) ([]candidate, error) {
	index, err := remote.Referrers(image, access...)
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var found []candidate
	for _, d := range manifest.Manifests {
		if !strings.HasPrefix(d.ArtifactType, bundleMediaType) && d.ArtifactType != "" || isOtherStatement(d) {
			continue
		}
		if len(found) == maxSignatures {
			return nil, fmt.Errorf("it has more than %d signatures", maxSignatures)
		}
		b, err := readBundle(image.Context().Digest(d.Digest.String()), access)
		var answer *transport.Error
		switch {
		case errors.As(err, &answer) && answer.StatusCode != http.StatusNotFound:
			return nil, err
		case err != nil:
			continue
		}
		found = append(found, candidate{"signature " + d.Digest.String(),
			func(ctx context.Context, digest v1.Hash, checks cosign.CheckOpts) error {
				return checkBundle(ctx, b, digest, checks)
			}})
	}
	return found, nil
}

// isOtherStatement reports whether the annotations of a bundle name a statement that is not a signature.
func isOtherStatement(d v1.Descriptor) bool {
	kind := d.Annotations["dev.sigstore.bundle.predicateType"]
	return kind != "" && kind != types.CosignSignPredicateType
}

func readBundle(ref name.Digest, access []remote.Option) (*bundle.Bundle, error) {
	image, err := remote.Image(ref, access...)
	if err != nil {
		return nil, err
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, err
	}
	if len(layers) != 1 {
		return nil, errors.New("a bundle must have one layer")
	}
	body, err := layers[0].Compressed()
	if err != nil {
		return nil, err
	}
	defer body.Close() // only read
	text, err := io.ReadAll(io.LimitReader(body, maxSignatureBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxSignatureBytes {
		return nil, fmt.Errorf("a bundle is larger than %d bytes", maxSignatureBytes)
	}
	b := &bundle.Bundle{}
	return b, b.UnmarshalJSON(text)
}

// tagged returns the signatures under the tag that is derived from the artifact's digest.
func tagged(image name.Digest, access []remote.Option) ([]candidate, error) {
	client := ociremote.WithRemoteOptions(access...)
	tag, err := ociremote.SignatureTag(image, client)
	if err != nil {
		return nil, err
	}
	manifest, err := ociremote.Signatures(tag, client)
	if err != nil {
		return nil, err
	}
	signatures, err := manifest.Get()
	if err != nil {
		return nil, err
	}
	if len(signatures) > maxSignatures {
		return nil, fmt.Errorf("'%s' has more than %d signatures", tag.Name(), maxSignatures)
	}
	var found []candidate
	for i, s := range signatures {
		if size, err := s.Size(); err != nil || size > maxSignatureBytes {
			continue
		}
		found = append(found, candidate{fmt.Sprintf("signature %d of %s", i+1, tag.Identifier()),
			func(ctx context.Context, digest v1.Hash, checks cosign.CheckOpts) error {
				return checkTagged(ctx, s, digest, checks)
			}})
	}
	return found, nil
}

func checkTagged(ctx context.Context, s oci.Signature, digest v1.Hash, checks cosign.CheckOpts) error {
	certificate, err := s.Cert()
	if err != nil {
		return err
	}
	chain, err := s.Chain()
	if err != nil {
		return err
	}
	if err := keysize.CheckChain(append([]*x509.Certificate{certificate}, chain...)...); err != nil {
		return err
	}
	checks.ClaimVerifier = cosign.SimpleClaimVerifier
	_, err = cosign.VerifyImageSignature(ctx, s, digest, &checks)
	return err
}

// retryAfter returns how long the registry asked us to wait.
func retryAfter(err error) time.Duration {
	if f := fault.As(err); f != nil {
		return f.RetryAfter
	}
	return 0
}
