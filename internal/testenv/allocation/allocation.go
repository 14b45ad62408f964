// Package allocation measures for tests what code allocates.
package allocation

import "runtime"

// Bytes returns the bytes that a function allocates, with those of goroutines that run meanwhile.
func Bytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
