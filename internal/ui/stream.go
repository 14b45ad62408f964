package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-gitops/sluice/internal/ui/view"
)

const (
	streamPeriod    = 100 * time.Millisecond // between two events; changes within it are sent together
	streamHeartbeat = 20 * time.Second
	streamWrite     = 10 * time.Second // for a client to take an event
	maxStreams      = 1000
	maxUserStreams  = 50
)

// stream sends changes of the items that the user may see, as server-sent events `changes`, until the client is gone.
// The client reads the lists again after it connected, so no change is missed. Events are sent at fixed times only, so
// that their times say nothing about changes that the user may not see.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	u, err := s.Login.User(r)
	if err != nil {
		failLogin(w, err)
		return
	}
	if !s.streams.Open(u.Name, maxStreams, maxUserStreams) {
		fail(w, http.StatusTooManyRequests, "too many pages are open. Close some and load this page again.")
		return
	}
	defer s.streams.Close(u.Name)
	changes := s.Model.Subscribe()
	defer changes.Close()
	w.Header().Set("Content-Type", "text/event-stream")
	out := &eventWriter{w: w, control: http.NewResponseController(w)}
	if out.send("hello", struct{}{}) != nil {
		return
	}
	heartbeat := time.NewTicker(streamHeartbeat)
	defer heartbeat.Stop()
	tick := time.NewTicker(streamPeriod)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-heartbeat.C:
			if u, err = s.Login.User(r); err != nil || out.send("ping", struct{}{}) != nil {
				return // logged out, or gone
			}
			continue
		case <-tick.C:
		}
		select {
		case <-changes.Ready():
		default:
			continue
		}
		visible, err := seenBy(r.Context(), u, changes.Take())
		if err != nil {
			s.Log.Error(err, "a stream of the UI ended, as rights cannot be read", "user", u.Name)
			return // the page connects again, and reads what it missed
		}
		if len(visible) > 0 && out.send("changes", visible) != nil {
			return
		}
	}
}

// seenBy returns the changes of items that the user may see.
func seenBy(ctx context.Context, u *User, changes []view.Change) ([]view.Change, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	distinct := map[view.Scope]bool{}
	var scopes []view.Scope
	for _, c := range changes {
		if scope := c.Scope(); !distinct[scope] {
			distinct[scope] = true
			scopes = append(scopes, scope)
		}
	}
	may, err := u.See(ctx, scopes)
	if err != nil {
		return nil, err
	}
	visible := changes[:0]
	for _, c := range changes {
		if c.VisibleTo(may) {
			visible = append(visible, c)
		}
	}
	return visible, nil
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (e *eventWriter) send(event string, v any) error { return e.sendAs(time.Time{}, event, v) }

// sendAs sends an event whose ID is a time, unless that is zero. Browsers send the ID when they connect again.
func (e *eventWriter) sendAs(at time.Time, event string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := e.control.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil {
		return err
	}
	id := ""
	if !at.IsZero() {
		id = "id: " + at.UTC().Format(time.RFC3339Nano) + "\n"
	}
	if _, err := fmt.Fprintf(e.w, "%sevent: %s\ndata: %s\n\n", id, event, data); err != nil {
		return err
	}
	return e.control.Flush()
}
