package bucket

import (
	"context"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/sluice-gitops/sluice/internal/auth"
)

// NoKeys ask for what is public.
func NoKeys() *credentials.Credentials { return credentials.NewStaticV4("", "", "") }

// KeysFrom reads accesskey and secretkey of a Secret.
func KeysFrom(data map[string][]byte) (*credentials.Credentials, error) {
	access, secret := string(data["accesskey"]), string(data["secretkey"])
	if access == "" || secret == "" {
		return nil, refused("the Secret has not both of the keys accesskey and secretkey").
			WithHint("Set both, or correct spec.secretRef")
	}
	return credentials.NewStaticV4(access, secret, ""), nil
}

// Key is a temporary key to a bucket.
type Key struct {
	Access, Secret, Session string
	Expires                 time.Time // zero: never
}

// KeysOf asks for a key whenever the last one is about to expire.
func KeysOf(get func(context.Context) (Key, error)) *credentials.Credentials {
	return credentials.New(&keys{get: get})
}

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
		key.Expires = time.Now().Add(time.Hour) // asked for again then
	}
	k.SetExpiration(key.Expires, credentials.DefaultExpiryWindow)
	return credentials.Value{
		AccessKeyID: key.Access, SecretAccessKey: key.Secret, SessionToken: key.Session,
		Expiration: key.Expires, SignerType: credentials.SignatureV4,
	}, nil
}

// LDAPKeys are had from a Security Token Service that knows users by LDAP, as MinIO has it.
func LDAPKeys(endpoint string, login auth.Basic, transport http.RoundTripper) *credentials.Credentials {
	return credentials.New(&explained{&credentials.LDAPIdentity{
		Client: &http.Client{Transport: transport}, STSEndpoint: endpoint, LDAPUsername: login.Username,
		LDAPPassword: login.Password,
	}, endpoint})
}

// WebIdentityKeys are had from AWS's Security Token Service at an endpoint, for a role and the token of a
// service account.
func WebIdentityKeys(endpoint, role string, token func(context.Context) (string, error),
	transport http.RoundTripper) *credentials.Credentials {
	return credentials.New(&explained{&credentials.STSWebIdentity{
		Client: &http.Client{Transport: transport}, STSEndpoint: endpoint, RoleARN: role,
		GetWebIDTokenExpiry: func() (*credentials.WebIdentityToken, error) {
			ctx, cancel := context.WithTimeout(context.Background(), exchangeTimeout)
			defer cancel()
			t, err := token(ctx)
			return &credentials.WebIdentityToken{Token: t}, err
		},
	}, endpoint})
}

// explained says of a failure whose it was: that of the Security Token Service.
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
