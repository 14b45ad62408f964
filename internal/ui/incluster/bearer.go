package incluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/sluice-gitops/sluice/internal/ui"
)

// maxIDToken bounds an ID token, in bytes.
const maxIDToken = 7 << 10

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

func (l *Login) bearer(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	if l.provider != nil && len(token) <= maxIDToken {
		who, err := l.provider.verify(ctx, token, l.Now)
		if refused := (*refusal)(nil); errors.As(err, &refused) {
			return nil, fmt.Errorf("the login is refused: %w", err)
		}
		if err == nil {
			return &authenticationv1.UserInfo{Username: who.User, Groups: who.Groups}, nil
		}
	}
	who, err := l.account(ctx, l.logins, token)
	if err != nil && l.provider != nil {
		return nil, errors.New("the token is neither a valid ID token of the login provider for this client, nor the " +
			"token of a ServiceAccount that may log in")
	}
	return who, err
}

// verify returns who an ID token is for.
func (p *provider) verify(ctx context.Context, raw string, now func() time.Time) (*identity, error) {
	found, err := p.discover(ctx)
	if err != nil {
		return nil, err
	}
	ctx = oidc.ClientContext(ctx, p.client)
	token, err := found.VerifierContext(ctx, &oidc.Config{ClientID: p.ClientID, Now: now}).Verify(ctx, raw)
	if err != nil {
		return nil, err
	}
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return nil, err
	}
	who, err := p.identity(claims)
	if err != nil {
		return nil, &refusal{err}
	}
	return who, nil
}
