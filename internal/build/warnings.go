package build

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"sync"
)

// warning matches what kustomize prints about files of users: it has no other way to tell, and repeats itself
// each time.
var warning = regexp.MustCompile(`^# Warning: '\w+' is deprecated|^(\d[\d/]* [\d:]+ )?(Warning: Sorting order|well-defined vars that were never replaced)`)

// quiet is the one filter of the process.
var quiet struct {
	sync.Mutex
	users int
	end   func()
}

// Quiet keeps kustomize's warnings off the standard error until the function that it returns is called. It
// stands between [os.Stderr] and the real one, so call it before anything else runs.
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
	go func() {
		defer close(done)
		pass(r, stderr)
	}()
	return func() {
		os.Stderr = stderr
		log.SetOutput(logged)
		_ = w.Close() // ends the copying
		<-done
		_ = r.Close()
	}, nil
}

// pass copies lines but for the warnings. Nobody is left to tell when the standard error is gone.
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
