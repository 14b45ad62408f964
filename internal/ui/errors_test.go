package ui

import (
	"errors"
	"net"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestErrorsSayWhatToDoInABrowser(t *testing.T) {
	gates := schema.GroupResource{Resource: "gates"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{
			err: apierrors.NewForbidden(gates, "release",
				errors.New(`User "u" cannot get resource "gates" in API group ""`)),
			want: "Ask an administrator for this permission.",
		},
		{err: apierrors.NewForbidden(gates, "release", errors.New("not an approver")), want: "not an approver"},
		{err: apierrors.NewUnauthorized("expired"), want: "The cluster rejected the credentials of this server: " +
			"start it again."},
		{err: &apimeta.NoKindMatchError{}, want: "Run sluice check: a definition is missing."},
		{err: &net.OpError{Op: "dial", Err: errors.New("refused")}, want: "Check that the cluster is running. This " +
			"page tries again by itself."},
		{err: errors.New("something else"), want: "something else"},
	} {
		got := explain(c.err)
		if !strings.HasPrefix(got, c.err.Error()) || !strings.HasSuffix(got, c.want) || strings.Contains(got, "--") {
			t.Errorf("got %q, want %q at the end", got, c.want)
		}
	}
}
