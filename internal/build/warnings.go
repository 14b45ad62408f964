package build

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"sync"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// warning matches lines that kustomize prints to the standard error about files of users, again in every build. It has
// no option to disable them.
var warning = regexp.MustCompile(`^# Warning: '\w+' is deprecated|^(\d[\d/]* [\d:]+ )?` +
	`(Warning: Sorting order|well-defined vars that were never replaced)`)

// quiet is the filter of the process: there is at most one, and end removes it when it has no more users.
var quiet struct {
	sync.Mutex
	users int
	end   func()
}

// Quiet removes kustomize's warnings from the standard error until the returned function is called.
//
// It changes global state of the process: it replaces [os.Stderr] and the output of the standard logger by a
// pipe, and a goroutine copies all lines except for the warnings to the original standard error. All code
// that writes to os.Stderr is affected, not only kustomize. Code that saved os.Stderr before is not filtered.
// The variables are changed without synchronization, so call Quiet before other goroutines start, and the
// returned function after they end. Calls may overlap; the last returned function to be called restores the
// original values and waits until all lines are copied.
func Quiet() (speak func(), err error) {
	quiet.Lock()
	defer quiet.Unlock()
	if quiet.users == 0 {
		if quiet.end, err = filterStderr(); err != nil {
			return nil, fmt.Errorf("cannot filter the standard error: %w", err)
		}
	}
	quiet.users++
	return sync.OnceFunc(func() {
		quiet.Lock()
		defer quiet.Unlock()
		if quiet.users--; quiet.users == 0 {
			quiet.end()
		}
	}), nil
}

func filterStderr() (end func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stderr, logged := os.Stderr, log.Writer()
	os.Stderr = w
	log.SetOutput(w)
	done := make(chan struct{})
	guard.Go("filtering warnings", func() {
		defer close(done)
		pass(r, stderr)
	})
	return func() {
		os.Stderr = stderr
		log.SetOutput(logged)
		_ = w.Close() // ends the copying
		<-done
		_ = r.Close()
	}, nil
}

// pass copies all lines except for the warnings. Write errors are ignored: they cannot be reported.
func pass(from io.Reader, to io.Writer) {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadString('\n')
		if line != "" && !warning.MatchString(line) {
			_, _ = io.WriteString(to, line)
		}
		if err != nil {
			return
		}
	}
}
