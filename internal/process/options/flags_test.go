package options

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-gitops/sluice/internal/artifact"
)

var update = flag.Bool("update", false, "write the tables of docs/flags.md")

const flagsDoc = "../../../docs/flags.md"

// Flags and feature gates that other implementations of these APIs document for the same controllers.
var (
	documentedFlags = strings.Fields(`
		concurrent events-addr rate-limit-interval export-http-path-metrics health-addr metrics-addr
		kube-api-qps kube-api-burst log-encoding log-level watch-all-namespaces watch-label-selector
		watch-configs-label-selector no-cross-namespace-refs default-service-account
		default-decryption-service-account default-kubeconfig-service-account requeue-dependency
		interval-jitter-percentage min-retry-delay max-retry-delay enable-leader-election
		leader-election-lease-duration leader-election-renew-deadline leader-election-retry-period
		leader-election-release-on-cancel feature-gates token-cache-max-size helm-cache-max-size
		helm-cache-purge-interval helm-cache-ttl helm-chart-file-max-size helm-chart-max-size
		helm-index-max-size ssh-hostkey-algos ssh-kex-algos concurrent-ssa custom-apply-stage-kinds
		override-manager http-retry no-remote-bases sops-age-secret sops-vault-configmap
		insecure-kubeconfig-exec insecure-kubeconfig-tls storage-path storage-addr storage-adv-addr
		artifact-retention-ttl graceful-shutdown-timeout http-timeout
		oom-watch-current-memory-path oom-watch-interval oom-watch-max-memory-path oom-watch-memory-threshold
		snapshot-digest-algo artifact-retention-records artifact-digest-algo token-cache-max-duration`)
	documentedGates = strings.Fields(`
		CancelHealthCheckOnNewRevision DisableFailFastBehavior DisableStatusPollerCache GroupChangeLog
		MigrateAPIVersion StrictPostBuildSubstitutions CacheSecretsAndConfigMaps AdditiveCELDependencyCheck
		ExternalArtifact ObjectLevelWorkloadIdentity OptimizedGitClones DisableConfigWatchers
		AdoptLegacyReleases AllowDNSLookups CorrectDrift DefaultToRetryOnFailure DetectDrift
		DisableChartDigestTracking OOMWatch UseHelm3Defaults
		GitAllBranchReferences GitForcePushBranch GitShallowClone GitSparseCheckout`)
)

func flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	new(Options).BindFlags(f)
	return f
}

func TestDocumentedFlagsAreAccepted(t *testing.T) {
	f := flags()
	for _, name := range documentedFlags {
		if f.Lookup(name) == nil {
			t.Errorf("flag --%s is not accepted", name)
		}
	}
	for _, name := range documentedGates {
		if featureGates[name] == "" {
			t.Errorf("feature gate %s is not accepted", name)
		}
	}
}

func TestIdentityServiceAccount(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{args: []string{"--default-service-account=tenant"}, want: ""},
		{args: []string{"--default-service-account=tenant", "--controllers=source-controller"}, want: "tenant"},
		{args: []string{"--default-service-account=tenant", "--default-identity-service-account=cloud"}, want: "cloud"},
	} {
		var o Options
		f := pflag.NewFlagSet("controller", pflag.ContinueOnError)
		o.BindFlags(f)
		if err := f.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		if got := o.IdentityServiceAccount(); got != c.want {
			t.Errorf("%q: got %q, want %q", c.args, got, c.want)
		}
	}
}

