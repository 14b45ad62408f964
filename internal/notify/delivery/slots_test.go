package delivery

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/artifact/accessreview"
	"github.com/sluice-gitops/sluice/internal/guard"
)

// TestSlowRequestsOfOneSender has a tenant whose accounts post bodies without an end from many addresses: other
// senders, and those that are not known yet, still have slots.
func TestSlowRequestsOfOneSender(t *testing.T) {
	t.Parallel()
	s := &server{dispatcher: New(options(t.TempDir(), newFakeProviders(nil))), senders: byToken{},
		requests: guard.NewShares(maxRequests)}
	send := func(sender, address string, body io.Reader) int {
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.RemoteAddr = address
		r.Header.Set("Authorization", "Bearer "+sender)
		w := httptest.NewRecorder()
		s.post(w, r)
		return w.Code
	}
	var ends sync.WaitGroup
	defer ends.Wait()
	refused := make(chan int, 2*maxRequests)
	for n := range 2 * maxRequests {
		body, hold := io.Pipe()
		defer hold.Close()
		ends.Go(func() {
			sender, address := fmt.Sprint("system:serviceaccount:hostile:", n), fmt.Sprintf("10.0.0.%d:1000", n)
			if code := send(sender, address, body); code == http.StatusServiceUnavailable {
				refused <- code
			}
		})
	}
	for range 2*maxRequests - maxRequests/2 {
		select {
		case <-refused:
		case <-time.After(3 * time.Minute):
			t.Fatal("one tenant has more than its share of the slots")
		}
	}
	code := send("system:serviceaccount:other:a", "10.0.1.1:1000", strings.NewReader("{}"))
	if code != http.StatusBadRequest {
		t.Errorf("another sender got status %d", code)
	}
}

// byToken knows every sender by its token; none may speak for a namespace.
type byToken struct{}

func (byToken) Authenticate(_ context.Context, token string) (*accessreview.Sender, error) {
	return &accessreview.Sender{Name: token}, nil
}
