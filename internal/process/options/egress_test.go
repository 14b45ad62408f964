package options

import (
	"strings"
	"testing"

	"github.com/sluice-gitops/sluice/internal/network/egress"
)

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

// TestClosedNetworks closes the networks of a cluster for the hosts that objects name.
func TestClosedNetworks(t *testing.T) {
	o := &Options{ClosedNetworks: []string{"10.96.0.0/12", "fd00:10::/64"}}
	for _, p := range []*egress.Policy{o.TenantEgress(), o.SourceEgress()} {
		for host, closed := range map[string]bool{"10.96.0.1": true, "10.111.255.255": true, "0x0a600001": true,
			"::ffff:10.96.0.1": true, "64:ff9b::10.96.0.1": true, "fd00:10::5": true, "10.112.0.0": false,
			"10.10.0.1": false, "registry.example.com": false} {
			err := p.CheckHost(host)
			if (err != nil) != closed || closed && !strings.Contains(err.Error(), "the address of host '"+host+
				"' is not allowed: it is in a network of --closed-networks. Use a host outside of these networks, or "+
				"ask who runs the controllers") {
				t.Errorf("%s: %v", host, err)
			}
		}
		if dialer := p.Dialer(); dialer.Control == nil || dialer.Control("tcp", "10.96.0.1:443", nil) == nil {
			t.Error("names that resolve to a closed network are open")
		}
	}
	invalid := &Options{Controllers: AllControllers, Concurrent: 1, ClosedNetworks: []string{"10.96.0.1"}}
	if err := invalid.Validate(); err == nil || !strings.Contains(err.Error(),
		`--closed-networks has "10.96.0.1": write a network as 10.96.0.0/12`) {
		t.Error(err)
	}
}
