// Package faulty is a file system for tests whose write operations fail when the test says so.
package faulty

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// Disk is a mounted directory. Its write operations are numbered in the order in which they arrive: creations, writes,
// syncs, renames, deletions, and changes of size, mode or time. Use it from other processes only: a process that ends
// with an open file on a file system that it serves itself never ends.
type Disk struct {
	fuse.RawFileSystem
	Dir string

	mu     sync.Mutex
	count  int            // operations
	first  int            // the first one that fails
	left   int            // how many still fail
	errno  syscall.Errno  // of those
	failed int            // since Fail was called
	kinds  map[string]int // operations that failed, by kind
}

// Mount mounts a file system until the test ends. The test is skipped if that is not possible, for example without the
// rights of root.
func Mount(tb testing.TB) *Disk {
	tb.Helper()
	root, err := fs.NewLoopbackRoot(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	d := &Disk{RawFileSystem: fs.NewNodeFS(root, &fs.Options{}), Dir: tb.TempDir(), kinds: map[string]int{}}
	server, err := fuse.NewServer(d, d.Dir, &fuse.MountOptions{
		DirectMountStrict: true, FsName: "faulty", Name: "faulty",
		DisabledCapabilities: fuse.CAP_PASSTHROUGH, // the operations would not arrive here
	})
	if err != nil {
		tb.Skipf("a file system that fails on demand cannot be mounted: %v. Run the test as root with /dev/fuse", err)
	}
	go server.Serve()
	tb.Cleanup(func() {
		if err := syscall.Unmount(d.Dir, syscall.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
	if err := server.WaitMount(); err != nil {
		tb.Fatal(err)
	}
	return d
}

// Fail lets operations fail with an error: n of them, after the next ones have succeeded.
func (d *Disk) Fail(after, n int, errno syscall.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.first, d.left, d.errno, d.failed = d.count+after, n, errno, 0
}

// Work lets all operations succeed again. It returns how many have failed since Fail was called.
func (d *Disk) Work() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = 0
	return d.failed
}

// Failed returns how many operations have failed since Fail was called.
func (d *Disk) Failed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// Kinds describes how many operations of each kind have failed.
func (d *Disk) Kinds() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(d.kinds)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, d.kinds[k]))
	}
	return strings.Join(kinds, ", ")
}

// try counts an operation, and returns the error with which it fails.
func (d *Disk) try(kind string) fuse.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	if d.left == 0 || d.count <= d.first {
		return fuse.OK
	}
	d.left--
	d.failed++
	d.kinds[kind]++
	return fuse.Status(d.errno)
}
