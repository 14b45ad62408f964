package wire

import (
	"context"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/network/hostguard"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
	"github.com/sluice-gitops/sluice/internal/testenv"
)

// TestShortTimeoutsDoNotPauseSSHHosts has sources whose timeout is shorter than any host needs: the host is not paused,
// for them or for others.
func TestShortTimeoutsDoNotPauseSSHHosts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // connections wait in its backlog, and get no answer
	private, public := testenv.SSHKey(t)
	identity, err := sshkey.Parse(private, "")
	if err != nil {
		t.Fatal(err)
	}
	policy := &egress.Policy{}
	known := []byte("[127.0.0.1]:" + l.Addr().String()[len("127.0.0.1:"):] + " " + string(public))
	for range 3 {
		for _, timeout := range []time.Duration{6 * time.Millisecond, 9 * time.Millisecond, 13 * time.Millisecond} {
			s, err := newSSH(Remote{Egress: policy,
				Credentials: auth.GitCredentials{Identity: identity, KnownHosts: known}}, uploadPack,
				&url.URL{Scheme: "ssh", Host: l.Addr().String(), Path: "/x.git"}, &counts{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			if _, err := s.open(ctx); err == nil {
				t.Error("a host that sends nothing answered")
			}
			cancel()
		}
	}
	r, err := policy.Guard().Admit(t.Context(), hostguard.Route{Host: l.Addr().String()}, "")
	if err != nil {
		t.Fatalf("the host is paused: %v", err)
	}
	r.Release()
}
