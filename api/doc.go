// Package api holds the tests of all API groups. The types are in the folders below.
package api
