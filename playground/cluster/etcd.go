package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

const (
	tick      = 20            // ms
	patience  = 30_000 / tick // ticks: etcd gives up a request after twice that and 5 s
	elections = 200           // ms
)

// socketLength is the most bytes that the path of a Unix socket may have.
const socketLength = 100

// etcdServer is the embedded etcd, reachable over a Unix socket in a directory of its owner only.
type etcdServer struct {
	endpoint string
	kv       mvcc.KV
	stop     func()
}

func startEtcd(ctx context.Context, dir string) (*etcdServer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	socket, remove, err := socketPath(dir)
	if err != nil {
		return nil, err
	}
	client := url.URL{Scheme: "unix", Path: socket}
	// a name only: a single member has no peers, and one client
	named := []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	cfg := embed.NewConfig()
	cfg.Name = "playground"
	cfg.Dir = dir
	cfg.LogLevel = "fatal"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, named
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = nil, named
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true // a playground need not outlive a power cut
	cfg.TickMs, cfg.ElectionMs = tick, elections
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "periodic", "5m"
	cfg.QuotaBackendBytes = 2 << 30
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		remove()
		return nil, err
	}
	stop := func() {
		e.Server.HardStop() // writes the data; it is the only member
		go e.Close()        // waits seconds for clients, which are going as well
		remove()
	}
	select {
	case <-e.Server.ReadyNotify():
		// The time of an election is also that of a request. It is over; and a machine may stand still for longer.
		e.Server.Cfg.ElectionTicks = patience
		return &etcdServer{endpoint: client.String(), kv: e.Server.KV(), stop: stop}, nil
	case err = <-e.Err():
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startTime):
		err = fmt.Errorf("not ready within %s", startTime)
	}
	stop()
	return nil, err
}

// socketPath is a path for a socket in the first of dir and the temporary directories that is short enough.
// The returned function removes what was made; what it cannot remove is an empty directory.
func socketPath(dir string) (string, func(), error) {
	const name = "etcd.sock"
	if path := filepath.Join(dir, name); len(path) <= socketLength {
		_ = os.Remove(path) // of a process that was killed
		return path, func() { _ = os.Remove(path) }, nil
	}
	for _, base := range []string{os.TempDir(), "/tmp"} {
		short, err := os.MkdirTemp(base, "playground-etcd-")
		if err != nil {
			return "", nil, err
		}
		remove := func() { _ = os.RemoveAll(short) }
		if path := filepath.Join(short, name); len(path) <= socketLength {
			return path, remove, nil
		}
		remove()
	}
	return "", nil, errors.New("no directory has a path that is short enough for a socket: set TMPDIR to one")
}
