package hostguard

import "time"

// owner is what a host did to the requests of one owner. The mutex of the host guards it: what one owner makes a host
// do, by its paths, deadlines or credentials, is kept from others.
type owner struct {
	host     *host
	name     string
	inFlight int // requests that hold a slot

	lastReceived time.Time // or the start of the wait, if nothing was received since
	received     int64     // counts the times that the host sent something
	awaited      int       // requests that wait for data now
	pauses       int64     // counts the pauses so far

	rateLimits  map[string]time.Time // by caller: the end of its rate limit
	timeouts    int                  // in a row
	hasAnswered bool                 // since the last timeout
	pausedUntil time.Time
	probe       *Request // the one that tests the host after a pause
}

// isIdle reports whether the state of an owner may be forgotten: it has no request in flight, no pause and no limit.
func (o *owner) isIdle(now time.Time) bool {
	if o.inFlight > 0 || o.awaited > 0 || now.Before(o.pausedUntil) {
		return false
	}
	for _, until := range o.rateLimits {
		if now.Before(until) {
			return false
		}
	}
	return true
}

// idle returns how long the host sent nothing although data was awaited. Time in which the receiver reads nothing
// does not count.
func (o *owner) idle() time.Duration {
	if o.awaited == 0 {
		return 0
	}
	return o.host.now().Sub(o.lastReceived)
}

// progress records that the host sent something.
func (o *owner) progress() {
	o.received++
	o.lastReceived = o.host.now()
}

func (o *owner) checkRateLimit(caller string) error {
	now := o.host.now()
	if until := o.rateLimits[caller]; now.Before(until) {
		return RateLimited(o.host.guard.options.Reason, o.host.name, now, until)
	}
	return nil
}

// checkPause returns a fault while the host is paused for the owner. The first request after a pause becomes the probe.
func (o *owner) checkPause(r *Request) error {
	now, options := o.host.now(), o.host.guard.options
	if now.Before(o.pausedUntil) {
		return o.host.unanswered(o.pausedUntil.Sub(now))
	}
	if o.timeouts > 0 && options.ProbeTimeout > 0 {
		o.probe, o.pausedUntil = r, now.Add(options.ProbeTimeout)
	}
	return nil
}
