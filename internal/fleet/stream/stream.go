// Package stream lets users of a hub reach the web UI of clusters to which the hub has no way. A cluster opens a
// connection to the hub by HTTP/1.1 with Upgrade. Then the roles turn: the cluster serves HTTP/2 on the connection, and
// the hub sends the requests of users. They carry the login of the user at the cluster, and the hub adds none.
//
// A cluster may be hostile. What it answers is data for the pages of the hub: no script, page, redirect or cookie of a
// cluster gets into the origin of the hub; see [Hub.Forward].
package stream

import (
	"context"
	"net/http"
	"time"

	"github.com/sluice-gitops/sluice/internal/fleet"
)

// protocol is the name of the protocol in the header Upgrade.
const protocol = "sluice-stream"

// Bounds of a stream.
const (
	maxRequests = 100  // in work at the same time
	maxAll      = 2000 // on all streams
	maxHeader   = 16 << 10
	maxBody     = 1 << 20 // of a request
	window      = 128 << 10

	pingAfter   = 20 * time.Second // without a frame of the other side
	pingTimeout = 15 * time.Second
	writeByte   = 15 * time.Second // until the other side takes a byte
	dialTimeout = 15 * time.Second

	minAge   = time.Second      // of a stream that is replaced
	maxAge   = 75 * time.Minute // after which the hub closes a stream: its login may have been revoked
	renewMin = 45 * time.Minute // after which a cluster opens a new stream
	renewMax = 60 * time.Minute

	answerTimeout = time.Minute      // until the header of an answer
	takeTimeout   = 30 * time.Second // until the user takes a part of an answer
	drainTimeout  = 30 * time.Second // for the requests on a stream that was replaced
)

// Prefix returns the path of a cluster's UI at the hub, without a slash at the end.
func Prefix(cluster string) string { return fleet.ClustersPath + "/" + cluster + "/ui" }

// PagesPrefix returns the path of the pages that show the UI of a cluster. The hub serves them, not the cluster.
func PagesPrefix(cluster string) string { return "/clusters/" + cluster }

// protocols allows HTTP/2 only, as the connection below is encrypted already.
func protocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

func settings() *http.HTTP2Config {
	return &http.HTTP2Config{MaxConcurrentStreams: maxRequests, StrictMaxConcurrentRequests: true,
		MaxReceiveBufferPerStream: window, SendPingTimeout: pingAfter, PingTimeout: pingTimeout,
		WriteByteTimeout: writeByte, MaxDecoderHeaderTableSize: 4 << 10, MaxEncoderHeaderTableSize: 4 << 10}
}

// wait returns false if the context ends first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
