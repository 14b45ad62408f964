package wire

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/auth"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/network/hostguard"
	"github.com/sluice-gitops/sluice/internal/network/sshkey"
	"github.com/sluice-gitops/sluice/internal/testenv/sshkeys"
)

// silence is what a server does not do, and all that follows.
type silence int

const (
	noLogin silence = iota
	noSession
	noService
	noAnswer
	hangUp // it closes the connection instead of an answer
)

// silentSSH serves until its silence begins.
func silentSSH(t *testing.T, l net.Listener, private []byte, until silence) {
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	config := &ssh.ServerConfig{NoClientAuth: true}
	config.AddHostKey(signer)
	guard.Go("serving SSH", func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if until == noLogin {
				t.Cleanup(func() { _ = conn.Close() })
				continue
			}
			inner, channels, requests, err := ssh.NewServerConn(conn, config)
			if err != nil {
				continue
			}
			guard.Go("discarding requests", func() { ssh.DiscardRequests(requests) })
			for c := range channels {
				if until == noSession {
					continue
				}
				_, of, err := c.Accept()
				if err != nil {
					break
				}
				for r := range of {
					if until == noService {
						continue
					}
					_ = r.Reply(true, nil)
					if until == hangUp {
						_ = inner.Close()
					}
				}
			}
		}
	})
}

// TestConnectionsThatEndAreNoRefusals has hosts that hang at any step, or log in and then hang up.
func TestConnectionsThatEndAreNoRefusals(t *testing.T) {
	const hangs = "does not answer. Check the network path to it, and the port of spec.url"
	for name, test := range map[string]struct {
		until silence
		says  string
	}{
		"no login":   {until: noLogin, says: hangs},
		"no session": {until: noSession, says: hangs},
		"no service": {until: noService, says: hangs},
		"no answer":  {until: noAnswer, says: hangs},
		"hangs up":   {until: hangUp, says: "was interrupted: unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			private, public := sshkeys.New(t)
			silentSSH(t, l, private, test.until)
			identity, err := sshkey.Parse(private, "")
			if err != nil {
				t.Fatal(err)
			}
			r := Remote{URL: "ssh://git@" + l.Addr().String() + "/x.git", Egress: &egress.Policy{},
				Credentials: auth.GitCredentials{Identity: identity, KnownHosts: fmt.Appendf(nil, "[127.0.0.1]:%d %s",
					l.Addr().(*net.TCPAddr).Port, public)}}
			u, err := ParseURL(r.URL)
			if err != nil {
				t.Fatal(err)
			}
			s, err := newSSH(r, uploadPack, u, &counts{})
			if err != nil {
				t.Fatal(err)
			}
			if test.until != hangUp { // a host that hangs up needs no deadline
				s.within = time.Second // a slow one has the same words, whichever step it ends at
			}
			_, err = s.open(t.Context())
			if explained := r.explain(t.Context(), err, listing); !strings.Contains(explained.Error(), test.says) {
				t.Errorf("%q is not in %q", test.says, explained)
			}
			if isTimeout(err) == (test.until == hangUp) {
				t.Errorf("it is a timeout: %t", isTimeout(err))
			}
		})
	}
}

// TestShortTimeoutsDoNotPauseSSHHosts has sources whose timeout is shorter than any host needs: the host is not paused,
// for them or for others.
func TestShortTimeoutsDoNotPauseSSHHosts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // connections wait in its backlog, and get no answer
	private, public := sshkeys.New(t)
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
