package main

import (
	"flag"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// quiet sends what Kubernetes and etcd log to a file, also what they write to standard error without asking. The errors
// of this program, and its crashes, still go to the real one.
func quiet(log *os.File) error {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false",
		"stderrthreshold": "FATAL", "v": "0"} {
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	klog.SetOutput(log)
	const stderr = 2
	kept, err := unix.FcntlInt(stderr, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	os.Stderr = os.NewFile(uintptr(kept), "stderr")
	if err := debug.SetCrashOutput(os.Stderr, debug.CrashOptions{}); err != nil {
		return err
	}
	return unix.Dup2(int(log.Fd()), stderr)
}
