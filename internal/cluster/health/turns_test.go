package health

import (
	"testing"
	"testing/synctest"
)

// TestChecksOfAWatcherDelayNoOther evaluates many checks of one watcher, and then one of another.
func TestChecksOfAWatcherDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make(chan struct{}, 1)
		busy, other := newTurns(all), newTurns(all)
		next, order := make(chan struct{}), make(chan string, 20)
		for range 10 {
			go busy.run(func() {
				<-next
				order <- "busy"
			})
		}
		synctest.Wait()
		go other.run(func() { order <- "other" })
		synctest.Wait()
		if len(order) > 0 {
			t.Fatal("two checks are evaluated at the same time")
		}
		close(next)
		synctest.Wait()
		if first, second := <-order, <-order; first != "busy" || second != "other" {
			t.Errorf("the check of another watcher came after %s and %s", first, second)
		}
	})
}
