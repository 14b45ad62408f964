package demo

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// uiTimeout is how long the web UI may take to print its address.
const uiTimeout = time.Minute

// startUI serves the web UI as a child until the demo ends. The child prints its address, which contains a token.
func (d *demo) startUI(ctx context.Context) (func(), error) {
	logs, err := os.Create(filepath.Join(d.dir, "ui.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(d.Sluice, "ui", "--open=false", "--kubeconfig", d.kubeconfig)
	cmd.Stderr = logs
	read, write, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, logs.Close())
	}
	defer read.Close() // the child prints nothing else
	cmd.Stdout = write
	stop, err := startChild(cmd, make(chan error, 1), logs)
	if err = errors.Join(err, write.Close()); err != nil {
		return nil, err
	}
	end := time.Now().Add(uiTimeout)
	if until, ok := ctx.Deadline(); ok && until.Before(end) {
		end = until
	}
	if err := read.SetReadDeadline(end); err != nil {
		stop()
		return nil, err
	}
	line := bufio.NewScanner(read)
	if !line.Scan() {
		stop()
		return nil, errors.Join(errors.New("sluice ui printed no address"), line.Err(), errors.New(tail(logs.Name())))
	}
	d.ui = line.Text()
	return stop, nil
}

// startChild starts a process that an interrupt of the terminal does not reach: the demo ends it in order, by the
// returned function. How it ended is sent to died.
func startChild(cmd *exec.Cmd, died chan<- error, logs *os.File) (func(), error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, logs.Close())
	}
	ended := make(chan struct{})
	go func() {
		died <- cmd.Wait()
		close(ended)
	}()
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = cmd.Process.Kill()
		}
		_ = logs.Close()
	}, nil
}
