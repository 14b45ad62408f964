package inputprovider

import "time"

// A cluster of the tests that is reachable answers, though it may take long.
func init() { probeTimeout = 3 * time.Minute }
