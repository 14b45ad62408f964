// Command test runs the tests of all modules against one control plane, and prints how long they took: make test.
// With arguments, it runs the tests of these packages of the main module.
// With -full it runs what make test leaves out, in the time that -budget gives: make test-full.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// run is one call of go test.
type run struct {
	dir  string // of the module, below the root
	args []string
	env  []string
}

// flags are those of all runs. DWARF and the symbol table are only for debuggers, and make lint runs vet. Tests of
// controllers, and whole packages of them, mostly wait: test/e2e has 41 seconds of a processor in four minutes. So more
// of them run at a time than there are processors: three packages kept two processors busy for 80 % of the time, and
// four for 97 %. Not many more: the tests of internal/source took 194 s and 44 of a processor with six at a time, and
// 107 s and 30 with three.
var flags = []string{"-json", "-vet=off", "-ldflags=-s -w", "-p=" + strconv.Itoa(max(4, runtime.GOMAXPROCS(0))),
	"-parallel=" + strconv.Itoa(max(4, runtime.GOMAXPROCS(0)))}

func main() {
	full := flag.Bool("full", false, "run the tests that only run in full")
	budget := flag.Duration("budget", 0, "with -full, end all tests after this time; 0 for no limit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runAll(ctx, flag.Args(), *full, *budget)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runAll(ctx context.Context, packages []string, full bool, budget time.Duration) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := stamp(root); err != nil {
		return err
	}
	c, err := startCluster(ctx, root)
	if err != nil {
		return err
	}
	defer c.stop()
	s := newSummary(os.Stdout)
	env := seldomCollecting(c.env())
	switch {
	case full: // it measures the memory of controllers
		var end <-chan time.Time
		first := 0
		if budget > 0 {
			end, first = time.After(budget), time.Now().YearDay()
		}
		err = runFull(ctx, root, c.env(), first, end, s)
	case len(packages) > 0:
		err = run{dir: ".", env: env, args: packages}.start(ctx, root, s)
	default:
		err = runDefault(ctx, root, env, s)
	}
	s.print()
	return err
}

// longest are the packages whose tests take longest. They start first, so that the others run next to them.
var longest = []string{"./internal/cli", "./test/migrate", "./test/e2e", "./test/pages", "./test/differential",
	"./internal/helmrelease", "./internal/source", "./internal/gate", "./internal/kustomization",
	"./internal/cluster/apply", "./internal/resourceset", "./internal/process/kubeclient"}

// runDefault runs the tests of all modules. Those of the small ones run next to those of the main one.
func runDefault(ctx context.Context, root string, env []string, s *summary) error {
	main := run{dir: ".", env: env, args: slices.Concat([]string{"-timeout", "25m"}, longest, []string{"./..."})}
	small := []run{
		// its results depend on files of the main module, which go test does not know
		{dir: "hack/site", env: env, args: []string{"-count=1", "./..."}},
		{dir: "playground", env: env, args: []string{"-timeout", "15m", "./..."}},
	}
	var failed error // of the small modules
	var ended sync.WaitGroup
	ended.Go(func() {
		for _, r := range small {
			failed = errors.Join(failed, r.start(ctx, root, s))
		}
	})
	err := main.start(ctx, root, s)
	ended.Wait()
	return errors.Join(failed, err)
}

// start runs go test and returns an error unless all tests passed.
func (r run) start(ctx context.Context, root string, s *summary) error {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test"}, flags, r.args)...)
	cmd.Dir, cmd.Env, cmd.Stderr = filepath.Join(root, r.dir), r.env, os.Stderr
	// go test and the test binaries are a process group of their own, so that none outlives the end of the time
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = s.read(stdout)
	_, _ = io.Copy(io.Discard, stdout) // after a line that is too long, so that go test can end
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("go test in %s: %w", r.dir, err)
	}
	return nil
}
