package options

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/network/egress"
)

// ArtifactOptions are the flags of the artifact server and of its clients.
type ArtifactOptions struct {
	TLSCertFile, TLSKeyFile string
	CheckAccess             bool
	Audience                string

	CAFile     string
	TokenFile  string
	TokenHosts []string
}

func (o *ArtifactOptions) bindFlags(f *pflag.FlagSet) {
	f.StringVar(&o.TLSCertFile, "storage-tls-cert-file", "",
		"certificate of the artifact server, reloaded when it changes; without one, artifacts are served over HTTP")
	f.StringVar(&o.TLSKeyFile, "storage-tls-key-file", "", "private key of --storage-tls-cert-file")
	f.BoolVar(&o.CheckAccess, "storage-check-access", false,
		"serve an artifact only to clients whose bearer token may get the source")
	f.StringVar(&o.Audience, "storage-audience", "",
		"required audience of tokens for --storage-check-access (default: the API server's)")
	f.StringVar(&o.CAFile, "artifact-ca-file", "",
		"PEM file of the certificate authorities of artifact servers that this process reads from")
	f.StringVar(&o.TokenFile, "artifact-token-file", "/var/run/secrets/kubernetes.io/serviceaccount/token",
		"file with the bearer token for --artifact-token-hosts")
	f.StringSliceVar(&o.TokenHosts, "artifact-token-hosts", nil,
		"artifact servers, as host or host:port, that receive the token of this process")
}

// Certificate names the files of a certificate, and the flags that name them.
type Certificate struct{ Flags, CertFile, KeyFile string }

// Certificate returns the certificate of the artifact server, which is optional.
func (o *ArtifactOptions) Certificate() Certificate {
	return Certificate{Flags: "--storage-tls-cert-file, --storage-tls-key-file", CertFile: o.TLSCertFile,
		KeyFile: o.TLSKeyFile}
}

// Clients returns the client that reads from artifact servers, and the one for ExternalArtifacts, whose addresses are
// subject to the policy.
func (o *ArtifactOptions) Clients(policy *egress.Policy) (servers, external *http.Client, err error) {
	options := artifact.ClientOptions{Hosts: o.TokenHosts, Token: func() (string, error) {
		b, err := os.ReadFile(o.TokenFile) // each time: the kubelet renews it
		return strings.TrimSpace(string(b)), err
	}}
	if o.CAFile != "" {
		ca, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, nil, fmt.Errorf("--artifact-ca-file: %w", err)
		}
		options.CA = ca
	}
	if servers, err = artifact.NewClient(options); err == nil {
		external, err = artifact.NewExternalClient(options, policy)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--artifact-ca-file %s: %w", o.CAFile, err)
	}
	return servers, external, nil
}

func bindBackend(f *pflag.FlagSet, o *artifact.S3Options) {
	f.StringVar(&o.Endpoint, "storage-backend-s3-endpoint", "",
		"URL of an S3-compatible server that stores artifacts for all replicas; credentials are read from the "+
			"environment, like AWS tools do")
	f.StringVar(&o.Bucket, "storage-backend-s3-bucket", "", "bucket at --storage-backend-s3-endpoint")
	f.StringVar(&o.Prefix, "storage-backend-s3-prefix", "",
		"prefix of the names of all artifacts in the bucket, such as the cluster's name")
	f.StringVar(&o.Region, "storage-backend-s3-region", "", "region of the bucket (default: ask the server)")
}

// StoreOptions returns the options of the artifact store. Wrap returns the transport to its bucket.
func (o *Options) StoreOptions(wrap func(http.RoundTripper) http.RoundTripper) ([]artifact.Option, error) {
	var all []artifact.Option
	if o.Backend != (artifact.S3Options{}) {
		backend, err := artifact.NewS3Backend(o.Backend, wrap)
		if err != nil {
			return nil, fmt.Errorf("--storage-backend-s3-endpoint %s, --storage-backend-s3-bucket %s: %w",
				o.Backend.Endpoint, o.Backend.Bucket, err)
		}
		all = append(all, artifact.WithBackend(backend))
	}
	if o.Artifacts.TLSCertFile != "" {
		all = append(all, artifact.WithTLS())
	}
	return all, nil
}

func (o *Options) checkArtifacts() error {
	if (o.Artifacts.TLSCertFile == "") != (o.Artifacts.TLSKeyFile == "") {
		return fmt.Errorf("--storage-tls-cert-file and --storage-tls-key-file: set both or none")
	}
	if o.Backend != (artifact.S3Options{}) && (o.Backend.Endpoint == "" || o.Backend.Bucket == "") {
		return fmt.Errorf("--storage-backend-s3-endpoint and --storage-backend-s3-bucket: set both")
	}
	return nil
}
