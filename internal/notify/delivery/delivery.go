// Package delivery delivers events to notification providers and loses none on the way.
//
// An accepted event is on disk. It moves from the intake queue to one queue for each provider that an alert
// names, and from there a worker sends it. A record leaves a queue only after it is stored in the next one or
// sent. A provider that is slow or down does not delay the others, pending events need no memory, and after a
// crash the next process continues; some events are then sent twice.
package delivery

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/sluice-gitops/sluice/internal/notify/event"
	"github.com/sluice-gitops/sluice/internal/notify/queue"
)

// Delivery is an event for one provider, as requested by one alert.
type Delivery struct {
	Alert    types.NamespacedName `json:"alert"`
	Provider types.NamespacedName `json:"provider"`
	Event    event.Event          `json:"event"`
}

// subject returns the object of the event for messages.
func (d *Delivery) subject() string {
	o := d.Event.InvolvedObject
	return fmt.Sprintf("%s/%s/%s", o.Kind, o.Namespace, o.Name)
}

// namespaceOf returns the namespace of the object of a stored event or delivery.
func namespaceOf(data []byte) string {
	type record struct {
		InvolvedObject struct {
			Namespace string `json:"namespace"`
		} `json:"involvedObject"`
	}
	var stored struct {
		record
		Event record `json:"event"`
	}
	if json.Unmarshal(data, &stored) != nil {
		return ""
	}
	return cmp.Or(stored.InvolvedObject.Namespace, stored.Event.InvolvedObject.Namespace)
}

// Router returns the deliveries of an event: one for each alert that selects it.
type Router interface {
	Route(ctx context.Context, e event.Event) []Delivery
}

// Sender sends a delivery to its provider, once. An error that is a fault states whether a retry can help
// (Terminal) and when (RetryAfter); any other error is retried.
type Sender interface {
	Send(ctx context.Context, d Delivery) error
}

// Reporter reports problems with deliveries to the owners of the alert and the provider. It must not block.
type Reporter interface {
	Report(alert, provider types.NamespacedName, reason, message string)
}

// Reasons that a [Reporter] gets.
const (
	ReasonFailed  = "NotificationFailed"  // a delivery failed and is not retried
	ReasonDelayed = "NotificationDelayed" // deliveries fail and are retried
	ReasonDropped = "NotificationDropped" // the queue of the provider was full or damaged
)

// Options configure a [Dispatcher]. All fields after Reporter are optional.
type Options struct {
	Dir      string // directory of the queues
	Router   Router
	Sender   Sender
	Reporter Reporter

	Clock         clock.Clock
	RateLimit     time.Duration // how long repeated events are suppressed; negative: never
	Limits        queue.Limits  // of each queue
	Backoff       Backoff
	MaxAge        time.Duration // age from which a failed delivery is not retried
	SendTimeout   time.Duration // for one attempt
	IdleTimeout   time.Duration // after which a worker without deliveries ends
	FlushInterval time.Duration // how long accepted events may be in the page cache only
	ShutdownGrace time.Duration // for attempts in flight when the process ends
}

// Backoff is the wait after consecutive failures: it doubles from Min to Max.
type Backoff struct{ Min, Max time.Duration }

// DefaultRateLimit is the documented default of --rate-limit-interval.
const DefaultRateLimit = 5 * time.Minute

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Limits.Bytes == 0 {
		o.Limits = queue.DefaultLimits
	}
	o.Limits.Owner = namespaceOf
	for _, d := range []struct {
		field        *time.Duration
		defaultValue time.Duration
	}{
		{field: &o.RateLimit, defaultValue: DefaultRateLimit},
		{field: &o.Backoff.Min, defaultValue: 5 * time.Second},
		{field: &o.Backoff.Max, defaultValue: 5 * time.Minute},
		{field: &o.MaxAge, defaultValue: 24 * time.Hour},
		{field: &o.SendTimeout, defaultValue: 2 * time.Minute},
		{field: &o.IdleTimeout, defaultValue: time.Minute},
		{field: &o.FlushInterval, defaultValue: 200 * time.Millisecond},
		{field: &o.ShutdownGrace, defaultValue: 10 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.defaultValue
		}
	}
}
