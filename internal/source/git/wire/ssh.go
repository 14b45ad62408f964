package wire

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/guard"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/network/hostguard"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

const (
	dialTimeout  = 30 * time.Second
	beginTimeout = 30 * time.Second
)

// overSSH is a conversation over SSH. It ignores the SSH configuration of the machine.
type overSSH struct {
	service string
	address string // host:port
	proxy   string // URL; the proxy of the environment when empty
	path    string
	config  *ssh.ClientConfig
	counts  *counts

	egress  *egress.Policy
	guard   *hostguard.Guard
	dialer  *net.Dialer
	request *hostguard.Request // nil before the host guard admitted the conversation
	conn    net.Conn
	session *ssh.Session
	in      io.WriteCloser
	out     *bufio.Reader
	stderr  *excerpt.Head
	began   atomic.Bool   // the host answered
	within  time.Duration // for the login and the first answer of the service
	release func() bool   // unbinds the conversation from its context
}

func newSSH(remote Remote, service string, u *url.URL, counts *counts) (*overSSH, error) {
	c := remote.Credentials
	if c.Identity == nil || len(c.KnownHosts) == 0 {
		return nil, fault.New(meta.AuthenticationFailedReason, "SSH requires a private key and the host keys").
			WithHint("Set spec.secretRef to a Secret with 'identity' and 'known_hosts'")
	}
	address := net.JoinHostPort(u.Hostname(), "22")
	if u.Port() != "" {
		address = net.JoinHostPort(u.Hostname(), u.Port())
	}
	known, err := knownHosts(c.KnownHosts, remote.Scratch)
	if err != nil {
		return nil, fault.New(meta.AuthenticationFailedReason, "the key 'known_hosts' of the Secret cannot be parsed").
			Because(err).WithHint("Set it to the output of %s", keyscan(u))
	}
	hostKeys := known.HostKeyAlgorithms(address) // the host must show a key of known_hosts
	var exchanges []string
	if only := remote.SSH; only != nil {
		exchanges = only.KeyExchanges
		if allowed := intersection(only.HostKeys, hostKeys); len(only.HostKeys) > 0 && len(hostKeys) > 0 {
			if hostKeys = allowed; len(allowed) == 0 {
				return nil, fault.New(meta.AuthenticationFailedReason,
					"known_hosts of the Secret has no key of host '%s' with an algorithm that "+
						"--ssh-hostkey-algos allows",
					u.Hostname()).
					WithHint("Add a host key with one of these algorithms: %s", strings.Join(only.HostKeys, ", "))
			}
		}
	}
	user := "git"
	if name := u.User.Username(); name != "" {
		user = name
	}
	path := u.Path
	if strings.HasPrefix(path, "/~") {
		path = path[1:]
	}
	out := remote.egress()
	dialer := out.Dialer()
	dialer.Timeout = dialTimeout
	return &overSSH{service: service, address: address, proxy: remote.ProxyURL, path: path, counts: counts,
		egress: out, guard: out.Guard(), dialer: dialer, within: beginTimeout,
		config: &ssh.ClientConfig{
			User:              user,
			Auth:              []ssh.AuthMethod{ssh.PublicKeys(c.Identity.Signer())},
			HostKeyCallback:   known.HostKeyCallback(),
			HostKeyAlgorithms: hostKeys,
			Config:            ssh.Config{KeyExchanges: exchanges},
		}}, nil
}

// intersection returns the elements of a that are in b.
func intersection(a, b []string) []string {
	var both []string
	for _, s := range a {
		if slices.Contains(b, s) {
			both = append(both, s)
		}
	}
	return both
}

// knownHosts parses known hosts. The library reads files only, so it writes a temporary file.
func knownHosts(data []byte, scratch string) (*knownhosts.HostKeyDB, error) {
	f, err := os.CreateTemp(scratch, "tmp-known-hosts-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it contains public keys only
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	db, err := knownhosts.NewDB(f.Name())
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(strings.ReplaceAll(err.Error(), f.Name(), "line"), "knownhosts: "))
	}
	return db, nil
}

