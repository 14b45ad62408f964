package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

const (
	natsServers = 10               // that an address may name
	natsStep    = 15 * time.Second // to connect, and to log in
)

// natsSubject publishes the event: https://docs.nats.io/nats-concepts/subjects.
type natsSubject struct {
	servers []string
	hosts   string // for people
	subject string
	login   []nats.Option
	dial    Dial
}

func newNATS(o Options) (Provider, error) {
	p := &natsSubject{subject: o.Channel, dial: o.Dial}
	if p.dial == nil {
		return nil, invalid("connections of the type nats are not allowed here")
	}
	if !publishable(p.subject) {
		return nil, invalid("the channel of the Provider is no subject of NATS to publish on").
			WithHint("Set spec.channel to one without spaces and wildcards, such as gitops.events")
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
		p.login = append(p.login, nats.Secure(config)) // a server without TLS is refused then
	}
	return p, nil
}

// publishable tells whether a subject is one and not a pattern.
func publishable(subject string) bool {
	if len(subject) > 1024 || strings.ContainsFunc(subject,
		func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return false
	}
	return !slices.ContainsFunc(strings.Split(subject, "."),
		func(token string) bool { return token == "" || token == "*" || token == ">" })
}

// parseServers reads the URLs of servers, with commas between them. The error tells nothing of them.
func parseServers(address string) (servers []string, hosts string, err error) {
	malformed := invalid("the address of the Provider is no URL of a NATS server").
		WithHint("Write it as nats://HOST:4222, or tls://HOST:4222")
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
			if _, err := url.Parse(u.String()); err != nil { // ::, which is no address without its brackets
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

// natsLogin takes the first of what the Secret has: creds, nkey, username and password. A login in the
// address is the server's own.
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
			return nil, invalid("the key nkey of the Secret holds no seed of a user").
				WithHint("It begins with SU; create one by nk -gen user")
		}
		public, err := key.PublicKey()
		if err != nil {
			return nil, invalid("the key nkey of the Secret holds no seed of a user")
		}
		return []nats.Option{nats.Nkey(public, key.Sign)}, nil
	}
	user, password := cmp.Or(o.secret("username"), o.Username), o.secret("password")
	switch {
	case password != "":
		return []nats.Option{nats.UserInfo(user, password)}, nil
	case o.secret("username") != "":
		return nil, fault.New(TokenNotFound, "the Secret has a username and no password").
			WithHint("Set the key password of the Secret that spec.secretRef names").Final()
	}
	return nil, nil
}

// parseCreds reads a credentials file: the token and the key of a user. The error tells nothing of it.
func parseCreds(b []byte) (token string, key nkeys.KeyPair, err error) {
	malformed := invalid("the key creds of the Secret holds no NATS credentials").
		WithHint("Put the whole file in it, as nsc generate creds writes it")
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

// Send implements [Provider]. Streams of JetStream that hear the subject take a retry for what it is, by the
// ID of the message.
func (p *natsSubject) Send(ctx context.Context, e event.Event) error {
	body, err := eventJSON(e)
	if err != nil {
		return err
	}
	wait := natsStep
	if end, ok := ctx.Deadline(); ok {
		wait = max(min(wait, time.Until(end)), time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*natsStep)
	defer cancel()
	dialer := &natsDialer{ctx: ctx, dial: p.dial}
	options := append([]nats.Option{
		nats.SetCustomDialer(dialer), nats.SkipHostLookup(), nats.IgnoreDiscoveredServers(), nats.NoReconnect(),
		nats.Timeout(wait), nats.Name("sluice"),
		// it is asked for below; the library would print it
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, p.login...)
	c, err := nats.Connect(strings.Join(p.servers, ","), options...)
	if err != nil {
		return p.explain(err, dialer.failed)
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
		err = c.LastError() // of a publication that the server does not permit
	}
	if err != nil {
		return p.explain(err, nil)
	}
	return nil
}

// explain makes a fault of an error of NATS; failed is why the last connection could not be made.
func (p *natsSubject) explain(err, failed error) error {
	f := fault.New(SendFailed, "the event did not get to %s", p.hosts)
	var of *net.OpError
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		f.Reason = meta.AuthenticationFailedReason
		return f.Because(told{"the user may not publish on the subject", err}).
			WithHint("Permit it in the configuration of NATS, or correct spec.channel").Final()
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired),
		errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired),
		errors.Is(err, nats.ErrNkeysNotSupported),
		strings.Contains(strings.ToLower(err.Error()), "authorization violation"):
		f.Reason = meta.AuthenticationFailedReason
		return f.Because(told{"the login is refused", err}).
			WithHint("Check creds, nkey, or username and password in the Secret of the Provider").Final()
	case errors.Is(err, nats.ErrMaxPayload):
		return f.Because(told{"the event is larger than the server takes", err}).Final()
	case errors.Is(err, nats.ErrSecureConnWanted):
		return f.Because(told{"the server does not speak TLS", err}).
			WithHint("Check the address, or leave out spec.certSecretRef").Final()
	case errors.As(failed, &of): // the library keeps it for itself
		return f.Because(told{of.Err.Error(), failed}).
			WithHint("Check the address of the Provider, and that the server runs")
	case failed != nil:
		return f.Because(failed).WithHint("Check the address of the Provider, and that the server runs")
	}
	return f.Because(err)
}

// natsDialer connects by the way out of the process, and keeps why it could not.
type natsDialer struct {
	ctx    context.Context
	dial   Dial
	failed error
}

// Dial implements [nats.CustomDialer].
func (d *natsDialer) Dial(network, address string) (net.Conn, error) {
	c, err := d.dial(d.ctx, network, address)
	d.failed = err
	return c, err
}
