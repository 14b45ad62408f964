package cluster

import (
	"context"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// etcdServer is the embedded etcd, reachable over a Unix socket in its directory only.
type etcdServer struct {
	endpoint string
	stop     func()
}

func startEtcd(ctx context.Context, dir string) (*etcdServer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// A socket's path may be 107 bytes at most, which a directory's need not be: a short directory holds it.
	short, err := os.MkdirTemp("", "pg-")
	if err != nil {
		return nil, err
	}
	client := url.URL{Scheme: "unix", Path: filepath.Join(short, "etcd.sock")}
	named := []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}} // a name only: a single member has no peers, and one client
	cfg := embed.NewConfig()
	cfg.Name = "playground"
	cfg.Dir = dir
	cfg.LogLevel = "fatal"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, named
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, named
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true // a playground need not outlive a power cut
	cfg.TickMs, cfg.ElectionMs = 20, 200
	cfg.InitialElectionTickAdvance = true
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "5m"
	cfg.QuotaBackendBytes = 2 << 30
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(short))
	}
	stop := func() {
		e.Server.HardStop()     // writes the data; there is no other member to hand over to
		go e.Close()            // waits seconds for clients, which are going as well
		_ = os.RemoveAll(short) // the sockets are all that it holds
	}
	select {
	case <-e.Server.ReadyNotify():
		return &etcdServer{endpoint: client.String(), stop: stop}, nil
	case err = <-e.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(time.Minute):
		err = errors.New("not ready within a minute")
	}
	stop()
	return nil, err
}

// loopback listens on a port of the loopback address; 0 picks a free one.
func loopback(port int) (net.Listener, error) {
	return net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
}

func listenerPort(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
