package delivery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-gitops/sluice/internal/fault"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// Forward sends all events on to the process that has the alerts. It is a [Router] with one provider, and its [Sender].
type Forward struct {
	URL    string
	Client *http.Client
}

var forwarded = types.NamespacedName{Namespace: "events", Name: "forward"}

// Route implements [Router].
func (f *Forward) Route(_ context.Context, e event.Event) []Delivery {
	return []Delivery{{Provider: forwarded, Event: e}}
}

// Send implements [Sender]: it posts the event as documented, with the group of the object before the keys of
// its metadata.
func (f *Forward) Send(ctx context.Context, d Delivery) error {
	e := d.Event
	e.Metadata = make(map[string]string, len(d.Event.Metadata))
	for k, v := range d.Event.Metadata {
		if group := e.Group(); group != "" && !strings.Contains(k, "/") {
			k = group + "/" + k
		}
		e.Metadata[k] = v
	}
	body, err := json.Marshal(e)
	if err != nil {
		return fault.New(ReasonFailed, "the event cannot be written as JSON").Because(err).Final()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL, bytes.NewReader(body))
	if err != nil {
		return fault.New(ReasonFailed, "--events-addr is no URL").Final()
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := f.Client.Do(req)
	if err != nil {
		// without the URL
		return fault.New(ReasonFailed, "cannot reach the URL of --events-addr").Because(errors.Unwrap(err))
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is of further use
	return answer(resp)
}

// answer tells what the other process made of the event. One that it knows already arrived before, or need not.
func answer(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code < 300, code == http.StatusTooManyRequests:
		return nil
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusNotFound:
		// not found: something else listens there yet
		return fault.New(ReasonFailed, "the process at --events-addr answered with %s", resp.Status).Final()
	default:
		wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return fault.New(ReasonFailed, "the process at --events-addr answered with %s", resp.Status).
			After(time.Duration(max(0, wait)) * time.Second)
	}
}

// Silent is a [Teller] that writes to the log only: there is no alert and no provider to tell of.
type Silent func(message string)

// Tell implements [Teller].
func (s Silent) Tell(_, _ types.NamespacedName, reason, message string) {
	s(fmt.Sprintf("%s: %s", reason, message))
}
