package manager

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestFlagsSayHowToApply(t *testing.T) {
	t.Parallel()
	parse := func(args ...string) *Options {
		o := &Options{}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.BindFlags(flags)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		return o
	}
	o := parse("--concurrent-ssa=3", "--custom-apply-stage-kinds=rbac.authorization.k8s.io/Role,Secret",
		"--override-manager=node-fetch", "--override-manager=lens")
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	got := o.apply()
	if got.Concurrency != 3 || len(got.CustomStage) != 2 ||
		got.CustomStage[0] != (schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "Role"}) ||
		got.CustomStage[1].Kind != "Secret" || strings.Join(got.OverrideManagers, " ") != "node-fetch lens" {
		t.Errorf("applies with %+v", got)
	}
	if got := parse().apply(); got.Concurrency != 8 || len(got.CustomStage)+len(got.OverrideManagers) != 0 {
		t.Errorf("applies with %+v by default", got)
	}
}
