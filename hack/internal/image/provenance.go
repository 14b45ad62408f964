package image

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-gitops/sluice/hack/internal/compile"
)

const (
	provenanceType = "https://slsa.dev/provenance/v1"
	// signatureType is the predicate type of statements that cosign signs as the signature of an image.
	signatureType = "https://sigstore.dev/cosign/sign/v1"
	// buildType names how the image is built: docs/release.md explains the parameters.
	buildType = project + "/blob/main/docs/release.md#provenance"
	// localBuilder is the builder outside of GitHub Actions.
	localBuilder = project + "/tree/main/hack/image"
)

// provenanceOf returns the provenance of the image of a platform: an in-toto statement with a predicate of SLSA. It
// contains no time, so that the same build has the same provenance.
func provenanceOf(source compile.Source, toolchain, platform string, digest v1.Hash) ([]byte, error) {
	external, err := structpb.NewStruct(map[string]any{
		"repository": project, "revision": source.Commit, "version": source.Version, "platform": platform,
		"package": source.Package,
	})
	if err != nil {
		return nil, err
	}
	dependencies := []*intoto.ResourceDescriptor{
		{Uri: "git+" + project + "@" + source.Commit,
			Digest: map[string]string{"gitCommit": strings.TrimSuffix(source.Commit, "-dirty")}},
		{Uri: "pkg:golang/toolchain@" + toolchain, Name: toolchain},
	}
	if version := moduleVersion(rootsModule); version != "" {
		dependencies = append(dependencies,
			&intoto.ResourceDescriptor{Uri: "pkg:golang/" + rootsModule + "@" + version})
	}
	builder, invocation := builderOf(os.Getenv)
	p := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{BuildType: buildType, ExternalParameters: external,
			ResolvedDependencies: dependencies},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: builder},
			Metadata: &slsa.BuildMetadata{InvocationId: invocation}},
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	predicate := &structpb.Struct{}
	raw, err := protojson.Marshal(p)
	if err == nil {
		err = protojson.Unmarshal(raw, predicate)
	}
	if err != nil {
		return nil, err
	}
	return statement(digest, provenanceType, predicate)
}

// builderOf returns the identity of the builder and of the run.
func builderOf(getenv func(string) string) (builder, invocation string) {
	workflow := getenv("GITHUB_WORKFLOW_REF")
	if getenv("GITHUB_ACTIONS") != "true" || workflow == "" {
		return localBuilder, ""
	}
	server := getenv("GITHUB_SERVER_URL")
	return server + "/" + workflow, server + "/" + getenv("GITHUB_REPOSITORY") + "/actions/runs/" +
		getenv("GITHUB_RUN_ID") + "/attempts/" + getenv("GITHUB_RUN_ATTEMPT")
}

// statement returns an in-toto statement about a manifest.
func statement(digest v1.Hash, kind string, predicate *structpb.Struct) ([]byte, error) {
	s := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: kind, Predicate: predicate,
		Subject: []*intoto.ResourceDescriptor{{Name: "sluice",
			Digest: map[string]string{digest.Algorithm: digest.Hex}}},
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return stableJSON(s)
}

// stableJSON encodes a message. The encoder adds spaces at random, so they are removed.
func stableJSON(m proto.Message) ([]byte, error) {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = json.Compact(&out, raw)
	return out.Bytes(), err
}
