package options

import "testing"

// TestLoopbackIsClosedInACluster checks the policies for the hosts that objects name.
func TestLoopbackIsClosedInACluster(t *testing.T) {
	for _, test := range []struct {
		name             string
		host             string // of the API server, in a pod
		allow            bool
		refuses, private bool
	}{
		{name: "in a cluster", host: "10.96.0.1", refuses: true, private: true},
		{name: "in a cluster, with the flag", host: "10.96.0.1", allow: true, private: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", test.host)
			o := &Options{AllowLoopback: test.allow}
			for name, p := range map[string]interface{ CheckHost(string) error }{"tenants": o.TenantEgress(),
				"sources": o.SourceEgress()} {
				for _, host := range []string{"127.0.0.1", "127.1", "0x7f000001", "::1", "::ffff:127.0.0.1",
					"0.0.0.0"} {
					if err := p.CheckHost(host); (err != nil) != test.refuses {
						t.Errorf("%s, host %s: %v", name, host, err)
					}
				}
				for _, host := range []string{"10.96.0.1", "registry.registry.svc", "github.com"} {
					if err := p.CheckHost(host); err != nil {
						t.Errorf("%s, host %s: %v", name, host, err)
					}
				}
				if err := p.CheckHost("169.254.169.254"); err == nil {
					t.Errorf("%s: link-local addresses are open", name)
				}
			}
			if o.TenantEgress().HidePrivate != test.private || o.SourceEgress().HidePrivate != test.private {
				t.Error("what private servers answer is shown")
			}
		})
	}
}
