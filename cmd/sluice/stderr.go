package main

import (
	"bufio"
	"io"
	"log"
	"os"
	"regexp"

	"github.com/sluice-gitops/sluice/internal/guard"
)

// warning matches lines that kustomize prints to the standard error about files of users, again in every build. It has
// no option to disable them.
var warning = regexp.MustCompile(`^# Warning: '\w+' is deprecated|^(\d[\d/]* [\d:]+ )?` +
	`(Warning: Sorting order|well-defined vars that were never replaced)`)

// filterStderr removes kustomize's warnings from what the process prints to [os.Stderr]. It is called once, before
// other goroutines start, because it replaces [os.Stderr] and the output of the standard logger by a pipe. A goroutine
// copies all other lines to the original standard error. The returned function restores the original values and waits
// until all lines are copied.
func filterStderr() (restore func(), err error) {
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
		copyWithoutWarnings(stderr, r)
	})
	return func() {
		os.Stderr = stderr
		log.SetOutput(logged)
		_ = w.Close() // ends the copying
		<-done
		_ = r.Close()
	}, nil
}

// copyWithoutWarnings ignores write errors: they cannot be reported.
func copyWithoutWarnings(to io.Writer, from io.Reader) {
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