func TestExternalURLOfTheUI(t *testing.T) {
	u := UIOptions{ExternalURL: "https://Sluice.example.com/"}
	if external, err := u.External(); err != nil || external.String() != "https://sluice.example.com" {
		t.Errorf("got %v, %v", external, err)
	}
	for _, text := range []string{"", "sluice.example.com", "http://sluice.example.com", "https://a/b", "https://u@a",
		"https://a?b", "ftp://a", "https://a#b", "%"} {
		o := UIOptions{Addr: ":1", ExternalURL: text,
			LoginOptions: LoginOptions{TokenLogin: true, Session: time.Hour}}
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), "--ui-external-url") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The tables of docs/flags.md are generated: run this test with -update after a change.
func TestDocumentationListsEveryFlag(t *testing.T) {
	var used, unused, onOff strings.Builder
	fmt.Fprint(&used, "| flag | default | meaning |\n|---|---|---|\n")
	flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			fmt.Fprintf(&used, "| `--%s` | %s | %s |\n", f.Name, code(f.DefValue), cell(f.Usage))
		}
	})
	fmt.Fprint(&unused, "| flag | why it has no effect |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(ignoredFlags)) {
		fmt.Fprintf(&unused, "| `--%s` | %s |\n", name, cell(ignoredFlags[name]))
	}
	fmt.Fprint(&onOff, "| gate | meaning |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(featureGates)) {
		fmt.Fprintf(&onOff, "| `%s` | %s |\n", name, cell(featureGates[name]))
	}
	raw, err := os.ReadFile(flagsDoc)
	if err != nil {
		t.Fatal(err)
	}
	want := string(raw)
	for name, table := range map[string]string{"flags": used.String(), "accepted": unused.String(),
		"gates": onOff.String()} {
		start, end := "<!-- "+name+" -->\n", "<!-- end -->"
		before, rest, found := strings.Cut(want, start)
		_, after, closed := strings.Cut(rest, end)
		if !found || !closed {
			t.Fatalf("%s has no table %q", flagsDoc, name)
		}
		want = before + start + "\n" + table + "\n" + end + after
	}
	if *update {
		if err := os.WriteFile(flagsDoc, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(raw) {
		t.Errorf("%s is out of date: run go test ./internal/process/options -run %s -update", flagsDoc, t.Name())
	}
}

func code(value string) string {
	if value == "" || value == "[]" {
		return ""
	}
	return "`" + value + "`"
}

func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

func TestValidateRejectsInvalidFlags(t *testing.T) {
	for message, change := range map[string]func(*Options){
		"--ssh-hostkey-algos: unknown value": func(o *Options) {
			o.SSHHostKeys = []string{"ssh-none"}
		},
		"--ssh-kex-algos: unknown value": func(o *Options) {
			o.SSHKeyExchanges = []string{"curve25519-sha256", "none"}
		},
		"--concurrent-ssa is": func(o *Options) { o.ConcurrentSSA = -1 },
		"--custom-apply-stage-kinds": func(o *Options) {
			o.CustomStage = []string{"deployments"}
		},
		"--ui-addr is not set, but": func(o *Options) { o.UI.Issuer = "https://i" },
		"--ui-addr needs --ui-external-url": func(o *Options) {
			o.UI = UIOptions{Addr: ":1",
				LoginOptions: LoginOptions{TokenLogin: true}}
		},
		"--ui-addr is \"1\"": func(o *Options) {
			o.UI = UIOptions{Addr: "1", ExternalURL: "https://u"}
		},
		"--review-config needs --review-addr": func(o *Options) { o.UI.ReviewConfig = "x" },
		"--review-addr needs --review-config": func(o *Options) { o.UI.ReviewAddr = ":1" },
		"--review-addr is \"x\"":              func(o *Options) { o.UI.ReviewAddr = "x" },
		"--mcp-addr is not set, but":          func(o *Options) { o.UI.MCPAllowWrite = true },
		"--mcp-addr needs --mcp-external-url": func(o *Options) {
			o.UI = UIOptions{MCPAddr: ":1",
				LoginOptions: LoginOptions{TokenLogin: true}}
		},
		"--mcp-external-url: ": func(o *Options) {
			o.UI = UIOptions{MCPAddr: ":1", MCPExternalURL: "http://a",
				LoginOptions: LoginOptions{TokenLogin: true}}
		},
		"agents have no way to log in": func(o *Options) {
			o.UI = UIOptions{MCPAddr: ":1", MCPExternalURL: "https://u"}
		},
		"people and agents have no way to log in": func(o *Options) {
			o.UI = UIOptions{Addr: ":1", ExternalURL: "https://u"}
		},
		"--ui-tls-cert-file and --ui-tls-key-file": func(o *Options) {
			o.UI = UIOptions{Addr: ":1", ExternalURL: "https://u", TLSCertFile: "c"}
		},
		"--ui-session-duration is 25h": func(o *Options) {
			o.UI = UIOptions{Addr: ":1", ExternalURL: "https://u",
				LoginOptions: LoginOptions{Session: 25 * time.Hour}}
		},
		"--ui-oidc-issuer and --ui-oidc-client-id": func(o *Options) {
			o.UI = UIOptions{Addr: ":1", ExternalURL: "https://u",
				LoginOptions: LoginOptions{Issuer: "https://i"}}
		},
		"--ui-oidc-client-secret-file and": func(o *Options) {
			o.UI = UIOptions{Addr: ":1", ExternalURL: "https://u",
				LoginOptions: LoginOptions{TokenLogin: true, ClientSecretFile: "s"}}
		},
		"must not start with 'system:'": func(o *Options) {
			o.UI = UIOptions{Addr: ":1",
				LoginOptions: LoginOptions{Issuer: "https://i", ClientID: "c", UsernameClaim: "sub",
					GroupsClaim: "groups", GroupsPrefix: "system:"}}
		},
		"--ui-oidc-issuer is \"http://i\"": func(o *Options) {
			o.UI = UIOptions{Addr: ":1",
				LoginOptions: LoginOptions{Issuer: "http://i", ClientID: "c", UsernameClaim: "sub",
					GroupsClaim: "groups"}}
		},
		"--concurrent is":          func(o *Options) { o.Concurrent = 0 },
		"--rate-limit-interval is": func(o *Options) { o.RateLimit = -1 },
		"--events-addr and --storage-addr are both :9090": func(o *Options) {
			o.EventsAddr, o.StorageAddr = ":9090", ":9090"
		},
		"--events-addr is http://notification-controller/, but": func(o *Options) {
			o.EventsAddr = "http://notification-controller/"
		},
	} {
		o := Options{Controllers: AllControllers, Concurrent: 1}
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		o.UI.Session = time.Hour
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("got error %v, want %q", err, message)
		}
	}
}

