// Package bench measures what changes cost: time, requests, bytes and memory. It has tests only; see its README.
package bench
