package testenv

// These tests count the requests of everybody.
func init() { OwnCluster() }
