package incluster

import (
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/credentials/login"
	"github.com/sluice-gitops/sluice/internal/ui"
)

// maxToken bounds the token of a ServiceAccount, in bytes. It is part of the cookie.
const maxToken = 2500

// accountPrefix is what the users of ServiceAccounts start with.
const accountPrefix = "system:serviceaccount:"

// byToken starts a session for who has the token of a ServiceAccount.
func (l *Login) byToken(w http.ResponseWriter, r *http.Request) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		answer(w, http.StatusUnsupportedMediaType, failure{Error: "the body must be application/json"})
		return
	}
	var body struct {
		Token string `json:"token"`
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		answer(w, http.StatusBadRequest, failure{Error: "the body cannot be read, or it is too large"})
		return
	}
	token := strings.TrimSpace(body.Token)
	who, err := l.account(r.Context(), l.logins, token)
	if err == nil {
		err = l.sessions.Begin(w, login.Session{Token: token}, who.Username)
	}
	var status *loginError
	switch {
	case err == nil:
		answer(w, http.StatusOK, map[string]string{"done": "login"})
	case errors.As(err, &status):
		answer(w, status.status, failure{Error: status.text})
	default:
		l.Log.Error(err, "login to the UI failed")
		answer(w, http.StatusBadGateway, failure{Error: "the token cannot be checked now. Try again."})
	}
}

// loginError is an error of a login, with its HTTP status.
type loginError struct {
	status int
	text   string
}

func (e *loginError) Error() string { return e.text }

// account returns whose token it is. Tokens of others than ServiceAccounts are refused.
func (l *Login) account(ctx context.Context, reviewer *accessreview.Reviewer, token string) (
	*authenticationv1.UserInfo, error) {

	if !l.TokenLogin || token == "" || len(token) > maxToken {
		return nil, &loginError{status: http.StatusUnauthorized, text: "this is not the token of a ServiceAccount"}
	}
	who, err := reviewer.User(ctx, token)
	switch {
	case errors.Is(err, accessreview.ErrUnauthenticated):
		return nil, &loginError{status: http.StatusUnauthorized, text: "the token is not valid, or it has expired"}
	case err != nil:
		return nil, ui.NewError(http.StatusBadGateway, "the cluster cannot check your session now. Try again.")
	case !strings.HasPrefix(who.Username, accountPrefix):
		return nil, &loginError{status: http.StatusUnauthorized, text: "this is not the token of a ServiceAccount"}
	}
	return who, nil
}