func (s *overSSH) open(ctx context.Context) (io.Reader, error) {
	host, _, err := net.SplitHostPort(s.address)
	if err == nil {
		err = s.egress.CheckHost(host) // a proxy would connect to it
	}
	if err != nil {
		return nil, err
	}
	s.counts.requests.Add(1)
	if s.request, err = s.guard.Admit(ctx, hostguard.Route{Host: s.address, Proxy: s.proxyHost()}, ""); err != nil {
		return nil, err
	}
	wait := s.request.Await()
	if err := s.begin(ctx); err != nil {
		if isTimeout(err) {
			wait.TimedOut(ctx)
		} else {
			wait.Ended()
		}
		s.request.Release()
		return nil, err
	}
	wait.Answered()
	s.began.Store(true)
	return s.out, s.conn.SetDeadline(time.Time{}) // from here on, the context bounds the conversation
}

// proxyHost returns the host of the explicit proxy.
func (s *overSSH) proxyHost() string {
	u, err := url.Parse(s.proxy)
	if err != nil {
		return ""
	}
	return u.Host
}

// isTimeout reports whether err is a timeout.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// begin connects, logs in, starts the service, and waits for its first byte.
func (s *overSSH) begin(ctx context.Context) error {
	conn, err := dial(ctx, s.dialer, s.proxy, s.address)
	if err != nil {
		return err
	}
	s.conn = guardedConn{conn, s}
	s.bind(ctx)
	end := time.Now().Add(s.within)
	if err := conn.SetDeadline(end); err != nil {
		return err
	}
	err = s.start()
	if err != nil && !isTimeout(err) && !time.Now().Before(end) { // the session says only that the connection ended
		return &net.OpError{Op: "read", Net: "tcp", Addr: conn.RemoteAddr(), Err: os.ErrDeadlineExceeded}
	}
	return err
}

// start logs in, starts the service, and waits for its first byte.
func (s *overSSH) start() error {
	inner, channels, requests, err := ssh.NewClientConn(s.conn, s.address, s.config)
	if err != nil {
		return err
	}
	if s.session, err = ssh.NewClient(inner, channels, requests).NewSession(); err != nil {
		return err
	}
	s.stderr = &excerpt.Head{Most: maxOutput}
	s.session.Stderr = s.stderr
	if s.in, err = s.session.StdinPipe(); err != nil {
		return err
	}
	out, err := s.session.StdoutPipe()
	if err != nil {
		return err
	}
	s.out = bufio.NewReader(out)
	if err := s.session.Start(s.service + " " + quote(s.path)); err != nil {
		return err
	}
	if _, err := s.out.Peek(1); err != nil {
		return s.unanswered(inner)
	}
	return nil
}

// unanswered returns why the service ended without an answer: it refused the request, or the connection ended, of which
// the session says only that it ended.
func (s *overSSH) unanswered(inner ssh.Conn) error {
	var status *ssh.ExitError
	ended := s.session.Wait() // until stderr is complete
	if text := s.stderr.String(); text != "" || ended == nil || errors.As(ended, &status) {
		return &sshRefusal{text}
	}
	_ = s.conn.Close() // in case that only the session ended
	return inner.Wait()
}

// bind closes the connection when ctx ends, which ends reads and writes in progress.
func (s *overSSH) bind(ctx context.Context) {
	if s.release != nil {
		s.release()
	}
	s.release = guard.AfterDone(ctx, "ending a connection", func() { _ = s.conn.Close() })
}

func (s *overSSH) send(ctx context.Context, request []byte) (io.Reader, error) {
	s.bind(ctx)
	if _, err := s.in.Write(request); err != nil {
		return nil, err
	}
	return s.out, nil
}

func (s *overSSH) close() {
	if s.request != nil {
		defer s.request.Release()
	}
	if s.conn == nil {
		return
	}
	if s.in != nil {
		_, _ = s.in.Write([]byte("0000")) // a flush packet ends the conversation; the remote may have ended it already
	}
	_ = s.conn.Close()
	s.release()
}

// quote quotes an argument for the remote shell.
func quote(s string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(s) + "'"
}

// maxOutput is how many bytes of the remote's output are kept.
const maxOutput = 1 << 10

// guardedConn counts what is read. Once the conversation has begun, it reports the host's progress to the host guard.
type guardedConn struct {
	net.Conn
	ssh *overSSH
}

func (c guardedConn) Read(p []byte) (int, error) {
	if !c.ssh.began.Load() {
		n, err := c.Conn.Read(p)
		c.ssh.counts.bytes.Add(int64(n))
		return n, err
	}
	wait := c.ssh.request.Await()
	n, err := c.Conn.Read(p)
	wait.Ended()
	if n > 0 {
		c.ssh.request.Progress()
	}
	c.ssh.counts.bytes.Add(int64(n))
	return n, err
}
