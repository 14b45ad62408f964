package testenv

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// stopLimit is how long a process may take to end after SIGTERM.
const stopLimit = time.Minute

// Supervise runs a process until stop is called, which sends it a signal and waits. It starts the process again when it
// ends before, as a kubelet does: controllers end when they lose their lease, for example because the machine stood
// still. Callers must call stop, and may do so again.
func Supervise(tb testing.TB, command func() *exec.Cmd) (stop func(syscall.Signal)) {
	tb.Helper()
	signals, done := make(chan syscall.Signal), make(chan struct{})
	go func() {
		defer close(done)
		for {
			process := command()
			if err := process.Start(); err != nil {
				tb.Errorf("%s does not start: %v", process.Path, err)
				return
			}
			var err error
			ended := make(chan struct{})
			go func() { defer close(ended); err = process.Wait() }()
			select {
			case signal := <-signals:
				_ = process.Process.Signal(signal) // it may have ended already
				kill := time.AfterFunc(stopLimit, func() { _ = process.Process.Kill() })
				<-ended
				if !kill.Stop() {
					tb.Errorf("%s did not end within %s of %s", process.Path, stopLimit, signal)
				}
				return
			case <-ended:
				tb.Logf("%s ended (%v), and starts again", process.Path, err)
			}
		}
	}()
	return func(signal syscall.Signal) {
		select {
		case signals <- signal:
		case <-done:
		}
		<-done
	}
}
