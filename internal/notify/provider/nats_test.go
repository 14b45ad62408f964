package provider

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/auth"
	"github.com/sluice-gitops/sluice/internal/egress"
	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

func dialHere(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// serveNATS runs a server of NATS in this process, and returns where.
func serveNATS(t *testing.T, o *server.Options) (address string) {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog, o.StoreDir = "127.0.0.1", server.RANDOM_PORT, true, true, t.TempDir()
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return s.Addr().String()
}

func natsOptions(address string, change ...func(*Options)) Options {
	o := Options{Type: "nats", Address: "nats://" + address, Channel: "gitops.events", Secret: map[string][]byte{},
		Dial: dialHere, Clock: testingclock.NewFakePassiveClock(noon)}
	for _, c := range change {
		c(&o)
	}
	return o
}

// secrets sets keys of the Secret.
func secrets(pairs ...string) func(*Options) {
	return func(o *Options) {
		for i := 0; i < len(pairs); i += 2 {
			o.Secret[pairs[i]] = []byte(pairs[i+1])
		}
	}
}

// heard returns the next message on the subject that a listener has.
func heard(t *testing.T, address string, options ...nats.Option) func() *nats.Msg {
	t.Helper()
	c, err := nats.Connect("nats://"+address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	sub, err := c.SubscribeSync("gitops.>")
	if err == nil {
		err = c.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() *nats.Msg {
		t.Helper()
		m, err := sub.NextMsg(patience)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

func user(t *testing.T) (key nkeys.KeyPair, public, seed string) {
	t.Helper()
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err = key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	b, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return key, public, string(b)
}

func TestNATSByNameAndByKey(t *testing.T) {
	_, public, seed := user(t)
	_, _, another := user(t)
	address := serveNATS(t, &server.Options{
		Users: []*server.User{
			{Username: "listener", Password: "listener-pass"},
			{Username: "me", Password: tokenSecret,
				Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"gitops.events"}}}},
		},
		Nkeys: []*server.NkeyUser{{Nkey: public}},
	})
	next := heard(t, address, nats.UserInfo("listener", "listener-pass"))
	for name, change := range map[string]func(*Options){
		"by name":             secrets("username", "me", "password", tokenSecret+"\n"),
		"by name in the spec": func(o *Options) { o.Username = "me"; o.Secret["password"] = []byte(tokenSecret) },
		"in the address":      func(o *Options) { o.Address = "nats://me:" + tokenSecret + "@" + address },
		"by key":              secrets("nkey", seed+"\n"),
		"by key before name":  secrets("nkey", seed, "username", "me", "password", "wrong"),
		"without a scheme":    func(o *Options) { o.Address = address; secrets("nkey", seed)(o) },
		"at the second":       func(o *Options) { o.Address = "127.0.0.1:1, " + address; secrets("nkey", seed)(o) },
	} {
		if err := provider(t, natsOptions(address, change)).Send(within(t), failure()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := next()
		var got event.Event
		if err := json.Unmarshal(m.Data, &got); err != nil || m.Subject != "gitops.events" || got.Reason != failure().
			Reason || len(m.Header.Get(nats.MsgIdHdr)) != 64 {
			t.Errorf("%s: %s %v %s (%v)", name, m.Subject, m.Header, m.Data, err)
		}
	}
	for name, c := range map[string]struct {
		change func(*Options)
		say    string
	}{
		"another password": {secrets("username", "me", "password", "t0kenSecret"), "login is refused"},
		"another key":      {secrets("nkey", another), "login is refused"},
		"nobody":           {func(*Options) {}, "login is refused"},
		"another subject": {func(o *Options) {
			secrets("username", "me", "password", tokenSecret)(o)
			o.Channel = "gitops.other"
		}, "may not publish"},
	} {
		err := provider(t, natsOptions(address, c.change)).Send(within(t), failure())
		f := fault.As(err)
		if f == nil || !f.Terminal || f.Reason != meta.AuthenticationFailedReason ||
			!strings.Contains(f.Error(), c.say) || f.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), another) {
			t.Errorf("%s: the error tells the seed", name)
		}
		mustHoldNoSecret(t, err)
	}
}

// TestNATSByCredentials logs in by a file as nsc writes it, to a server that trusts an operator.
func TestNATSByCredentials(t *testing.T) {
	operator, account := pair(t, nkeys.CreateOperator), pair(t, nkeys.CreateAccount)
	key, public, _ := user(t)
	accountClaims := jwt.NewAccountClaims(account.public)
	accountToken, err := accountClaims.Encode(operator.key)
	if err != nil {
		t.Fatal(err)
	}
	userToken, err := jwt.NewUserClaims(public).Encode(account.key)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := key.Seed()
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(userToken, seed)
	if err != nil {
		t.Fatal(err)
	}
	resolver := &server.MemAccResolver{}
	if err := resolver.Store(account.public, accountToken); err != nil {
		t.Fatal(err)
	}
	address := serveNATS(t, &server.Options{TrustedKeys: []string{operator.public}, AccountResolver: resolver})
	next := heard(t, address, nats.UserJWTAndSeed(userToken, string(seed)))
	if err := provider(t, natsOptions(address, secrets("creds", string(creds), "nkey", "SUnothing", "username", "me"))).
		Send(within(t), success()); err != nil {
		t.Fatal(err)
	}
	if m := next(); !strings.Contains(string(m.Data), "NewArtifact") {
		t.Errorf("%s", m.Data)
	}
	stranger := pair(t, nkeys.CreateAccount)
	if userToken, err = jwt.NewUserClaims(public).Encode(stranger.key); err != nil {
		t.Fatal(err)
	}
	if creds, err = jwt.FormatUserConfig(userToken, seed); err != nil {
		t.Fatal(err)
	}
	err = provider(t, natsOptions(address, secrets("creds", string(creds)))).Send(within(t), success())
	if f := fault.As(err); f == nil || !f.Terminal || f.Reason != meta.AuthenticationFailedReason ||
		strings.Contains(err.Error(), userToken) {
		t.Errorf("of another account: %v", err)
	}
}

type keys struct {
	key    nkeys.KeyPair
	public string
}

func pair(t *testing.T, create func() (nkeys.KeyPair, error)) keys {
	t.Helper()
	key, err := create()
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return keys{key, public}
}

// TestNATSOverTLS trusts the authority of spec.certSecretRef and no other, shows a client certificate, and
// speaks no plain text then.
func TestNATSOverTLS(t *testing.T) {
	ca, certificate, key := authority(t)
	served, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := auth.TLS{CA: ca}.Config()
	if err != nil {
		t.Fatal(err)
	}
	address := serveNATS(t, &server.Options{TLS: true, TLSTimeout: 60, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{served}, MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted.RootCAs,
	}})
	mutual := auth.TLS{CA: ca, Cert: certificate, Key: key}
	for _, scheme := range []string{"nats://", "tls://"} {
		if err := provider(t, natsOptions(address, func(o *Options) { o.Address = scheme + address; o.TLS = mutual })).
			Send(within(t), success()); err != nil {
			t.Errorf("%s: %v", scheme, err)
		}
	}
	for name, settings := range map[string]auth.TLS{"no authority": {}, "no client certificate": {CA: ca}} {
		f := fault.As(provider(t, natsOptions(address, func(o *Options) { o.TLS = settings })).
			Send(within(t), success()))
		if f == nil || f.Terminal {
			t.Errorf("%s: %v", name, f)
		}
	}
	plain := serveNATS(t, &server.Options{})
	f := fault.As(provider(t, natsOptions(plain, func(o *Options) { o.TLS = mutual })).Send(within(t), success()))
	if f == nil || !f.Terminal || !strings.Contains(f.Error(), "does not speak TLS") {
		t.Errorf("a server without TLS: %v", f)
	}
}

