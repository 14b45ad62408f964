package manager

import (
	"net/http"
	"net/http/httptest"
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

func TestFeatureGateDecidesOverTheFlag(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "false": false, "": true} {
		o := Options{StrictSubstitutions: true, FeatureGates: map[string]string{"StrictPostBuildSubstitutions": value}}
		if o.strictSubstitutions() != want {
			t.Errorf("%q: %v", value, !want)
		}
	}
	for gate, says := range map[string]string{"StrictPostBuildSubstitutions": "true or false", "Some": "not known"} {
		o := Options{Controllers: AllControllers, Concurrent: 1, FeatureGates: map[string]string{gate: "maybe"}}
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), gate) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", gate, err)
		}
	}
}

func TestRemoteBasesAreFetchedWithinBounds(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/a.yaml":
			_, _ = w.Write([]byte("a: b")) // the client may be gone
		case "/large.yaml":
			_, _ = w.Write(make([]byte, maxBase+1)) // the client may be gone
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	transport := server.Client().Transport
	if (&Options{NoRemoteBases: true}).fetchBase(transport) != nil {
		t.Error("they can be fetched where they are refused")
	}
	fetch := (&Options{}).fetchBase(transport)
	if b, err := fetch(t.Context(), server.URL+"/a.yaml"); err != nil || string(b) != "a: b" {
		t.Errorf("%q, %v", b, err)
	}
	for path, says := range map[string]string{"/large.yaml": "larger than 10 MiB", "/none.yaml?token=hunter2": "404"} {
		if _, err := fetch(t.Context(), server.URL+path); err == nil || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
