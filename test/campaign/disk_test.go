package campaign

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const (
	diskSize     = "48m"
	untilSettled = 5 // after so many full disks, everything must be as declared
)

// TestCampaignDisk fills the disk of the process while objects are applied and pruned, images are committed and events
// are delivered: each write may be the one that fails. Nothing may be lost, without a restart.
func TestCampaignDisk(t *testing.T) {
	const short, full = 3, 500
	e := begin(t, short, full)
	disk := smallDisk(t)
	k := newKilled(t, e, disk)
	e.each(func(i int, random *rand.Rand) {
		filler := fill(t, disk, random)
		k.change(random)
		k.work(time.Duration(500+random.IntN(1000))*time.Millisecond, false)
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		k.fetch()
		k.controller.mustLive()
		k.mustHold()
		if i%untilSettled == untilSettled-1 {
			k.settle()
		}
	})
	k.settle()
	e.note("%d full disks, %d commits, %d image commits; %d of %d posted events acknowledged, all delivered; slowest "+
		"recovery %s", e.count, k.commits, k.robotCommits(), len(k.posted), k.posts, k.slowest.Round(time.Second))
}

// smallDisk mounts a file system in memory until the test ends.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+diskSize); err != nil {
		t.Skipf("a file system of limited size cannot be mounted: %v. Run the experiment as root", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill writes a file that leaves up to 64 KiB of the disk free, and returns its name.
func fill(t *testing.T, disk string, random *rand.Rand) string {
	t.Helper()
	name := filepath.Join(disk, "filler")
	var s syscall.Statfs_t
	if err := syscall.Statfs(disk, &s); err != nil {
		t.Fatal(err)
	}
	size := max(0, int64(s.Bavail)*s.Bsize-int64(random.IntN(64<<10)))
	f, err := os.Create(name)
	if err != nil {
		return name // full already
	}
	defer f.Close() // only its size matters
	block := make([]byte, 1<<20)
	for size > 0 {
		n, err := f.Write(block[:min(size, int64(len(block)))])
		if size -= int64(n); err != nil {
			break // the process wrote meanwhile: the disk is full
		}
	}
	return name
}
