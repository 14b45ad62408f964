package options

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/sluice-gitops/sluice/internal/artifact"
	"github.com/sluice-gitops/sluice/internal/cluster/apply"
	"github.com/sluice-gitops/sluice/internal/text/fault"
)

// Validate reports flags with invalid values, by their names.
func (o *Options) Validate() error {
	return errors.Join(o.checkControllers(), o.checkNumbers(), o.checkFeatureGates(), o.checkSSH(), o.checkEvents(),
		o.checkArtifacts(), o.checkElection(), o.UI.Check(), o.Report.check(),
		o.Traces.Check())
}

func (o *Options) checkControllers() error {
	if len(o.Controllers) == 0 {
		return fmt.Errorf("--controllers is empty: choose from %s", strings.Join(AllControllers, ", "))
	}
	return allKnown("--controllers", o.Controllers, AllControllers)
}

func (o *Options) checkNumbers() error {
	if o.JitterPercentage < 0 || o.JitterPercentage > 100 {
		return fmt.Errorf("--interval-jitter-percentage is %d: choose 0 to 100", o.JitterPercentage)
	}
	if o.Concurrent < 1 {
		return fmt.Errorf("--concurrent is %d: choose 1 or more", o.Concurrent)
	}
	if o.ConcurrentSSA < 0 {
		return fmt.Errorf("--concurrent-ssa is %d: choose 1 or more", o.ConcurrentSSA)
	}
	if o.StorageLimit < 0 {
		return fmt.Errorf("--storage-limit is %d: choose 0 or more", o.StorageLimit)
	}
	if o.RateLimit < 0 {
		return fmt.Errorf("--rate-limit-interval is %s: choose 0 or more", o.RateLimit)
	}
	for _, text := range o.ClosedNetworks {
		if _, err := netip.ParsePrefix(text); err != nil {
			return fmt.Errorf("--closed-networks has %q: write a network as 10.96.0.0/12", text)
		}
	}
	if _, err := apply.ParseKinds(o.CustomStage); err != nil {
		return fmt.Errorf("--custom-apply-stage-kinds: %w", err)
	}
	return nil
}

// checkSSH rejects unknown algorithms, which the SSH library would ignore silently.
func (o *Options) checkSSH() error {
	known, insecure := ssh.SupportedAlgorithms(), ssh.InsecureAlgorithms()
	return errors.Join(
		allKnown("--ssh-hostkey-algos", o.SSHHostKeys, slices.Concat(known.HostKeys, insecure.HostKeys)),
		allKnown("--ssh-kex-algos", o.SSHKeyExchanges, slices.Concat(known.KeyExchanges, insecure.KeyExchanges)),
	)
}

// checkEvents rejects an --events-addr that this process cannot listen on.
func (o *Options) checkEvents() error {
	if !o.Runs(NotificationController) || IsDisabled(o.EventsAddr) {
		return nil
	}
	if o.Runs(SourceController) && o.EventsAddr == o.StorageAddr {
		return fmt.Errorf("--events-addr and --storage-addr are both %s: change one of them, for example "+
			"--events-addr=%s", o.EventsAddr, defaultEventsAddr)
	}
	if _, _, err := net.SplitHostPort(o.EventsAddr); err != nil || strings.Contains(o.EventsAddr, "/") {
		return fmt.Errorf("--events-addr is %s, but this process runs %s and accepts events itself: set an address to "+
			"listen on, such as %s", fault.RedactURL(o.EventsAddr), NotificationController, defaultEventsAddr)
	}
	return nil
}

// MaxLeaseDuration is the longest time after which others take over from a process that does not answer.
const MaxLeaseDuration = time.Hour

// checkElection rejects a lease that ends before it is renewed.
func (o *Options) checkElection() error {
	switch {
	case !o.UsesLeases():
		return nil
	case o.AutoShards && o.Runs(SourceController) && o.Backend == (artifact.S3Options{}):
		return errors.New("--auto-shards needs a bucket from which each replica gets the artifacts of the others: " +
			"set --storage-backend-s3-endpoint and --storage-backend-s3-bucket")
	case o.RetryPeriod <= 0:
		return fmt.Errorf("--leader-election-retry-period is %s: choose more than 0", o.RetryPeriod)
	case o.RenewDeadline <= o.RetryPeriod*6/5:
		return fmt.Errorf("--leader-election-renew-deadline is %s: choose more than 1.2 times the value of "+
			"--leader-election-retry-period, which is %s", o.RenewDeadline, o.RetryPeriod)
	case o.LeaseDuration <= o.RenewDeadline:
		return fmt.Errorf("--leader-election-lease-duration is %s: choose more than the value of "+
			"--leader-election-renew-deadline, which is %s", o.LeaseDuration, o.RenewDeadline)
	case o.LeaseDuration > MaxLeaseDuration:
		return fmt.Errorf("--leader-election-lease-duration is %s: choose at most %s", o.LeaseDuration,
			MaxLeaseDuration)
	}
	return nil
}

func allKnown(flag string, names, known []string) error {
	for _, name := range names {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s: unknown value %q, choose from %s", flag, name, strings.Join(known, ", "))
		}
	}
	return nil
}
