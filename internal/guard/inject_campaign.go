//go:build campaign

package guard

import (
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"sync"
)

// panicsEnv is the environment variable that makes every kind of work panic, in a binary with the build tag campaign
// only. Its value is a seed.
const panicsEnv = "SLUICE_CAMPAIGN_PANICS"

const (
	injected    = 3 // panics of each kind of work
	injectRange = 4 // the first panic is in one of so many calls, by the seed
)

var injections = struct {
	sync.Mutex
	calls map[string]uint64
}{calls: map[string]uint64{}}

// inject panics in a few calls of each kind of work.
func inject(work string) {
	seed, err := strconv.ParseUint(os.Getenv(panicsEnv), 10, 64)
	if err != nil {
		return
	}
	injections.Lock()
	n := injections.calls[work]
	injections.calls[work]++
	injections.Unlock()
	h := fnv.New64a()
	fmt.Fprint(h, work, seed)
	if first := h.Sum64() % injectRange; n >= first && (n-first)%injectRange == 0 && n < injected*injectRange {
		panic("injected while " + work)
	}
}
