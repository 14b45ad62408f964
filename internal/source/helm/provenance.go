package helm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"helm.sh/helm/v4/pkg/provenance"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/credentials/verify/openpgp"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// KeyringKey is the key in a Secret whose value contains the trusted OpenPGP keys.
const KeyringKey = "pubring.gpg"

// signatureBegin starts the signature in a provenance file.
const signatureBegin = "-----BEGIN PGP SIGNATURE-----"

// VerifyProvenance verifies that a key of the keyring, which may be armored or binary, signed the package, and returns
// the fingerprint of that key. The signature is in the provenance file, which contains the file name of the package and
// its digest.
func VerifyProvenance(keyring, prov []byte, o Offer, data []byte, now time.Time) (string, error) {
	keys, err := openpgp.Read(keyring)
	if err != nil {
		return "", fault.New(sourcev1.VerificationErrorReason, "the keyring in the key '%s' of the Secret is invalid",
			KeyringKey).
			Because(err).WithHint("Create it with: gpg --export KEY > %s", KeyringKey).Final()
	}
	fingerprint, err := verifyProvenance(keys, prov, o, data, now)
	if err != nil {
		return "", fault.New(sourcev1.VerificationErrorReason, "the provenance of chart '%s' %s is not trusted",
			o.Name, o.Version).Because(err)
	}
	return fingerprint, nil
}

// verifyProvenance is VerifyProvenance with parsed keys.
func verifyProvenance(keys *openpgp.Keyring, prov []byte, o Offer, data []byte, now time.Time) (string, error) {
	block := signedText(prov)
	begin := bytes.LastIndex(prov, []byte(signatureBegin))
	if block == nil || begin < 0 {
		return "", errors.New("the file is not a single signed message")
	}
	fingerprint, err := keys.Verify(block.Bytes, prov[begin:], now)
	if err != nil {
		return "", err
	}
	var signed provenance.SumCollection
	if err := provenance.ParseMessageBlock(block.Plaintext, nil, &signed); err != nil {
		return "", fmt.Errorf("cannot parse the signed message: %w", err)
	}
	sum := sha256.Sum256(data)
	file := o.Chart() + "-" + o.Version + ".tgz"
	switch got := "sha256:" + hex.EncodeToString(sum[:]); signed.Files[file] {
	case got:
		return fingerprint, nil
	case "":
		return "", fmt.Errorf("it does not contain %s", file)
	default:
		return "", fmt.Errorf("it contains the digest %s for %s, but the package has %s", signed.Files[file], file, got)
	}
}

// signedText parses a cleartext signed message; nil if the input is not exactly one. It converts panics, which the
// library raises for some invalid input.
func signedText(prov []byte) (block *clearsign.Block) {
	defer func() {
		if recover() != nil {
			block = nil
		}
	}()
	block, rest := clearsign.Decode(prov)
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil
	}
	return block
}
