// Package campaign runs experiments against the built binary under the limits of a deployment: hostile objects, hosts
// and API servers, kills, full disks, lost leases. docs/design/robustness.md lists them with their results.
package campaign
