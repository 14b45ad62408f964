package kubeclient

import "time"

// The API server of the tests answers, though it may take longer than a process waits for it.
func init() { catchUpTimeout, removeTimeout = 3*time.Minute, 3*time.Minute }
