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
	spec                 sourcev1.BucketSpec
	accessKey, secretKey string
	ignore               []string
}

func (b *createBucket) bind(f *pflag.FlagSet) string {
	f.StringVar(&b.spec.BucketName, "bucket-name", "", "name of the bucket")
	f.StringVar(&b.spec.Endpoint, "endpoint", "", "address of the object store, as HOST:PORT")
	f.StringVar(&b.spec.Provider, "provider", sourcev1.ProviderGeneric,
		"type of the object store: generic (S3), aws, gcp or azure")
	f.StringVar(&b.spec.Region, "region", "", "region of the bucket")
	f.StringVar(&b.spec.Prefix, "prefix", "", "only objects whose keys have this prefix")
	f.StringVar(&b.accessKey, "access-key", "", "access key")
	f.StringVar(&b.secretKey, "secret-key", "", "secret key; - reads it from standard input")
	refVar(f, &b.spec.SecretRef, "secret-ref", "existing Secret with the credentials, instead of creating one")
	refVar(f, &b.spec.ProxySecretRef, "proxy-secret-ref", "Secret with the address of a proxy")
	f.StringSliceVar(&b.ignore, "ignore-paths", nil, "paths to exclude, in .gitignore syntax")
	f.BoolVar(&b.spec.Insecure, "insecure", false, "use HTTP instead of HTTPS")
	return "--bucket-name deploy --endpoint s3.example.com --access-key AKIA --secret-key -"
}

func (b *createBucket) build(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := errors.Join(require("bucket-name", b.spec.BucketName), require("endpoint", b.spec.Endpoint)); err != nil {
		return nil, err
	}
	if err := oneOf("provider", b.spec.Provider, sourcev1.ProviderGeneric, sourcev1.ProviderAWS, sourcev1.ProviderGCP,
		sourcev1.ProviderAzure); err != nil {
		return nil, err
	}
	if (b.accessKey == "") != (b.secretKey == "") {
		return nil, usagef("set both --access-key and --secret-key")
	}
	if b.accessKey != "" && b.spec.SecretRef == nil {
		secretKey, err := c.readSecret("secret-key", b.secretKey)
		if err != nil {
			return nil, err
		}
		if err := c.setSecret(corev1.SecretTypeOpaque,
			map[string]string{"accesskey": b.accessKey, "secretkey": secretKey}); err != nil {
			return nil, err
		}
		b.spec.SecretRef = localRef(c.secret.Name)
	}
	b.spec.Interval, b.spec.Ignore = c.interval, ignoreRules(b.ignore)
	return &sourcev1.Bucket{Spec: b.spec}, nil
}
