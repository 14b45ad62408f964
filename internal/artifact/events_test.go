package artifact

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// listener reads a stream of events.
type listener struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
}

func listenTo(t *testing.T, server *httptest.Server, query, lastID string) *listener {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	req, err := http.NewRequestWithContext(ctx, "GET", server.URL+"/events"+query, nil)
	must(t, err)
	req.Header.Set("Last-Event-ID", lastID)
	req.Header.Set("Authorization", "Bearer good")
	resp, err := server.Client().Do(req)
	must(t, err)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	l := &listener{t: t, lines: bufio.NewScanner(resp.Body), close: func() { cancel(); _ = resp.Body.Close() }}
	t.Cleanup(l.close)
	if id, typ, _ := l.next(); id != "" || typ != "" {
		t.Fatalf("the first event is %q %q", id, typ)
	}
	return l
}

// next returns the next event, after heartbeats; another comment has no ID and no type.
func (l *listener) next() (id, typ string, event Event) {
	l.t.Helper()
	for beats := false; l.lines.Scan(); {
		if l.lines.Text() == "" && !beats {
			return id, typ, event
		}
		beats = l.lines.Text() == ": heartbeat"
		key, value, _ := strings.Cut(l.lines.Text(), ": ")
		switch key {
		case "id":
			id = value
		case "event":
			typ = value
		case "data":
			must(l.t, json.Unmarshal([]byte(value), &event))
		}
	}
	return "", "end", event
}

func (l *listener) wants(names ...string) (lastID string) {
	l.t.Helper()
	for _, want := range names {
		id, typ, event := l.next()
		if got := typ + " " + event.Name; got != want {
			l.t.Errorf("got %q, want %q", got, want)
		}
		lastID = id
	}
	return lastID
}

func published(names ...string) (out []Event) {
	for _, n := range names {
		out = append(out, Event{Type: EventPublished, Kind: "GitRepository", Namespace: "apps", Name: n})
	}
	return out
}

func publish(e *Events, events ...Event) {
	for _, event := range events {
		e.Publish(event)
	}
}

func TestEventsReachWhoWantsThem(t *testing.T) {
	e := NewEvents(time.Now())
	server := serve(t, &Server{Store: openStore(t, t.TempDir(), newClock()), Events: e})
	all, one, kind := listenTo(t, server, "", ""), listenTo(t, server, "?kind=gitrepository&namespace=apps&name=b", ""),
		listenTo(t, server, "?kind=Bucket", "")
	publish(e, published("a", "b")...)
	e.Publish(Event{Type: EventFailing, Kind: "Bucket", Namespace: "other", Name: "c", Message: "why\nin two lines"})
	all.wants("published a", "published b", "failing c")
	one.wants("published b")
	if _, _, event := kind.next(); event.Name != "c" || event.Message != "why\nin two lines" {
		t.Errorf("got %+v", event)
	}
}

func TestEventsGoOnWhereTheyBrokeOff(t *testing.T) {
	e := NewEvents(time.Now())
	server := serve(t, &Server{Store: openStore(t, t.TempDir(), newClock()), Events: e})
	first := listenTo(t, server, "", "")
	publish(e, published("a", "b")...)
	id := first.wants("published a", "published b")
	first.close()
	publish(e, published("c", "d")...)
	again := listenTo(t, server, "", id)
	again.wants("published c", "published d")
	publish(e, published("e")...)
	again.wants("published e")
	for what, lastID := range map[string]string{
		"another process": NewEvents(time.Now().Add(time.Hour)).epoch + "-1", "nonsense": "x", "the future": e.epoch +
			"-99999", "no number": e.epoch + "-",
	} {
		l := listenTo(t, server, "", lastID)
		if _, typ, _ := l.next(); typ != "reset" {
			t.Errorf("%s: got %q", what, typ)
		}
	}
	for i := range 2 * keptEvents {
		e.Publish(Event{Type: EventPublished, Name: fmt.Sprint(i)})
	}
	if len(e.ring) != keptEvents {
		t.Errorf("%d events are kept", len(e.ring))
	}
	if l := listenTo(t, server, "", id); true {
		l.wants("reset ")
	}
}

func TestEventsOfWhatMayNotBeReadAreNotSeen(t *testing.T) {
	e := NewEvents(time.Now())
	server := serve(t, &Server{Store: openStore(t, t.TempDir(), newClock()), Access: &gate{}, Events: e})
	l := listenTo(t, server, "", "")
	e.Publish(Event{Type: EventPublished, Kind: "GitRepository", Namespace: "theirs", Name: "secret"})
	publish(e, published("a")...)
	l.wants("published a")
}

func TestSlowSubscribersAreDroppedAndBlockNobody(t *testing.T) {
	e := NewEvents(time.Now())
	slow, _, _ := e.subscribe("")
	quick, _, _ := e.subscribe("")
	got := 0
	for range waitingEvents + 1 {
		publish(e, published("a")...)
		<-quick.events
		got++
	}
	for range slow.events {
		got++
	}
	if got != 2*waitingEvents+1 {
		t.Errorf("%d events were received", got)
	}
	if _, ok := e.subscribers[slow]; ok || len(e.subscribers) != 1 {
		t.Error("the slow subscriber is still connected")
	}
	e.unsubscribe(slow) // as its handler does
	e.unsubscribe(quick)
}

func TestEventsAreBounded(t *testing.T) {
	e := NewEvents(time.Now())
	for range maxSubscribers {
		if s, _, _ := e.subscribe(""); s == nil {
			t.Fatal("the subscriber was refused")
		}
	}
	server := serve(t, &Server{Store: openStore(t, t.TempDir(), newClock()), Events: e})
	if resp, _ := get(t, "GET", server.URL+"/events", nil); resp.StatusCode != 503 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestStreamsEndWithTheServer(t *testing.T) {
	e := NewEvents(time.Now())
	server := serve(t, &Server{Store: openStore(t, t.TempDir(), newClock()), Events: e})
	l := listenTo(t, server, "", "")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	must(t, server.Config.Shutdown(ctx))
	l.wants("end ")
	if s, _, _ := e.subscribe(""); s != nil {
		t.Error("a new subscriber was accepted")
	}
}

func FuzzLastEventID(f *testing.F) {
	e := NewEvents(time.Unix(1, 0))
	publish(e, published("a", "b", "c")...)
	f.Add(e.epoch + "-1")
	f.Add(e.epoch + "-18446744073709551615")
	f.Add("-")
	f.Fuzz(func(t *testing.T, id string) {
		s, since, missed := e.subscribe(id)
		if s == nil || missed && len(since) > 0 || len(since) > 3 {
			t.Errorf("%q: %v %v", id, since, missed)
		}
		e.unsubscribe(s)
		if names := slices.Collect(func(yield func(string) bool) {
			for _, event := range since {
				if !yield(event.Name) {
					return
				}
			}
		}); !slices.IsSorted(names) {
			t.Errorf("%q: out of order: %v", id, names)
		}
	})
}
