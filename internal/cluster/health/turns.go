package health

import "runtime"

// turns bounds how many checks are evaluated at the same time. An expression may need a second of a processor, and the
// watch of a namespace evaluates it for each of its objects.
type turns struct {
	own chan struct{} // of one watcher, so that its objects delay no checks of others
	all chan struct{} // of the process, so that processors are left for other work
}

// processors are those that evaluate checks of any watcher.
var processors = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

func newTurns(all chan struct{}) *turns { return &turns{own: make(chan struct{}, 1), all: all} }

// run calls f when it is its turn.
func (t *turns) run(f func()) {
	t.own <- struct{}{}
	defer func() { <-t.own }()
	t.all <- struct{}{}
	defer func() { <-t.all }()
	f()
}
