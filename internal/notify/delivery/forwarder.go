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

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Forwarder sends all events to the process that runs the notification controller. It is a [Router] with a
// single provider, and the [Sender] of it.
type Forwarder struct {
	URL    string
	Client *http.Client
	// Token returns the token that authenticates this process; empty if it has none. May be nil.
	Token func(ctx context.Context) (string, error)
}

var forwardProvider = types.NamespacedName{Namespace: "events", Name: "forward"}

// Route implements [Router].
func (f *Forwarder) Route(_ context.Context, e event.Event) []Delivery {
	return []Delivery{{Provider: forwardProvider, Event: e}}
}

// Send implements [Sender]. It posts the event in the documented format: metadata keys are prefixed with the
// API group of the object.
func (f *Forwarder) Send(ctx context.Context, d Delivery) error {
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
		return fault.New(ReasonFailed, "cannot encode the event as JSON").Because(err).Final()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.URL, bytes.NewReader(body))
	if err != nil {
		return fault.New(ReasonFailed, "--events-addr is not a valid URL").Final()
	}
	req.Header.Set("Content-Type", "application/json")
	if f.Token != nil {
		token, err := f.Token(ctx)
		if err != nil {
			return fault.New(ReasonFailed, "cannot get a token to post events with").Because(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	resp, err := f.Client.Do(req)
	if err != nil {
		// unwrapped, since the outer error contains the URL
		return fault.New(ReasonFailed, "cannot reach the URL of --events-addr").Because(errors.Unwrap(err))
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be reused
	return checkResponse(resp)
}

// checkResponse converts a response to an error. 429 is success: the other process has the event already.
func checkResponse(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code < 300, code == http.StatusTooManyRequests:
		return nil
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusNotFound:
		return fault.New(ReasonFailed, "--events-addr returned %s", resp.Status).Final()
	default: // includes 404: the process may not be serving yet
		wait, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return fault.New(ReasonFailed, "--events-addr returned %s", resp.Status).
			After(time.Duration(max(0, wait)) * time.Second)
	}
}

// LogReporter is a [Reporter] for a process without alerts and providers: it logs the message.
type LogReporter func(message string)

// Report implements [Reporter].
func (r LogReporter) Report(_, _ types.NamespacedName, reason, message string) {
	r(fmt.Sprintf("%s: %s", reason, message))
}
