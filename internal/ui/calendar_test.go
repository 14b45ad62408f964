package ui

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/ui/view"
)

// monday is a time without daylight saving changes near it.
var monday = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// nightly returns a gate that opens at 22:00 for 6 hours, and was opened by a person the day before.
func nightly() *gatingv1.Gate {
	g := &gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "nights"}}
	g.Spec.Interval.Duration, g.Spec.Default = time.Minute, gatingv1.Closed
	g.Spec.Schedule = []gatingv1.ScheduleEntry{{Name: "night", State: gatingv1.Opened, Cron: "0 22 * * *",
		Duration: &meta.Duration{Duration: 6 * time.Hour}}}
	g.Status.History = []gatingv1.HistoryEntry{
		{At: meta.TimeOf(monday.Add(-23 * time.Hour)), State: gatingv1.Closed, Message: "the window ended"},
		{At: meta.TimeOf(monday.Add(-24 * time.Hour)), State: gatingv1.Opened, Message: "requested", By: "ada"},
	}
	return g
}

func TestCalendarOfAGateHasNoGaps(t *testing.T) {
	c := gatesCalendar{From: monday.Add(-2 * day), Now: monday, To: monday.Add(2 * day)}
	got := calendarOf(&view.Item{ID: "Gate/shop/nights", Gate: &view.Gate{}}, nightly(), c)
	want := []string{
		"05-30T12 05-31T12 opened=false known=false ", "05-31T12 05-31T13 opened=true known=true ada",
		"05-31T13 06-01T12 opened=false known=true ", "06-01T12 06-01T22 opened=false known=true ",
		"06-01T22 06-02T04 opened=true known=true ", "06-02T04 06-02T22 opened=false known=true ",
		"06-02T22 06-03T04 opened=true known=true ", "06-03T04 06-03T12 opened=false known=true ",
	}
	if len(got.Periods) != len(want) || got.Error != "" || got.More {
		t.Fatalf("the calendar is %+v", got)
	}
	const hour = "01-02T15"
	for n, p := range got.Periods {
		text := fmt.Sprintf("%s %s opened=%t known=%t %s", p.From.Format(hour), p.To.Format(hour), p.Opened, p.Known,
			p.By)
		if text != want[n] {
			t.Errorf("period %d is %q, want %q", n, text, want[n])
		}
	}
}

func TestCalendarOfAnInvalidScheduleSaysSo(t *testing.T) {
	g := nightly()
	g.Spec.Schedule[0].Cron = "never"
	c := gatesCalendar{From: monday.Add(-day), Now: monday, To: monday.Add(day)}
	got := calendarOf(&view.Item{ID: "Gate/shop/nights", Gate: &view.Gate{}}, g, c)
	if last := got.Periods[len(got.Periods)-1]; got.Error == "" || last.Known || !last.To.Equal(c.To) {
		t.Errorf("the calendar is %+v", got)
	}
}

func TestCalendarListsGatesThatTheUserMaySee(t *testing.T) {
	s := newSite(t, func(i *view.Item) bool { return i.Name != "hidden" })
	for _, name := range []string{"hidden", "shown"} {
		g := nightly()
		g.ObjectMeta = metav1.ObjectMeta{Name: name}
		s.create(g)
	}
	s.awaitItem("shown")
	testenv.Eventually(t, "the calendar", func() error {
		c := read[gatesCalendar](s, "/api/v1/calendar?days=2&back=1")
		if len(c.Gates) != 1 || c.Gates[0].Gate != "Gate/"+s.namespace+"/shown" || len(c.Gates[0].Periods) < 4 {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	for _, query := range []string{"days=0", "days=61", "back=x"} {
		if status, body := s.request(http.MethodGet, "/api/v1/calendar?"+query, ""); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", query, status, body)
		}
	}
}
