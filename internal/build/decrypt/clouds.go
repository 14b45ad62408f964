package decrypt

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/getsops/sops/v3/azkv"
	"github.com/getsops/sops/v3/gcpkms"
	"github.com/getsops/sops/v3/keyservice"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/option"

	"github.com/sluice-gitops/sluice/internal/limits/keysize"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
)

// client returns the client of key services. Their libraries read all of a response, and a tenant may choose the
// server.
func (k *Keys) client() *http.Client {
	return &http.Client{Transport: egress.Bounded{Next: cmp.Or(k.Transport, http.DefaultTransport), Bytes: maxAnswer}}
}

// unquoted returns a client for Azure, whose library quotes failed answers: a file names the server.
func (k *Keys) unquoted() *http.Client {
	client := k.client()
	client.Transport = egress.Unquoted(client.Transport)
	return client
}

// addAWS reads static credentials.
func (k *Keys) addAWS(text []byte) error {
	var c struct {
		ID     string `json:"aws_access_key_id"`
		Secret string `json:"aws_secret_access_key"`
		Token  string `json:"aws_session_token"`
	}
	if err := read(text, &c); err != nil {
		return err
	}
	if c.ID == "" || c.Secret == "" {
		return errors.New("aws_access_key_id or aws_secret_access_key is missing")
	}
	provider := credentials.NewStaticCredentialsProvider(c.ID, c.Secret, c.Token)
	k.AWS = func(context.Context, string) (aws.CredentialsProvider, error) { return provider, nil }
	return nil
}

func (k *Keys) withAWS(ctx context.Context, key *keyservice.KmsKey, ciphertext []byte) ([]byte, error) {
	id, err := arn.Parse(key.Arn)
	if err != nil {
		return nil, errors.New("the ARN cannot be read")
	}
	if err := auth.CheckRegion(id.Region); err != nil || id.Region == "" {
		return nil, errors.New("the region of the ARN is not a region of AWS") // it is a part of the host's name
	}
	if k.AWS == nil {
		return nil, errNotAtHand
	}
	provider, err := k.AWS(ctx, id.Region)
	if err != nil {
		return nil, err
	}
	blob, err := base64.StdEncoding.DecodeString(string(ciphertext))
	if err != nil {
		return nil, errors.New("the encrypted key is not in base64")
	}
	// SOPS' own client would read the AWS settings of this machine, such as a profile that the file refers to.
	config := aws.Config{Region: id.Region, Credentials: provider, HTTPClient: k.client()}
	if key.Role != "" {
		assume := stscreds.NewAssumeRoleProvider(sts.NewFromConfig(config), key.Role,
			func(o *stscreds.AssumeRoleOptions) { o.RoleSessionName = "sluice" })
		config.Credentials = aws.NewCredentialsCache(assume)
	}
	out, err := kms.NewFromConfig(config).Decrypt(ctx,
		&kms.DecryptInput{KeyId: &key.Arn, CiphertextBlob: blob, EncryptionContext: key.Context})
	if err != nil {
		return nil, err
	}
	return out.Plaintext, nil
}

