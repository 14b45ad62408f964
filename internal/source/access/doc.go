// Package access gives sources and image controllers access to remotes as their objects specify it: Secrets with
// logins, certificates and proxies, workload identities of clouds, and the signatures that are trusted.
//
// It reads Secrets and ServiceAccounts and requests tokens from identity providers. It does not fetch content and does
// not contain a controller. All requests go through [egress.Policy].
package access

import (
	"crypto/sha256"
	"encoding/json"

	"github.com/sluice-gitops/sluice/internal/network/egress"
)

// Fingerprint returns a digest that differs when one of the parts differs. It does not retain the parts, which may be
// secrets. The parts must be plain values that encoding/json can marshal; it panics otherwise.
func Fingerprint(parts ...any) string {
	text, err := json.Marshal(parts)
	if err != nil {
		panic(err)
	}
	sum := sha256.Sum256(text)
	return string(sum[:])
}

// proxyURL returns the URL of the proxy, empty if there is none.
func proxyURL(o egress.Options) string {
	if o.Proxy == nil {
		return ""
	}
	return o.Proxy.String()
}
