package cli

import (
	"context"
	"errors"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createBucket holds the flags of `create source bucket`.
type createBucket struct {
	bucket, endpoint, provider, region, prefix string
	accessKey, secretKey, secretRef, proxy     string
	ignore                                     []string
	insecure                                   bool
}

func (b *createBucket) bind(f *pflag.FlagSet) string {
	f.StringVar(&b.bucket, "bucket-name", "", "name of the bucket")
	f.StringVar(&b.endpoint, "endpoint", "", "address of the object store, as HOST:PORT")
	f.StringVar(&b.provider, "provider", sourcev1.ProviderGeneric,
		"type of the object store: generic (S3), aws, gcp or azure")
	f.StringVar(&b.region, "region", "", "region of the bucket")
	f.StringVar(&b.prefix, "prefix", "", "only objects whose keys have this prefix")
	f.StringVar(&b.accessKey, "access-key", "", "access key")
	f.StringVar(&b.secretKey, "secret-key", "", "secret key; - reads it from standard input")
	f.StringVar(&b.secretRef, "secret-ref", "", "existing Secret with the credentials, instead of creating one")
	f.StringVar(&b.proxy, "proxy-secret-ref", "", "Secret with the address of a proxy")
	f.StringSliceVar(&b.ignore, "ignore-paths", nil, "paths to exclude, in .gitignore syntax")
	f.BoolVar(&b.insecure, "insecure", false, "use HTTP instead of HTTPS")
	return "--bucket-name deploy --endpoint s3.example.com --access-key AKIA --secret-key -"
}

func (b *createBucket) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := errors.Join(require("bucket-name", b.bucket), require("endpoint", b.endpoint)); err != nil {
		return nil, err
	}
	if err := oneOf("provider", b.provider, sourcev1.ProviderGeneric, sourcev1.ProviderAWS, sourcev1.ProviderGCP,
		sourcev1.ProviderAzure); err != nil {
		return nil, err
	}
	if (b.accessKey == "") != (b.secretKey == "") {
		return nil, usagef("set both --access-key and --secret-key")
	}
	if b.accessKey != "" && b.secretRef == "" {
		secretKey, err := c.readSecret("secret-key", b.secretKey)
		if err != nil {
			return nil, err
		}
		if err := c.setSecret(corev1.SecretTypeOpaque,
			map[string]string{"accesskey": b.accessKey, "secretkey": secretKey}); err != nil {
			return nil, err
		}
		b.secretRef = c.secret.Name
	}
	return &sourcev1.Bucket{Spec: sourcev1.BucketSpec{
		Provider: b.provider, BucketName: b.bucket, Endpoint: b.endpoint, Region: b.region, Prefix: b.prefix,
		Interval: c.interval, SecretRef: localRef(b.secretRef), ProxySecretRef: localRef(b.proxy),
		Ignore: ignoreRules(b.ignore), Insecure: b.insecure,
	}}, nil
}
