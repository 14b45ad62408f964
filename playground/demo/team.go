package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
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

// team is who is told of the pipeline: the address of the Provider, and what came in there.
type team struct {
	url  string
	told chan notification
}

// startTeam listens as any endpoint of one's own does that a Provider of the type generic posts to.
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
				http.Error(w, "this is no event", http.StatusBadRequest)
				return
			}
			select {
			case d.team.told <- n:
			default: // nobody looks any more
			}
		})}
	go func() { _ = server.Serve(listener) }() // until it is closed
	return func() { _ = server.Close() }, nil
}

// hear returns the notification that something was deployed.
func (d *demo) hear(ctx context.Context, deployed *card) (notification, error) {
	for {
		select {
		case n := <-d.team.told:
			if n.InvolvedObject.Name == deployed.name && n.Reason == "ReconciliationSucceeded" {
				return n, nil
			}
		case err := <-d.died:
			return notification{}, fmt.Errorf("the controllers ended: %w", err)
		case <-ctx.Done():
			return notification{}, errors.Join(errors.New("nobody was notified that "+deployed.name+" was deployed"),
				ctx.Err())
		}
	}
}
