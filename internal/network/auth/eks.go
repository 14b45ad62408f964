package auth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/arn"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

const (
	eksTokenPrefix = "k8s-aws-v1."
	eksNameHeader  = "x-k8s-aws-id"   // binds the token to the cluster
	eksTokenTTL    = 14 * time.Minute // a cluster accepts a token for 15 minutes
	eksURLTTL      = time.Minute      // of the signed URL, which only shows the identity
)

// awsDomains maps a partition to the domain of its endpoints.
var awsDomains = map[string]string{"aws": "amazonaws.com", "aws-us-gov": "amazonaws.com", "aws-cn": "amazonaws.com.cn",
	"aws-eusc": "amazonaws.eu"}

var (
	eksRegion  = regexp.MustCompile(`^` + awsRegion + `$`)
	eksAccount = regexp.MustCompile(`^[0-9]{12}$`)
	eksName    = regexp.MustCompile(`^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$`)
)

// eksCluster is a cluster of EKS.
type eksCluster struct{ arn, name, region, domain string }

func (i *Identities) eks(resource string) (managed, error) {
	parsed, err := arn.Parse(resource)
	name, ok := strings.CutPrefix(parsed.Resource, "cluster/")
	domain := awsDomains[parsed.Partition]
	if err != nil || !ok || parsed.Service != "eks" || domain == "" || !eksRegion.MatchString(parsed.Region) ||
		!eksAccount.MatchString(parsed.AccountID) || !eksName.MatchString(name) {
		return managed{}, authFault("%q is not the ARN of a cluster", firstLine(resource)).
			WithHint("Use the form arn:aws:eks:REGION:ACCOUNT:cluster/NAME").Final()
	}
	c := eksCluster{arn: resource, name: name, region: parsed.Region, domain: domain}
	return managed{
		describe: func(ctx context.Context, s subject) (endpoint, error) { return i.describeEKS(ctx, s, c) },
		token:    func(ctx context.Context, s subject) (string, time.Time, error) { return i.eksToken(ctx, s, c) },
	}, nil
}

// describeEKS calls DescribeCluster of the EKS API.
func (i *Identities) describeEKS(ctx context.Context, s subject, c eksCluster) (endpoint, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://eks."+c.region+"."+c.domain+"/clusters/"+
		c.name, nil)
	if err != nil {
		return endpoint{}, authFault("%s is not the ARN of a cluster", c.arn).Final()
	}
	credentials, err := i.awsCredentials(ctx, c.region, s)
	if err != nil {
		return endpoint{}, err
	}
	if err := v4.NewSigner().SignHTTP(ctx, credentials, req, noPayload, "eks", c.region, now(i.Clock).
		UTC()); err != nil {
		return endpoint{}, exchangeFault(err, s, "cannot sign the request for cluster '%s'", c.arn)
	}
	var response struct {
		Cluster struct {
			Endpoint             string
			CertificateAuthority struct{ Data string }
		}
	}
	if err := i.callCloudAPI(s, req, c.arn, "the permission eks:DescribeCluster", &response); err != nil {
		return endpoint{}, err
	}
	e := endpoint{}
	if at := response.Cluster.Endpoint; at != "" {
		e = endpoint{[]string{at}, map[string][]byte{at: decodeCA(response.Cluster.CertificateAuthority.Data)}}
	}
	return e, nil
}

// eksToken returns a signed URL of GetCallerIdentity. The cluster calls it to learn the identity. Creating it needs no
// request.
func (i *Identities) eksToken(ctx context.Context, s subject, c eksCluster) (string, time.Time, error) {
	credentials, err := i.awsCredentials(ctx, c.region, s)
	if err != nil {
		return "", time.Time{}, err
	}
	query := url.Values{"Action": {"GetCallerIdentity"}, "Version": {"2011-06-15"},
		"X-Amz-Expires": {strconv.Itoa(int(eksURLTTL / time.Second))}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://sts."+c.region+"."+c.domain+"/?"+
		query.Encode(), nil)
	if err != nil {
		return "", time.Time{}, authFault("%s is not the ARN of a cluster", c.arn).Final()
	}
	req.Header.Set(eksNameHeader, c.name)
	signed, _, err := v4.NewSigner().PresignHTTP(ctx, credentials, req, noPayload, "sts", c.region, now(i.Clock).UTC())
	if err != nil {
		return "", time.Time{}, exchangeFault(err, s, "cannot sign a token for cluster '%s'", c.arn)
	}
	expires := now(i.Clock).Add(eksTokenTTL)
	if credentials.CanExpire && credentials.Expires.Before(expires) {
		expires = credentials.Expires
	}
	return eksTokenPrefix + base64.RawURLEncoding.EncodeToString([]byte(signed)), expires, nil
}

// noPayload is the digest of an empty body, as signatures contain it.
var noPayload = hex.EncodeToString(func() []byte { sum := sha256.Sum256(nil); return sum[:] }())