// addAzure reads a service principal with a secret or a certificate, a service principal in the output format of the az
// command, or the client ID of a managed identity.
func (k *Keys) addAzure(text []byte) error {
	var c struct {
		TenantID                   string `json:"tenantId"`
		ClientID                   string `json:"clientId"`
		ClientSecret               string `json:"clientSecret"`
		ClientCertificate          string `json:"clientCertificate"`
		ClientCertificatePassword  string `json:"clientCertificatePassword"`
		ClientCertificateSendChain bool   `json:"clientCertificateSendChain"`
		AuthorityHost              string `json:"authorityHost"`
		Tenant                     string `json:"tenant"`
		AppID                      string `json:"appId"`
		Password                   string `json:"password"`
	}
	if err := read(text, &c); err != nil {
		return err
	}
	options := azcore.ClientOptions{Transport: k.unquoted()}
	if c.AuthorityHost != "" {
		options.Cloud = cloud.Configuration{ActiveDirectoryAuthorityHost: c.AuthorityHost}
	}
	var credential azcore.TokenCredential
	var err error
	switch {
	case c.Tenant != "" && c.AppID != "" && c.Password != "":
		credential, err = azidentity.NewClientSecretCredential(c.Tenant, c.AppID, c.Password,
			&azidentity.ClientSecretCredentialOptions{ClientOptions: options})
	case c.TenantID != "" && c.ClientID != "" && c.ClientCertificate != "":
		file, password := []byte(c.ClientCertificate), []byte(c.ClientCertificatePassword)
		if err := keysize.CheckFile(file); err != nil {
			return err
		}
		certificates, key, parseErr := azidentity.ParseCertificates(file, password)
		if parseErr != nil {
			return errors.New("clientCertificate cannot be read")
		}
		if err := keysize.Check(key); err != nil {
			return err
		}
		credential, err = azidentity.NewClientCertificateCredential(c.TenantID, c.ClientID, certificates, key,
			&azidentity.ClientCertificateCredentialOptions{ClientOptions: options,
				SendCertificateChain: c.ClientCertificateSendChain})
	case c.TenantID != "" && c.ClientID != "" && c.ClientSecret != "":
		credential, err = azidentity.NewClientSecretCredential(c.TenantID, c.ClientID, c.ClientSecret,
			&azidentity.ClientSecretCredentialOptions{ClientOptions: options})
	case c.ClientID != "":
		credential, err = azidentity.NewManagedIdentityCredential(
			&azidentity.ManagedIdentityCredentialOptions{ClientOptions: options, ID: azidentity.ClientID(c.ClientID)})
	default:
		return errors.New("it has neither tenantId and clientId with clientSecret or clientCertificate, nor appId, " +
			"password and tenant, nor clientId")
	}
	if err != nil {
		return errors.New("the tenant or the authority host is not valid")
	}
	k.Azure = func(context.Context) (azcore.TokenCredential, error) { return credential, nil }
	return nil
}

func (k *Keys) withAzure(ctx context.Context, key *keyservice.AzureKeyVaultKey, ciphertext []byte) ([]byte, error) {
	if k.Azure == nil {
		return nil, errNotAtHand
	}
	credential, err := k.Azure(ctx)
	if err != nil {
		return nil, err
	}
	master := azkv.NewMasterKey(key.VaultUrl, key.Name, key.Version)
	master.EncryptedKey = string(ciphertext)
	azkv.NewTokenCredential(credential).ApplyToMasterKey(master)
	azkv.NewClientOptions(&azkeys.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: k.unquoted()}}).
		ApplyToMasterKey(master)
	return master.DecryptContext(ctx)
}

const gcpScope = "https://www.googleapis.com/auth/cloudkms"

// addGCP reads the key of a service account. Other kinds of credentials could refer to files, programs or URLs.
func (k *Keys) addGCP(text []byte) error {
	jwt, err := google.JWTConfigFromJSON(text, gcpScope)
	if err != nil {
		return errors.New("it is not the key of a service account in JSON")
	}
	if err := keysize.CheckPrivate(jwt.PrivateKey); err != nil {
		return err
	}
	k.GCP = func(ctx context.Context) (oauth2.TokenSource, error) {
		return jwt.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, k.client())), nil
	}
	return nil
}

func (k *Keys) withGCP(ctx context.Context, key *keyservice.GcpKmsKey, ciphertext []byte) ([]byte, error) {
	if k.GCP == nil {
		return nil, errNotAtHand
	}
	tokens, err := k.GCP(ctx)
	if err != nil {
		return nil, err
	}
	master := gcpkms.NewMasterKeyFromResourceID(key.ResourceId)
	master.EncryptedKey = string(ciphertext)
	gcpkms.NewTokenSource(tokens).ApplyToMasterKey(master)
	gcpkms.UseRESTClient{}.ApplyToMasterKey(master)
	authorized := &http.Client{Transport: &oauth2.Transport{Source: tokens, Base: k.client().Transport}}
	gcpkms.ClientOptions{option.WithHTTPClient(authorized)}.ApplyToMasterKey(master)
	return master.DecryptContext(ctx)
}
