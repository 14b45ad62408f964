package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/network/egress"
	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/testenv/allocation"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// serveNATS starts a NATS server in this process and returns its address.
func serveNATS(t *testing.T, o *server.Options) (address string) {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog, o.StoreDir = "127.0.0.1", server.RANDOM_PORT, true, true, t.TempDir()
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(testTimeout) {
		t.Fatal("the server did not start")
	}
	return s.Addr().String()
}

func natsOptions(address string, change ...func(*Options)) Options {
	o := Options{Type: "nats", Address: "nats://" + address, Channel: "gitops.events", Secret: map[string][]byte{},
		Dial: dial, Clock: testingclock.NewFakePassiveClock(noon)}
	for _, c := range change {
		c(&o)
	}
	return o
}

// withSecret sets keys of the Secret.
func withSecret(pairs ...string) func(*Options) {
	return func(o *Options) {
		for i := 0; i < len(pairs); i += 2 {
			o.Secret[pairs[i]] = []byte(pairs[i+1])
		}
	}
}

// listen subscribes to all subjects.
func listen(t *testing.T, address string, options ...nats.Option) (*nats.Conn, *nats.Subscription) {
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
	return c, sub
}

// subscribe subscribes to all subjects and returns a function that waits for the next message.
func subscribe(t *testing.T, address string, options ...nats.Option) func() *nats.Msg {
	t.Helper()
	_, sub := listen(t, address, options...)
	return func() *nats.Msg {
		t.Helper()
		m, err := sub.NextMsg(testTimeout)
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

func TestNATSLogins(t *testing.T) {
	_, public, seed := user(t)
	_, _, otherSeed := user(t)
	address := serveNATS(t, &server.Options{
		Users: []*server.User{
			{Username: "listener", Password: "listener-pass"},
			{Username: "me", Password: tokenSecret,
				Permissions: &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{"gitops.events"}}}},
		},
		Nkeys: []*server.NkeyUser{{Nkey: public}},
	})
	next := subscribe(t, address, nats.UserInfo("listener", "listener-pass"))
	for name, change := range map[string]func(*Options){
		"username and password":  withSecret("username", "me", "password", tokenSecret+"\n"),
		"username in the spec":   func(o *Options) { o.Username = "me"; o.Secret["password"] = []byte(tokenSecret) },
		"login in the address":   func(o *Options) { o.Address = "nats://me:" + tokenSecret + "@" + address },
		"nkey":                   withSecret("nkey", seed+"\n"),
		"nkey and username":      withSecret("nkey", seed, "username", "me", "password", "wrong"),
		"address without scheme": func(o *Options) { o.Address = address; withSecret("nkey", seed)(o) },
		"second server": func(o *Options) {
			o.Address = "127.0.0.1:1, " + address
			withSecret("nkey", seed)(o)
		},
	} {
		if err := newProvider(t, natsOptions(address, change)).Send(testContext(t), failure()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := next()
		var got event.Event
		if err := json.Unmarshal(m.Data, &got); err != nil || m.Subject != "gitops.events" ||
			got.Reason != failure().Reason || len(m.Header.Get(nats.MsgIdHdr)) != 64 {
			t.Errorf("%s: got message %s %v %s (%v)", name, m.Subject, m.Header, m.Data, err)
		}
	}
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"wrong password": {change: withSecret("username", "me", "password", "t0kenSecret"),
			want: "login was rejected. Check creds, nkey, or username and password in the Secret of the Provider"},
		"wrong nkey": {change: withSecret("nkey", otherSeed), want: "login was rejected"},
		"no login":   {change: func(*Options) {}, want: "login was rejected"},
		"other subject": {want: "not allowed to publish on the subject. Allow it in the NATS configuration or " +
			"correct spec.channel", change: func(o *Options) {
			withSecret("username", "me", "password", tokenSecret)(o)
			o.Channel = "gitops.other"
		}},
	} {
		err := newProvider(t, natsOptions(address, c.change)).Send(testContext(t), failure())
		f := fault.As(err)
		if f == nil || !f.Terminal || f.Reason != meta.AuthenticationFailedReason ||
			!strings.Contains(f.Error(), c.want) || f.Hint == "" {
			t.Errorf("%s: got %v, want a terminal fault with text %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), otherSeed) {
			t.Errorf("%s: the error contains the seed", name)
		}
		expectNoSecrets(t, err)
	}
}

// TestNATSCredentialsFile logs in with a file in the format of nsc.
func TestNATSCredentialsFile(t *testing.T) {
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
	next := subscribe(t, address, nats.UserJWTAndSeed(userToken, string(seed)))
	if err := newProvider(t, natsOptions(address,
		withSecret("creds", string(creds), "nkey", "SUnothing", "username", "me"))).
		Send(testContext(t), success()); err != nil {
		t.Fatal(err)
	}
	if m := next(); !strings.Contains(string(m.Data), "NewArtifact") {
		t.Errorf("got message %s", m.Data)
	}
	otherAccount := pair(t, nkeys.CreateAccount)
	if userToken, err = jwt.NewUserClaims(public).Encode(otherAccount.key); err != nil {
		t.Fatal(err)
	}
	if creds, err = jwt.FormatUserConfig(userToken, seed); err != nil {
		t.Fatal(err)
	}
	err = newProvider(t, natsOptions(address, withSecret("creds", string(creds)))).Send(testContext(t), success())
	if f := fault.As(err); f == nil || !f.Terminal || f.Reason != meta.AuthenticationFailedReason ||
		strings.Contains(err.Error(), userToken) {
		t.Errorf("other account: got %v, want a terminal fault", err)
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

// TestJetStreamIgnoresRetries checks that attempts of one event have the same message ID.
func TestJetStreamIgnoresRetries(t *testing.T) {
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
	p := newProvider(t, natsOptions(address))
	for _, e := range []event.Event{failure(), failure(), success()} {
		if err := p.Send(testContext(t), e); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(testTimeout)
	for messages := uint64(0); messages != 2; {
		info, err := streams.StreamInfo("gitops")
		if err != nil {
			t.Fatal(err)
		}
		if messages = info.State.Msgs; messages > 2 || info.State.LastSeq > 2 {
			t.Fatalf("the stream has %d messages, want 2", messages)
		}
		select {
		case <-deadline:
			t.Fatalf("the stream has %d messages, want 2", messages)
		default:
		}
	}
}

// TestNATSErrors checks that connection errors are retried and name the cause.
func TestNATSErrors(t *testing.T) {
	refusing := &egress.Policy{RefuseLoopback: true}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"refused": {want: "refused. Check the address of the Provider and that the server is running",
			change: func(o *Options) { o.Address = "nats://me:t0kenSecret@127.0.0.1:1" }},
		"unknown host": {want: "host.invalid", change: func(o *Options) { o.Address = "host.invalid" }},
		"forbidden address": {want: "loopback address, which is the controller's own host. Check the address of " +
			"the Provider and that the server is running",
			change: func(o *Options) { o.Dial = refusing.Dialer().DialContext }},
		"dial error": {want: "no route", change: func(o *Options) {
			o.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") }
		}},
		"no response": {want: "timeout", change: func(o *Options) { o.Address = silent.Addr().String() }},
		"refused with login": {want: "refused", change: func(o *Options) {
			o.Address = "127.0.0.1:1"
			withSecret("username", "me", "password", tokenSecret)(o)
		}},
	} {
		ctx := testContext(t)
		if name == "no response" {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
		}
		err := newProvider(t, natsOptions("127.0.0.1:4222", c.change)).Send(ctx, failure())
		f := fault.As(err)
		if f == nil || f.Terminal || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: got %v, want a fault with text %q", name, err, c.want)
		}
		expectNoSecrets(t, err)
	}
}

// The library reads a line into memory until it ends, or for 15 s: 1.8 GB at 1 Gbit/s.
func TestALineOfANATSServerTakesLittleMemory(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	var servers sync.WaitGroup
	servers.Go(func() {
		chunk := bytes.Repeat([]byte("INFO "), 200_000)
		for {
			c, err := listener.Accept()
			if err != nil {
				return // closed
			}
			for err == nil {
				_, err = c.Write(chunk)
			}
			_ = c.Close()
		}
	})
	p := newProvider(t, natsOptions(listener.Addr().String(), func(*Options) {}))
	n := allocation.Bytes(func() {
		if err := p.Send(testContext(t), success()); err == nil ||
			!strings.Contains(err.Error(), "the server sends more than 1048576 bytes") {
			t.Errorf("got %v", err)
		}
	})
	if n > 32<<20 {
		t.Errorf("%d MiB were allocated", n>>20)
	}
	_ = listener.Close()
	servers.Wait()
}
