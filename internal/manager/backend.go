package manager

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

func bindBackendFlags(f *pflag.FlagSet, o *artifact.S3Options) {
	f.StringVar(&o.Endpoint, "storage-backend-s3-endpoint", "",
		"URL of an S3-compatible server that keeps artifacts for all replicas; credentials are those of the "+
			"environment, as AWS's tools read it")
	f.StringVar(&o.Bucket, "storage-backend-s3-bucket", "", "bucket at --storage-backend-s3-endpoint")
	f.StringVar(&o.Prefix, "storage-backend-s3-prefix", "",
		"what the names of all artifacts in the bucket begin with, such as the cluster's name")
	f.StringVar(&o.Region, "storage-backend-s3-region", "", "region of the bucket (default: the server is asked)")
}

// backend returns the option for the store's backend; none without an endpoint.
func backend(o artifact.S3Options) ([]artifact.Option, error) {
	if o == (artifact.S3Options{}) {
		return nil, nil
	}
	if o.Endpoint == "" || o.Bucket == "" {
		return nil, fmt.Errorf("--storage-backend-s3-endpoint and --storage-backend-s3-bucket go together: set both")
	}
	b, err := artifact.NewS3Backend(o)
	if err != nil {
		return nil, fmt.Errorf("--storage-backend-s3-endpoint %s, --storage-backend-s3-bucket %s: %w", o.Endpoint,
			o.Bucket, err)
	}
	return []artifact.Option{artifact.WithBackend(b)}, nil
}
