package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
	"github.com/sluice-gitops/sluice/internal/text/redact"
)

const (
	natsServers = 10               // maximum in an address
	natsTimeout = 15 * time.Second // to connect and to log in, each
	natsAnswers = 1 << 20          // bytes that a server may send
)

// natsSubject publishes the event: https://docs.nats.io/nats-concepts/subjects.
type natsSubject struct {
	servers []string
	hosts   string // for messages
	subject string
	login   []nats.Option
	dial    Dial
}

func newNATS(o Options) (Provider, error) {
	p := &natsSubject{subject: o.Channel, dial: o.Dial}
	if p.dial == nil {
		return nil, invalid("NATS connections are not allowed here")
	}
	if !isSubject(p.subject) {
		return nil, invalid("the channel of the Provider is not a NATS subject").
			WithHint("Set spec.channel to a subject without spaces and wildcards, such as gitops.events")
	}
	var err error
	if p.servers, p.hosts, err = parseServers(o.Address); err != nil {
		return nil, err
	}
	if p.login, err = natsLogin(o); err != nil {
		return nil, err
	}
	if len(o.TLS.CA) > 0 || len(o.TLS.Cert) > 0 {
		config, err := o.TLS.Config()
		if err != nil {
			return nil, err
		}
		p.login = append(p.login, nats.Secure(config)) // rejects servers without TLS
	}
	return p, nil
}

// isSubject reports whether a text is a subject without wildcards.
func isSubject(subject string) bool {
	if len(subject) > 1024 || strings.ContainsFunc(subject,
		func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(subject, "."),
		func(token string) bool { return token == "" || token == "*" || token == ">" })
}

// parseServers parses a comma-separated list of server URLs. The error does not contain them.
func parseServers(address string) (servers []string, hosts string, err error) {
	malformed := invalid("the address of the Provider is not a NATS URL").
		WithHint("Use nats://HOST:4222 or tls://HOST:4222")
	for server := range strings.SplitSeq(address, ",") {
		if server = strings.TrimSpace(server); !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(server)
		if err != nil || u.Scheme != "nats" && u.Scheme != "tls" || u.Hostname() == "" ||
			strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || len(servers) == natsServers {
			return nil, "", malformed
		}
		if u.Port() == "" {
			u.Host = net.JoinHostPort(u.Hostname(), "4222")
			if _, err := url.Parse(u.String()); err != nil { // an IPv6 address without brackets
				return nil, "", malformed
			}
		}
		if servers = append(servers, u.String()); hosts != "" {
			hosts += ", "
		}
		hosts += u.Host
	}
	return servers, hosts, nil
}

// natsLogin returns the login from the first of these keys in the Secret: creds, nkey, username and password. A
// login in the address applies to that server only.
func natsLogin(o Options) ([]nats.Option, error) {
	if creds := o.Secret["creds"]; len(creds) > 0 {
		token, key, err := parseCreds(creds)
		if err != nil {
			return nil, err
		}
		return []nats.Option{nats.UserJWT(func() (string, error) { return token, nil }, key.Sign)}, nil
	}
	if seed := o.Secret["nkey"]; len(seed) > 0 {
		key, err := nkeys.ParseDecoratedUserNKey(bytes.TrimSpace(seed))
		if err != nil {
			return nil, invalid("the key nkey of the Secret does not contain a user seed").
				WithHint("A seed starts with SU; create one with nk -gen user")
		}
		public, err := key.PublicKey()
		if err != nil {
			return nil, invalid("the key nkey of the Secret does not contain a user seed")
		}
		return []nats.Option{nats.Nkey(public, key.Sign)}, nil
	}
	user, password := cmp.Or(o.secret("username"), o.Username), o.secret("password")
	switch {
	case password != "":
		return []nats.Option{nats.UserInfo(user, password)}, nil
	case o.secret("username") != "":
		return nil, fault.New(TokenNotFound, "the Secret has a username but no password").
			WithHint("Set the key password of the Secret in spec.secretRef").Final()
	}
	return nil, nil
}

