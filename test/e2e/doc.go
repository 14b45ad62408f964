// Package e2e runs the built sluice binary like a user.
package e2e