func TestFlagsOfTheReport(t *testing.T) {
	valid := ReportOptions{To: "https://hub.example.com/", As: "edge-7", Labels: map[string]string{"region": "eu"}}
	if err := valid.check(); err != nil || valid.GetAudience() != "https://hub.example.com" {
		t.Errorf("got %v, audience %s", err, valid.GetAudience())
	}
	for says, o := range map[string]ReportOptions{
		"need --report-to":         {As: "edge-7"},
		"--report-to needs":        {To: "https://hub.example.com"},
		"must start with https://": {To: "http://hub.example.com", As: "edge-7"},
		"is a scheme and a host":   {To: "https://hub.example.com/x", As: "edge-7"},
		"--report-as: \"Edge\"":    {To: "https://hub.example.com", As: "Edge"},
		"--report-labels: \"<b>=x\"": {To: "https://hub.example.com", As: "edge-7",
			Labels: map[string]string{"<b>": "x"}},
		"--report-ca-file:": {To: "https://hub.example.com", As: "edge-7", CAFile: "/missing"},
	} {
		if err := o.check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
	for says, o := range map[string]HubOptions{
		"--addr is":                 {Addr: "x"},
		"--external-url is not set": {Addr: ":1"},
		"must start with https://":  {Addr: ":1", ExternalURL: "http://hub.example.com"},
		"--tls-cert-file and":       {Addr: ":1", ExternalURL: "https://hub.example.com", TLSKeyFile: "x"},
		"--storage-backend-s3-endpoint and": {Addr: ":1", ExternalURL: "https://hub.example.com",
			Backend: artifact.S3Options{Bucket: "b"}},
		"--ui-session-duration is": {Addr: ":1", ExternalURL: "https://hub.example.com"},
		"no way to log in": {Addr: ":1", ExternalURL: "https://hub.example.com",
			LoginOptions: LoginOptions{Session: time.Hour}},
		"set one of them": {Addr: ":1", ExternalURL: "https://hub.example.com", StoragePath: "/data",
			Backend: artifact.S3Options{Bucket: "b", Endpoint: "https://s3.example.com"}},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q, got %v", says, err)
		}
	}
}
