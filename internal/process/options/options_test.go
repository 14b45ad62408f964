package options

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestApplyOptions(t *testing.T) {
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
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	got := o.ApplyOptions()
	if got.Concurrency != 3 || len(got.CustomStage) != 2 ||
		got.CustomStage[0] != (schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "Role"}) ||
		got.CustomStage[1].Kind != "Secret" || strings.Join(got.OverrideManagers, " ") != "node-fetch lens" {
		t.Errorf("apply options: %+v", got)
	}
	if got := parse().ApplyOptions(); got.Concurrency != 8 || len(got.CustomStage)+len(got.OverrideManagers) != 0 {
		t.Errorf("default apply options: %+v", got)
	}
}

func TestElectionRenewsInTime(t *testing.T) {
	tooLong := Options{LeaderElection: true, LeaseDuration: time.Hour + 1, RenewDeadline: 30, RetryPeriod: 5}
	if err := tooLong.checkElection(); err == nil || !strings.Contains(err.Error(), "choose at most 1h0m0s") {
		t.Errorf("a lease of more than an hour: %v", err)
	}
	for flag, o := range map[string]Options{
		"":                                 {LeaseDuration: 35, RenewDeadline: 30, RetryPeriod: 5},
		"--leader-election-retry-period":   {LeaseDuration: 35, RenewDeadline: 30},
		"--leader-election-renew-deadline": {LeaseDuration: 35, RenewDeadline: 12, RetryPeriod: 10},
		"--leader-election-lease-duration": {LeaseDuration: 30, RenewDeadline: 30, RetryPeriod: 5},
	} {
		if err := o.checkElection(); err != nil {
			t.Errorf("without an election: %v", err)
		}
		o.LeaderElection = true
		err := o.checkElection()
		if (err == nil) != (flag == "") || err != nil && !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("want an error of %q, got %v", flag, err)
		}
	}
}

func TestEachShardHasALeader(t *testing.T) {
	names := map[string]bool{}
	for _, selector := range []string{"", "!sharding.fluxcd.io/key", "sharding.fluxcd.io/key=first"} {
		for _, controllers := range [][]string{AllControllers, {SourceController}} {
			o := Options{Controllers: controllers, WatchLabelSelector: selector}
			if again := o; o.LeaseName() != again.LeaseName() || len(o.LeaseName()) > 63 {
				t.Errorf("the lease is %s, then %s", o.LeaseName(), again.LeaseName())
			}
			names[o.LeaseName()] = true
		}
	}
	if len(names) != 6 || !names["sluice-leader-election"] {
		t.Errorf("the leases are %v", names)
	}
}

func TestFeatureGateOverridesFlag(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": true} {
		o := Options{StrictSubstitutions: true, FeatureGates: map[string]string{"StrictPostBuildSubstitutions": value}}
		if o.StrictSubstitutionsEnabled() != want {
			t.Errorf("feature gate %q: got %v, want %v", value, !want, want)
		}
	}
	o := Options{Controllers: AllControllers, Concurrent: 1, FeatureGates: map[string]string{strictGate: "maybe"}}
	if err := o.Validate(); err == nil ||
		!strings.Contains(err.Error(), strictGate+` is "maybe", choose true or false`) {
		t.Errorf("got error %v", err)
	}
}

func TestUnknownFeatureGatesAreWarnings(t *testing.T) {
	o := Options{FeatureGates: map[string]string{"DirectSourceFetch": "true", "OOMWatch": "true", "Misspelt": "true"}}
	if err := o.checkFeatureGates(); err != nil {
		t.Errorf("got error %v", err)
	}
	if w := o.Warnings(); len(w) != 1 || !strings.Contains(w[0], "'Misspelt' is ignored") {
		t.Errorf("got warnings %q", w)
	}
}
