package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// notification is what of an event the demo shows.
type notification struct {
	InvolvedObject struct{ Kind, Name string }
	Severity       string
	Reason         string
	Message        string
	Metadata       map[string]string
}

// team receives notifications of the pipeline at the address of the Provider.
type team struct {
	url      string
	received chan notification
}

// startTeam starts an HTTP server for a Provider of the type generic.
func (d *demo) startTeam(ctx context.Context) (func(), error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d.team = team{"http://" + listener.Addr().String(), make(chan notification, 64)}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var n notification
			if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&n); err != nil {
				http.Error(w, "invalid event", http.StatusBadRequest)
				return
			}
			select {
			case d.team.received <- n:
			default: // the demo reads no more notifications
			}
		})}
	go func() { _ = server.Serve(listener) }() // until it is closed
	return func() { _ = server.Close() }, nil
}

// hear returns the notification that something was deployed.
func (d *demo) hear(ctx context.Context, deployed *card) (notification, error) {
	for {
		select {
		case n := <-d.team.received:
			if n.InvolvedObject.Name == deployed.name && strings.HasPrefix(n.Message, "Applied revision") {
				return n, nil
			}
		case err := <-d.died:
			return notification{}, fmt.Errorf("the controllers ended: %w", err)
		case <-ctx.Done():
			return notification{}, errors.Join(errors.New("no notification about "+deployed.name+" arrived"),
				ctx.Err())
		}
	}
}
