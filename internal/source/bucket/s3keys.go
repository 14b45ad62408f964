package bucket

import (
	"context"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/sluice-gitops/sluice/internal/network/auth"
)

// NoKeys returns anonymous credentials, for public buckets.
func NoKeys() *credentials.Credentials { return credentials.NewStaticV4("", "", "") }

// KeysFrom returns the credentials in accesskey and secretkey of a Secret.
func KeysFrom(data map[string][]byte) (*credentials.Credentials, error) {
	access, secret := string(data["accesskey"]), string(data["secretkey"])
	if access == "" || secret == "" {
		return nil, refused("the Secret does not have both keys 'accesskey' and 'secretkey'").
			WithHint("Set both keys, or correct spec.secretRef")
	}
	return credentials.NewStaticV4(access, secret, ""), nil
}

// Key is a temporary key to a bucket.
type Key struct {
	Access, Secret, Session string
	Expires                 time.Time // zero if it does not expire
}

// KeysOf returns credentials that call get whenever the last key is about to expire.
func KeysOf(get func(context.Context) (Key, error)) *credentials.Credentials {
	return credentials.New(&keys{get: get})
}

// keys implements [credentials.Provider].
type keys struct {
	credentials.Expiry
	get func(context.Context) (Key, error)
}

// Retrieve implements [credentials.Provider].
func (k *keys) Retrieve() (credentials.Value, error) { return k.RetrieveWithCredContext(nil) }

// RetrieveWithCredContext implements [credentials.Provider].
func (k *keys) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	ctx := context.Background()
	if cc != nil && cc.Context != nil {
		ctx = cc.Context
	}
	key, err := k.get(ctx)
	if err != nil {
		return credentials.Value{}, err
	}
	if key.Expires.IsZero() {
		key.Expires = time.Now().Add(time.Hour) // get is called again then
	}
	k.SetExpiration(key.Expires, credentials.DefaultExpiryWindow)
	return credentials.Value{
		AccessKeyID: key.Access, SecretAccessKey: key.Secret, SessionToken: key.Session,
		Expiration: key.Expires, SignerType: credentials.SignatureV4,
	}, nil
}

// LDAPKeys returns credentials of a Security Token Service that authenticates users by LDAP, such as MinIO's.
func LDAPKeys(endpoint string, login auth.Basic, transport http.RoundTripper) *credentials.Credentials {
	return credentials.New(&explained{&credentials.LDAPIdentity{
		Client: &http.Client{Transport: &limiter{transport}}, STSEndpoint: endpoint,
		LDAPUsername: login.Username, LDAPPassword: login.Password,
	}, endpoint})
}

// WebIdentityKeys returns credentials of the Security Token Service of AWS at an endpoint, for a role and the
// token of a service account.
func WebIdentityKeys(endpoint, role string, token func(context.Context) (string, error),
	transport http.RoundTripper) *credentials.Credentials {
	return credentials.New(&explained{&credentials.STSWebIdentity{
		Client: &http.Client{Transport: &limiter{transport}}, STSEndpoint: endpoint, RoleARN: role,
		GetWebIDTokenExpiry: func() (*credentials.WebIdentityToken, error) {
			ctx, cancel := context.WithTimeout(context.Background(), exchangeTimeout)
			defer cancel()
			t, err := token(ctx)
			return &credentials.WebIdentityToken{Token: t}, err
		},
	}, endpoint})
}

// explained adds to errors that the Security Token Service failed.
type explained struct {
	credentials.Provider
	endpoint string
}

// RetrieveWithCredContext implements [credentials.Provider].
func (e *explained) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	v, err := e.Provider.RetrieveWithCredContext(cc)
	if err != nil {
		err = stsFailed(e.endpoint, err)
	}
	return v, err
}
