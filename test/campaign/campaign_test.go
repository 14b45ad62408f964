package campaign

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

var (
	isFull = flag.Bool("campaign.full", false, "run as often as docs/design/robustness.md says, not the short form")
	scale  = flag.Float64("campaign.scale", 1, "factor for how often an experiment runs")
	seed   = flag.Uint64("campaign.seed", 13, "seed of all random choices; 0 for another one each time")
	first  = flag.Int("campaign.first", 0, "first iteration, to repeat a failure")
	limit  = flag.Duration("campaign.limit", 10*time.Minute, "begin no iteration of an experiment after this time")
)

// TestMain prints a summary of all experiments.
func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard())
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	code := m.Run()
	summary.print()
	os.Exit(code)
}

// experiment is one row of the table in docs/design/robustness.md. Its random choices depend on the seed only.
type experiment struct {
	*testing.T
	want  int // iterations
	count int // iterations that ran
	at    int // the iteration in work
	start time.Time

	mu    sync.Mutex
	notes []string
}

// begin begins an experiment with a number of iterations in its short and in its full form.
func begin(t *testing.T, short, full int) *experiment {
	t.Helper()
	n := full
	if !*isFull {
		testenv.Full(t)
		n = short
	}
	e := &experiment{T: t, want: max(1, int(math.Round(float64(n)**scale))), start: time.Now()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("failed at seed %d, iteration %d. Repeat it with:\n  SLUICE_TEST_FULL=1 go test ./test/campaign "+
				"-run '^%s$' -campaign.seed %d -campaign.first %d", *seed, e.at, t.Name(), *seed, e.at)
		}
		summary.add(e)
	})
	return e
}

// random returns the random choices of an iteration. Those of the preparation are of iteration -1.
func (e *experiment) random(iteration int) *rand.Rand {
	return rand.New(rand.NewPCG(*seed, uint64(iteration)))
}

// each runs the iterations, until one fails or the time limit is reached.
func (e *experiment) each(do func(i int, random *rand.Rand)) {
	for i := *first; i < e.want && !e.Failed() && time.Since(e.start) < *limit; i++ {
		e.at = i
		do(i, e.random(i))
		e.count++
	}
	if e.count == 0 {
		e.Errorf("no iteration ran within %s", *limit)
	}
}

// note adds a measurement to the summary.
func (e *experiment) note(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

// results collects the rows of the summary.
type results struct {
	mu   sync.Mutex
	rows []string
}

var summary results

func (r *results) add(e *experiment) {
	result := "passed"
	switch {
	case e.Failed():
		result = "FAILED"
	case e.Skipped():
		result = "skipped"
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	name := strings.TrimPrefix(e.Name(), "TestCampaign")
	r.rows = append(r.rows, fmt.Sprintf("%s\t%s\t%d of %d\t%s\t%s", name, result, e.count, e.want,
		time.Since(e.start).Round(time.Second), strings.Join(e.notes, "; ")))
}

func (r *results) print() {
	if len(r.rows) == 0 {
		return
	}
	form := "short form"
	if *isFull {
		form = "full form"
	}
	fmt.Printf("\nCampaign, %s, seed %d\n", form, *seed)
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "experiment\tresult\titerations\ttime\tmeasured")
	for _, row := range r.rows {
		fmt.Fprintln(w, row)
	}
	_ = w.Flush()
}