// parseCreds parses a credentials file with the token and the key of a user. The error does not contain it.
func parseCreds(b []byte) (token string, key nkeys.KeyPair, err error) {
	malformed := invalid("the key creds of the Secret does not contain NATS credentials").
		WithHint("Store the complete output of nsc generate creds in it")
	if len(b) > maxCredential {
		return "", nil, malformed
	}
	if token, err = nkeys.ParseDecoratedJWT(b); err != nil || strings.Count(token, ".") != 2 ||
		strings.ContainsFunc(token, unicode.IsSpace) {
		return "", nil, malformed
	}
	if key, err = nkeys.ParseDecoratedUserNKey(b); err != nil {
		return "", nil, malformed
	}
	return token, key, nil
}

// Send implements [Provider]. The message has an ID, so that JetStream streams ignore retries.
func (p *natsSubject) Send(ctx context.Context, e event.Event) error {
	body, err := eventJSON(e)
	if err != nil {
		return err
	}
	wait := natsTimeout
	if end, ok := ctx.Deadline(); ok {
		wait = max(min(wait, time.Until(end)), time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*natsTimeout)
	defer cancel()
	dialer := &natsDialer{ctx: ctx, dial: p.dial}
	options := append([]nats.Option{
		nats.SetCustomDialer(dialer), nats.SkipHostLookup(), nats.IgnoreDiscoveredServers(), nats.NoReconnect(),
		nats.Timeout(wait), nats.Name("sluice"),
		// errors are read below; without a handler, the library prints them
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, p.login...)
	c, err := nats.Connect(strings.Join(p.servers, ","), options...)
	if err != nil {
		return p.explain(err, dialer.err)
	}
	defer c.Close()
	message := nats.NewMsg(p.subject)
	message.Data = body
	if c.HeadersSupported() {
		sum := fingerprint(e)
		message.Header.Set(nats.MsgIdHdr, hex.EncodeToString(sum[:]))
		message.Header.Set("Content-Type", "application/json")
	} else {
		message.Header = nil
	}
	err = c.PublishMsg(message)
	if err == nil {
		err = c.FlushWithContext(ctx)
	}
	if err == nil {
		err = c.LastError() // such as a permission violation
	}
	if err != nil {
		return p.explain(err, nil)
	}
	return nil
}

// explain returns the fault of a NATS error; dialErr is the error of the last connection attempt.
func (p *natsSubject) explain(err, dialErr error) error {
	f := fault.New(SendFailed, "cannot send the event to %s", p.hosts)
	var opErr *net.OpError
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		f.Reason = meta.AuthenticationFailedReason
		return f.Because(redact.Reword(err, "the user is not allowed to publish on the subject")).
			WithHint("Allow it in the NATS configuration or correct spec.channel").Final()
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired),
		errors.Is(err, nats.ErrNkeysNotSupported),
		strings.Contains(strings.ToLower(err.Error()), "authorization violation"):
		f.Reason = meta.AuthenticationFailedReason
		return f.Because(redact.Reword(err, "the login was rejected")).
			WithHint("Check creds, nkey, or username and password in the Secret of the Provider").Final()
	case errors.Is(err, nats.ErrMaxPayload):
		return f.Because(redact.Reword(err, "the event exceeds the maximum payload of the server")).Final()
	case errors.Is(err, nats.ErrSecureConnWanted):
		return f.Because(redact.Reword(err, "the server does not support TLS")).
			WithHint("Check the address or remove spec.certSecretRef").Final()
	case errors.As(dialErr, &opErr): // the library does not return it
		return f.Because(redact.Reword(dialErr, opErr.Err.Error())).
			WithHint("Check the address of the Provider and that the server is running")
	case dialErr != nil:
		return f.Because(dialErr).WithHint("Check the address of the Provider and that the server is running")
	}
	return f.Because(err)
}

// natsDialer connects with the dialer of the Provider and records the last error.
type natsDialer struct {
	ctx  context.Context
	dial Dial
	err  error
}

// Dial implements [nats.CustomDialer].
func (d *natsDialer) Dial(network, address string) (net.Conn, error) {
	c, err := d.dial(d.ctx, network, address)
	if d.err = err; err != nil {
		return nil, err
	}
	return &natsConn{Conn: c, left: natsAnswers}, nil
}

// natsConn is a connection that fails after a number of bytes from the server. The library reads a line of any length
// into memory, and a server sends a few short lines.
type natsConn struct {
	net.Conn
	left int // bytes
}

// Read implements [net.Conn].
func (c *natsConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.left -= n; c.left < 0 {
		return 0, errNATSAnswers
	}
	return n, err
}

var errNATSAnswers = fmt.Errorf("the server sends more than %d bytes", natsAnswers)
