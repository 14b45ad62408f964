package gate

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func TestInstallIsAdvisedOnlyIfItHelps(t *testing.T) {
	policies := schema.GroupResource{Resource: "validatingadmissionpolicies"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{err: errAccepted, want: "Run `sluice install`"},
		{err: apierrors.NewNotFound(policies, "p"), want: "Run `sluice install`"},
		{err: apierrors.NewForbidden(policies, "p", errAccepted), want: "Run `sluice install`"},
		{err: context.DeadlineExceeded, want: ""},
	} {
		f := fault.As(forApprovals.fault("is not enforced", c.err))
		if f == nil || f.Hint != c.want {
			t.Errorf("%v: got %v, want the hint %q", c.err, f, c.want)
		}
	}
}
