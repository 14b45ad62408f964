package campaign

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/faulty"
)

const (
	maxFailures     = 3  // operations that fail one after another
	pointsUntilKill = 10 // after so many points, the process begins again on the disk
)

// TestCampaignWritePoints lets each write operation on the disk of the process fail, with ENOSPC and with EIO, while
// objects are applied and pruned, images are committed and events are delivered. Nothing may be lost. The process must
// recover without a restart, unless the operation failed at its start.
func TestCampaignWritePoints(t *testing.T) {
	const short, full = 2, 500 // points with each error
	e := begin(t, short, full)
	disk := faulty.Mount(t)
	k := newKilled(t, e, disk.Dir)
	failed, ends := 0, 0
	e.each(func(i int, random *rand.Rand) {
		for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EIO} {
			disk.Fail(i, 1+random.IntN(maxFailures), errno)
			if i%pointsUntilKill == pointsUntilKill-1 {
				k.controller.stop(syscall.SIGKILL)
				k.kills = append(k.kills, time.Now())
				ends += k.controller.begin()
			}
			for disk.Failed() == 0 {
				k.change(random)
				k.work(500*time.Millisecond, false)
				k.controller.mustLive()
			}
			failed += disk.Work()
			k.fetch()
			k.mustHold()
			k.controller.mustLive()
		}
		if i%untilSettled == untilSettled-1 {
			k.settle()
		}
	})
	k.settle()
	e.note("%d operations failed (%s); %d commits, %d image commits; %d of %d posted events acknowledged, all "+
		"delivered; %d starts failed; slowest recovery %s", failed, disk.Kinds(), k.commits, k.robotCommits(),
		len(k.posted), k.posts, ends, k.slowest.Round(time.Second))
}

// begin starts the process, and again each time it ends before it answers, as the kubelet does. It returns how often it
// ended.
func (c *controller) begin() (ends int) {
	c.Helper()
	c.launch()
	testenv.Eventually(c, "the controller runs", func() error {
		select {
		case <-c.ended:
			ends++
			c.launch()
		default:
		}
		_, err := c.scrape()
		return err
	})
	return ends
}
