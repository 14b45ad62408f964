package auth

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ecr"
	"github.com/aws/aws-sdk-go-v2/service/ecrpublic"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-containerregistry/pkg/authn"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	roleAnnotation  = "eks.amazonaws.com/role-arn"
	awsAudience     = "sts.amazonaws.com"
	publicECR       = "public.ecr.aws"
	publicECRRegion = "us-east-1" // the only region that issues tokens of the public registry
	maxSessionName  = 64
	// awsRegion matches regions. It must not match names of services, since customers choose host names below them.
	awsRegion = `[a-z]{2,4}(?:-[a-z]+)+-[0-9]`
)

var (
	ecrHost = regexp.MustCompile(`^\d{12}\.dkr[.-]ecr(-fips)?\.(` + awsRegion +
		`)\.(amazonaws\.com|amazonaws\.com\.cn|amazonaws\.eu|on\.aws|on\.amazonwebservices\.com\.cn)$`)
	codeCommitHost = regexp.MustCompile(`^git-codecommit(-fips)?\.(` + awsRegion +
		`)\.(amazonaws\.com|amazonaws\.com\.cn|vpce\.amazonaws\.com|vpce\.amazonaws\.com\.cn)$`)
)

// regionName matches names of regions, also of other object stores. A region is a part of host names, so that a dot or
// a slash would lead to another host.
var regionName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)

// CheckRegion returns a fault for a region that is not a single part of a host name. An empty region is valid: it is
// determined by the server.
func CheckRegion(region string) error {
	if region == "" || regionName.MatchString(region) {
		return nil
	}
	return fault.New(meta.InvalidSpecReason, "'%.63s' is not the name of a region", region).
		WithHint("Use letters, digits, '-' and '_' only, such as eu-west-1").Final()
}

// AWS returns a provider of credentials for a region, such as for S3 and KMS. It renews them. The error is a fault.
func (i *Identities) AWS(ctx context.Context, region string, account *types.NamespacedName) (aws.CredentialsProvider,
	error) {
	if err := CheckRegion(region); err != nil {
		return nil, err
	}
	provider := aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		s, err := i.subject(ctx, account)
		if err != nil {
			return aws.Credentials{}, err
		}
		return i.awsCredentials(ctx, region, s)
	})
	if _, err := provider.Retrieve(ctx); err != nil {
		return nil, err
	}
	return provider, nil
}

func (i *Identities) awsCredentials(ctx context.Context, region string, s subject) (aws.Credentials, error) {
	key := keyOf(append(s.key(roleAnnotation), region)...)
	return i.aws.get(ctx, i.cacheOptions(), key, func() (aws.Credentials, time.Time, error) {
		fetch := i.assumeRole
		if s.isProcess() {
			fetch = ambientAWS
		}
		c, err := fetch(ctx, region, s)
		if err != nil {
			return c, time.Time{}, err
		}
		if !c.CanExpire {
			return c, now(i.Clock).Add(maxTTL), nil
		}
		return c, c.Expires, nil
	})
}

// ambientAWS returns the credentials of the process by the SDK's default chain: environment, web identity, EKS Pod
// Identity, instance.
func ambientAWS(ctx context.Context, region string, s subject) (aws.Credentials, error) {
	c, err := config.LoadDefaultConfig(ctx, config.WithRegion(region))
	if err != nil {
		return aws.Credentials{}, exchangeFault(err, s, "cannot read the AWS configuration of the controller")
	}
	credentials, err := c.Credentials.Retrieve(ctx)
	if err != nil {
		return credentials, exchangeFault(err, s, "the controller has no AWS credentials")
	}
	return credentials, nil
}

// assumeRole exchanges a token of the service account for credentials of its role (STS, AssumeRoleWithWebIdentity).
func (i *Identities) assumeRole(ctx context.Context, region string, s subject) (aws.Credentials, error) {
	role := s.annotations[roleAnnotation]
	if parsed, err := arn.Parse(role); err != nil || parsed.Service != "iam" ||
		!strings.HasPrefix(parsed.Resource, "role/") {
		return aws.Credentials{}, authFault("service account '%s' has no role ARN in its annotation %s", s.account,
			roleAnnotation).
			WithHint("Use the form arn:aws:iam::ACCOUNT:role/NAME")
	}
	token, err := i.token(ctx, s, awsAudience)
	if err != nil {
		return aws.Credentials{}, err
	}
	session := s.account.Name + "." + s.account.Namespace + ".sluice" // shown in CloudTrail, and used in policies
	client := sts.New(sts.Options{Region: cmp.Or(region, os.Getenv("AWS_REGION"), publicECRRegion),
		HTTPClient: i.client()})
	out, err := client.AssumeRoleWithWebIdentity(ctx, &sts.AssumeRoleWithWebIdentityInput{
		RoleArn: &role, WebIdentityToken: &token,
		RoleSessionName: aws.String(session[:min(len(session), maxSessionName)]),
	})
	if err == nil && (out.Credentials == nil || aws.ToString(out.Credentials.AccessKeyId) == "") {
		err = errors.New("the answer contains no credentials")
	}
	if err != nil {
		return aws.Credentials{}, exchangeFault(err, s, "AWS issued no credentials for role %s", role)
	}
	c := out.Credentials
	return aws.Credentials{
		AccessKeyID: aws.ToString(c.AccessKeyId), SecretAccessKey: aws.ToString(c.SecretAccessKey),
		SessionToken: aws.ToString(c.SessionToken),
		CanExpire:    true, Expires: aws.ToTime(c.Expiration), Source: "sluice",
	}, nil
}

