package cli

import (
	"context"
	"errors"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	sourcev1 "github.com/sluice-gitops/sluice/api/source/v1"
	"github.com/sluice-gitops/sluice/internal/reconcile"
)

// createBucket is the flags of `create source bucket`.
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
		"whose protocol to speak: generic (S3), aws, gcp or azure")
	f.StringVar(&b.region, "region", "", "region of the bucket")
	f.StringVar(&b.prefix, "prefix", "", "only objects whose keys begin so")
	f.StringVar(&b.accessKey, "access-key", "", "access key of the login")
	f.StringVar(&b.secretKey, "secret-key", "", "secret key of the login; - reads it from standard input")
	f.StringVar(&b.secretRef, "secret-ref", "", "Secret with the login; none is made then")
	f.StringVar(&b.proxy, "proxy-secret-ref", "", "Secret with the proxy")
	f.StringSliceVar(&b.ignore, "ignore-paths", nil, "paths to leave out, in .gitignore syntax")
	f.BoolVar(&b.insecure, "insecure", false, "speak to the endpoint over HTTP")
	return "--bucket-name deploy --endpoint s3.example.com --access-key AKIA --secret-key -"
}

func (b *createBucket) make(_ context.Context, c *creation) (reconcile.Object, error) {
	if err := errors.Join(need("bucket-name", b.bucket), need("endpoint", b.endpoint)); err != nil {
		return nil, err
	}
	if err := oneOf("provider", b.provider, sourcev1.ProviderGeneric, sourcev1.ProviderAWS, sourcev1.ProviderGCP,
		sourcev1.ProviderAzure); err != nil {
		return nil, err
	}
	if (b.accessKey == "") != (b.secretKey == "") {
		return nil, usagef("--access-key and --secret-key go together")
	}
	if b.accessKey != "" && b.secretRef == "" {
		secretKey, err := c.private("secret-key", b.secretKey)
		if err != nil {
			return nil, err
		}
		if err := c.give(corev1.SecretTypeOpaque,
			map[string]string{"accesskey": b.accessKey, "secretkey": secretKey}); err != nil {
			return nil, err
		}
		b.secretRef = c.secret.Name
	}
	return &sourcev1.Bucket{Spec: sourcev1.BucketSpec{
		Provider: b.provider, BucketName: b.bucket, Endpoint: b.endpoint, Region: b.region, Prefix: b.prefix,
		Interval: c.interval, SecretRef: refer(b.secretRef), ProxySecretRef: refer(b.proxy),
		Ignore: ignoreRules(b.ignore), Insecure: b.insecure,
	}}, nil
}
