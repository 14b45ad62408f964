package receiver

import "time"

// Tests hold bodies back, on a machine that may stand still meanwhile.
func init() { readTimeout = 10 * time.Minute }