// ecr returns the login to a private registry of ECR, or to the public registry.
func (i *Identities) ecr(ctx context.Context, host string, s subject) (authn.AuthConfig, error) {
	region := publicECRRegion
	if host != publicECR {
		match := ecrHost.FindStringSubmatch(host)
		if match == nil {
			return authn.AuthConfig{}, foreignHost(AWS, host, "ACCOUNT.dkr.ecr.REGION.amazonaws.com or "+publicECR)
		}
		region = match[2]
	}
	key := keyOf(append(s.key(roleAnnotation), AWS, host)...)
	return i.registries.get(ctx, i.cacheOptions(), key, func() (authn.AuthConfig, time.Time, error) {
		var token *string
		var expires *time.Time
		provider := aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
			return i.awsCredentials(ctx, region, s)
		})
		if _, err := provider.Retrieve(ctx); err != nil {
			return authn.AuthConfig{}, time.Time{}, err
		}
		var err error
		if host == publicECR {
			client := ecrpublic.New(ecrpublic.Options{Region: region, Credentials: provider, HTTPClient: i.client()})
			var out *ecrpublic.GetAuthorizationTokenOutput
			if out, err = client.GetAuthorizationToken(ctx, &ecrpublic.GetAuthorizationTokenInput{}); err == nil &&
				out.AuthorizationData != nil {
				token, expires = out.AuthorizationData.AuthorizationToken, out.AuthorizationData.ExpiresAt
			}
		} else {
			client := ecr.New(ecr.Options{Region: region, Credentials: provider, HTTPClient: i.client()})
			var out *ecr.GetAuthorizationTokenOutput
			if out, err = client.GetAuthorizationToken(ctx, &ecr.GetAuthorizationTokenInput{}); err == nil &&
				len(out.AuthorizationData) > 0 {
				token, expires = out.AuthorizationData[0].AuthorizationToken, out.AuthorizationData[0].ExpiresAt
			}
		}
		plain, decoded := base64.StdEncoding.DecodeString(aws.ToString(token))
		name, password, ok := strings.Cut(string(plain), ":")
		if err == nil && (decoded != nil || !ok || password == "") {
			err = errors.New("the answer contains no token")
		}
		if err != nil {
			return authn.AuthConfig{}, time.Time{}, exchangeFault(err, s, "ECR issued no login for host '%s'", host)
		}
		return authn.AuthConfig{Username: name, Password: password}, aws.ToTime(expires), nil
	})
}

// codeCommit returns the login that AWS documents for its credential helper: the access key, and a version 4 signature
// over the method GIT, the path of the repository and the host.
func (i *Identities) codeCommit(ctx context.Context, u *url.URL, s subject) (GitCredentials, error) {
	region, err := CodeCommitRegion(u)
	if err != nil {
		return GitCredentials{}, err
	}
	c, err := i.awsCredentials(ctx, region, s)
	if err != nil {
		return GitCredentials{}, err
	}
	login := GitCredentials{Username: c.AccessKeyID,
		Password: signCodeCommit(c.SecretAccessKey, region, strings.ToLower(u.Hostname()), u.EscapedPath(),
			now(i.Clock).UTC())}
	if c.SessionToken != "" {
		login.Username += "%" + c.SessionToken
	}
	return login, nil
}

// CodeCommitRegion returns the region of the URL of a CodeCommit repository. The error is a terminal fault.
func CodeCommitRegion(u *url.URL) (string, error) {
	host := strings.ToLower(u.Hostname())
	match := codeCommitHost.FindStringSubmatch(host)
	if match == nil {
		return "", foreignHost(AWS, host, "git-codecommit.REGION.amazonaws.com")
	}
	return match[2], nil
}

func signCodeCommit(secret, region, host, path string, at time.Time) string {
	day, timestamp := at.Format("20060102"), at.Format("20060102T150405")
	request := sha256.Sum256([]byte("GIT\n" + path + "\n\nhost:" + host + "\n\nhost\n"))
	key := []byte("AWS4" + secret)
	for _, part := range []string{day, region, "codecommit", "aws4_request"} {
		key = mac(key, part)
	}
	text := "AWS4-HMAC-SHA256\n" + timestamp + "\n" + day + "/" + region + "/codecommit/aws4_request\n" +
		hex.EncodeToString(request[:])
	return timestamp + "Z" + hex.EncodeToString(mac(key, text))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
