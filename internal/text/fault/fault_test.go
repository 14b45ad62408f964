package fault

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestAFaultTakesOverTheWaitOfItsCause(t *testing.T) {
	cause := fmt.Errorf("round trip: %w", New("", "host asks to wait").After(time.Minute))
	for name, c := range map[string]struct {
		fault *Fault
		want  time.Duration
	}{
		"of the cause":      {fault: New("PullFailed", "cannot pull").Because(cause), want: time.Minute},
		"its own is longer": {fault: New("PullFailed", "cannot pull").After(time.Hour).Because(cause), want: time.Hour},
		"a plain cause":     {fault: New("PullFailed", "cannot pull").Because(errors.New("broken")), want: 0},
		"no cause":          {fault: New("PullFailed", "cannot pull").Because(nil), want: 0},
	} {
		if got := c.fault.RetryAfter; got != c.want {
			t.Errorf("%s: waits %s, want %s", name, got, c.want)
		}
	}
}

func TestAHintBeginsASentence(t *testing.T) {
	for _, cause := range []string{"it is not there", "it is not there."} {
		if got, want := New("", "cannot list").Because(errors.New(cause)).WithHint("Create it").Error(),
			"cannot list: it is not there. Create it"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAReasonFallsBackWhenTheFaultHasNone(t *testing.T) {
	if got := Reason(New("", "x"), "Failed"); got != "Failed" {
		t.Errorf("the reason is %q", got)
	}
}

func TestARedactedURLHoldsNoSecret(t *testing.T) {
	for raw, want := range map[string]string{
		"https://me:secret@host/path?sig=secret#secret": "https://host/path",
		"ssh://git@host/path":                           "ssh://host/path",
		"http://host\x7f/":                              "(unreadable URL)",
	} {
		if got := RedactURL(raw); got != want {
			t.Errorf("%s became %s, want %s", raw, got, want)
		}
	}
}
