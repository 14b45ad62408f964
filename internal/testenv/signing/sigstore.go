package signing

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/sigstore/cosign/v3/pkg/cosign/bundle"
	"github.com/sigstore/cosign/v3/pkg/oci/static"
	"github.com/sigstore/cosign/v3/pkg/types"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/testing/ca"
	"github.com/sigstore/sigstore-go/pkg/tlog"
	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// Sigstore is a test instance: a certificate authority for identities, and a transparency log.
type Sigstore struct {
	Root []byte // trusted_root.json
	ca   *ca.VirtualSigstore
}

// NewSigstore returns a new instance.
func NewSigstore(tb testing.TB) *Sigstore {
	tb.Helper()
	virtual, err := ca.NewVirtualSigstore()
	must(tb, err)
	logs := virtual.RekorLogs()
	for id, log := range logs {
		log.ID, err = hex.DecodeString(id)
		must(tb, err)
	}
	trusted, err := root.NewTrustedRoot(root.TrustedRootMediaType01, virtual.FulcioCertificateAuthorities(), nil,
		nil, logs)
	must(tb, err)
	text, err := trusted.MarshalJSON()
	must(tb, err)
	return &Sigstore{text, virtual}
}

// Tagged signs as cosign did before version 3.
func (s *Sigstore) Tagged(t Target, identity, issuer string) {
	t.TB.Helper()
	text, err := json.Marshal(payload.Cosign{Image: t.Image})
	must(t.TB, err)
	entity, err := s.ca.SignAtTime(identity, issuer, text, time.Now())
	must(t.TB, err)
	content, err := entity.SignatureContent()
	must(t.TB, err)
	entry := s.entry(t.TB, entity)
	attach(t, text, content.Signature(),
		static.WithCertChain(s.leaf(t.TB, entity), nil),
		static.WithBundle(&bundle.RekorBundle{
			SignedEntryTimestamp: entry.InclusionPromise.SignedEntryTimestamp,
			Payload: bundle.RekorPayload{
				Body: base64.StdEncoding.EncodeToString(entry.CanonicalizedBody), IntegratedTime: entry.IntegratedTime,
				LogIndex: entry.LogIndex, LogID: hex.EncodeToString(entry.LogId.KeyId),
			},
		}))
}

// Bundle signs as cosign 3 does.
func (s *Sigstore) Bundle(t Target, identity, issuer string) {
	t.TB.Helper()
	s.BundleAt(t, t.Image, identity, issuer, time.Now())
}

// BundleAt is Bundle with the artifact to sign and the time of signing. Certificates are valid for ten minutes.
func (s *Sigstore) BundleAt(t Target, about name.Digest, identity, issuer string, at time.Time) {
	t.TB.Helper()
	text := statement(t.TB, about, types.CosignSignPredicateType)
	entity, err := s.ca.AttestAtTime(identity, issuer, text, at, true)
	must(t.TB, err)
	content, err := entity.SignatureContent()
	must(t.TB, err)
	material, err := entity.VerificationContent()
	must(t.TB, err)
	attachBundle(t, types.CosignSignPredicateType, &protobundle.Bundle{
		MediaType: bundleType,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content: &protobundle.VerificationMaterial_Certificate{
				Certificate: &protocommon.X509Certificate{RawBytes: material.Certificate().Raw}},
			TlogEntries: []*protorekor.TransparencyLogEntry{s.entry(t.TB, entity)},
		},
		Content: envelope(text, content.Signature()),
	})
}

func (s *Sigstore) leaf(tb testing.TB, entity *ca.TestEntity) []byte {
	tb.Helper()
	material, err := entity.VerificationContent()
	must(tb, err)
	text, err := cryptoutils.MarshalCertificateToPEM(material.Certificate())
	must(tb, err)
	return text
}

// entry returns the log entry with the fields that the library does not export: its kind, and the inclusion promise.
func (s *Sigstore) entry(tb testing.TB, entity *ca.TestEntity) *protorekor.TransparencyLogEntry {
	tb.Helper()
	entries, err := entity.TlogEntries()
	must(tb, err)
	e := entries[0].TransparencyLogEntry()
	var body struct{ Kind, APIVersion string }
	must(tb, json.Unmarshal(e.CanonicalizedBody, &body))
	e.KindVersion = &protorekor.KindVersion{Kind: body.Kind, Version: body.APIVersion}
	promise, err := s.ca.RekorSignPayload(tlog.RekorPayload{
		Body: base64.StdEncoding.EncodeToString(e.CanonicalizedBody), IntegratedTime: e.IntegratedTime,
		LogIndex: e.LogIndex, LogID: hex.EncodeToString(e.LogId.KeyId),
	})
	must(tb, err)
	e.InclusionPromise = &protorekor.InclusionPromise{SignedEntryTimestamp: promise}
	return e
}
