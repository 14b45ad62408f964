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
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/verify/openpgp"
)

// KeyringKey is the key of a Secret that holds the OpenPGP keys whose provenance files are trusted.
const KeyringKey = "pubring.gpg"

const signatureBegin = "-----BEGIN PGP SIGNATURE-----"

// VerifyProvenance checks that one of the keys of a keyring, armored or binary, signed the package, and
// returns the key's fingerprint. The signature is in the provenance file, which names the package and its
// digest.
func VerifyProvenance(keyring, prov []byte, o Offer, data []byte, now time.Time) (string, error) {
	keys, err := openpgp.Read(keyring)
	if err != nil {
		return "", fault.New(sourcev1.VerificationErrorReason, "the keyring in the key %s of the Secret cannot be used",
			KeyringKey).
			Because(err).WithHint("Write it with: gpg --export KEY > %s", KeyringKey).Final()
	}
	fingerprint, err := verifyProvenance(keys, prov, o, data, now)
	if err != nil {
		return "", fault.New(sourcev1.VerificationErrorReason, "the provenance of chart '%s' %s cannot be trusted",
			o.Name, o.Version).Because(err)
	}
	return fingerprint, nil
}

func verifyProvenance(keys *openpgp.Keyring, prov []byte, o Offer, data []byte, now time.Time) (string, error) {
	block := signedText(prov)
	begin := bytes.LastIndex(prov, []byte(signatureBegin))
	if block == nil || begin < 0 {
		return "", errors.New("it is not one signed text")
	}
	fingerprint, err := keys.Verify(block.Bytes, prov[begin:], now)
	if err != nil {
		return "", err
	}
	var signed provenance.SumCollection
	if err := provenance.ParseMessageBlock(block.Plaintext, nil, &signed); err != nil {
		return "", fmt.Errorf("the signed text cannot be read: %w", err)
	}
	sum := sha256.Sum256(data)
	file := o.Chart() + "-" + o.Version + ".tgz"
	switch got := "sha256:" + hex.EncodeToString(sum[:]); signed.Files[file] {
	case got:
		return fingerprint, nil
	case "":
		return "", fmt.Errorf("it is not about %s", file)
	default:
		return "", fmt.Errorf("it is about another %s: of digest %s, not %s", file, signed.Files[file], got)
	}
}

// signedText reads a text that is signed in the clear, and nothing beside it. The library panics on some that are not.
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
