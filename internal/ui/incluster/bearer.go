package incluster

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/ui"
)

// Bearer returns who has a token: an ID token of the login provider, or the token of a ServiceAccount. It is for
// programs, which have no session. The error may be shown.
func (l *Login) Bearer(ctx context.Context, token string) (*ui.User, error) {
	who, err := l.bearer(ctx, token)
	if err != nil {
		return nil, err
	}
	p, err := l.people.get(who)
	if err != nil {
		return nil, err
	}
	return &ui.User{Name: who.Username, Groups: who.Groups, Client: p.client, Cluster: p.cluster, Config: p.config,
		See: p.see}, nil
}

// byHub returns the user with a token that a hub took from a cookie. So writes need a secret, which only pages know.
func (l *Login) byHub(ctx context.Context, token string) (*ui.User, error) {
	u, err := l.Bearer(ctx, token)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, l.Key)
	mac.Write([]byte("secret of a session at the hub " + token))
	u.CSRF = base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	return u, nil
}

func (l *Login) bearer(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	if l.OIDC != nil {
		who, err := l.sessions.Verify(ctx, token)
		if refused := (*login.Refusal)(nil); errors.As(err, &refused) {
			return nil, fmt.Errorf("the login is refused: %w", err)
		}
		if err == nil {
			return &authenticationv1.UserInfo{Username: who.User, Groups: who.Groups}, nil
		}
	}
	who, err := l.account(ctx, l.logins, token)
	if err != nil && l.OIDC != nil {
		return nil, errors.New("the token is neither a valid ID token of the login provider for this client, nor the " +
			"token of a ServiceAccount that may log in")
	}
	return who, err
}