// TestStreamsTakeARetryOnce: JetStream knows a message by its ID.
func TestStreamsTakeARetryOnce(t *testing.T) {
	address := serveNATS(t, &server.Options{JetStream: true})
	c, err := nats.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	streams, err := c.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := streams.AddStream(&nats.StreamConfig{Name: "gitops", Subjects: []string{"gitops.>"},
		Duplicates: time.Hour}); err != nil {
		t.Fatal(err)
	}
	p := provider(t, natsOptions(address))
	for _, e := range []event.Event{failure(), failure(), success()} {
		if err := p.Send(within(t), e); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(patience)
	for messages := uint64(0); messages != 2; {
		info, err := streams.StreamInfo("gitops")
		if err != nil {
			t.Fatal(err)
		}
		if messages = info.State.Msgs; messages > 2 || info.State.LastSeq > 2 {
			t.Fatalf("the stream has %d messages", messages)
		}
		select {
		case <-deadline:
			t.Fatalf("the stream has %d messages", messages)
		default:
		}
	}
}

// TestNATSThatIsNotThere is tried again, and says why.
func TestNATSThatIsNotThere(t *testing.T) {
	refusing := &egress.Policy{RefuseLoopback: true}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, c := range map[string]struct {
		change func(*Options)
		say    string
	}{
		"refused":      {func(o *Options) { o.Address = "nats://me:t0kenSecret@127.0.0.1:1" }, "refused"},
		"no such host": {func(o *Options) { o.Address = "host.invalid" }, "host.invalid"},
		"not allowed":  {func(o *Options) { o.Dial = refusing.Dialer().DialContext }, "loopback"},
		"no way to it": {func(o *Options) {
			o.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no way") }
		}, "no way"},
		"it is silent": {func(o *Options) { o.Address = silent.Addr().String() }, "timeout"},
		"secret as key": {func(o *Options) {
			o.Address = "127.0.0.1:1"
			secrets("username", "me", "password",
				tokenSecret)(o)
		}, "refused"},
	} {
		ctx := within(t)
		if name == "it is silent" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
		}
		err := provider(t, natsOptions("127.0.0.1:4222", c.change)).Send(ctx, failure())
		f := fault.As(err)
		if f == nil || f.Terminal || !strings.Contains(fmt.Sprint(err), c.say) {
			t.Errorf("%s: %v", name, err)
		}
		mustHoldNoSecret(t, err)
	}
}

// authority is one, and a certificate of it for both sides of connections in this machine, in PEM.
func authority(t *testing.T) (ca, certificate, key []byte) {
	t.Helper()
	issue := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour),
			time.Now().Add(time.Hour)
		if signer == nil {
			parent, signer = template, own
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &own.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return c, own
	}
	root, signer := issue(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	leaf, own := issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "nats"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, root, signer)
	der, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, b []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}) }
	return text("CERTIFICATE", root.Raw), text("CERTIFICATE", leaf.Raw), text("PRIVATE KEY", der)
}
