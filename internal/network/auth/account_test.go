package auth

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestHintOfAServiceAccountFitsTheCause(t *testing.T) {
	accounts := schema.GroupResource{Resource: "serviceaccounts"}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"missing": {err: apierrors.NewNotFound(accounts, "app"),
			want: "Create the service account, or correct spec.serviceAccountName"},
		"forbidden": {err: apierrors.NewForbidden(accounts, "app", errors.New("no right")),
			want: "Allow the controller to get serviceaccounts and to create serviceaccounts/token, which sluice " +
				"install does"},
		"server error": {err: apierrors.NewTimeoutError("slow", 1), want: ""},
	} {
		if got := accountFault(c.err, "cannot read service account 'app'").Hint; got != c.want {
			t.Errorf("%s: got hint %q, want %q", name, got, c.want)
		}
	}
}
