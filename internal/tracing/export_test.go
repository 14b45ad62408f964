package tracing

import "time"

// The tests count the spans, and their machine may stand still for longer than the end of a process waits.
func init() { flushTime = 3 * time.Minute }
