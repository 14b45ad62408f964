// Package allocation measures for tests what code allocates.
package allocation

import (
	"runtime"
	"testing"
)

// Bytes returns the bytes that a function allocates, with those of goroutines that run meanwhile.
func Bytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// PerRun returns the average number of allocations of a run of a function, without those of goroutines that run
// meanwhile: they are not in each of several measurements.
func PerRun(f func()) float64 {
	const runs, measurements = 100, 5
	least := testing.AllocsPerRun(runs, f)
	for range measurements - 1 {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}
