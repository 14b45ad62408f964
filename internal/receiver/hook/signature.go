package hook

import (
	"context"
	"crypto/hmac"
	"crypto/sha1" // used by senders; secure in an HMAC
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"strings"
)

var hashes = map[string]func() hash.Hash{"sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}

// signed checks a header in the format <hash>=<hex> with the HMAC of the body.
func signed(header string) check {
	return func(_ context.Context, _ *Checker, t Trust, r Request) (Delivery, error) {
		name, signature, _ := strings.Cut(r.Header.Get(header), "=")
		if signature == "" {
			return Delivery{}, unauthorized("the %s header is missing or not in the format <hash>=<signature>", header)
		}
		h, known := hashes[name]
		if !known {
			return Delivery{}, unauthorized("the %s header has an unknown hash: use sha1, sha256 or sha512", header)
		}
		if !matches(h, t.Token, r.Body, signature) {
			return Delivery{}, unauthorized("the signature in the %s header does not match the body and the token "+
				"of the receiver", header)
		}
		return Delivery{}, nil
	}
}

var (
	github256 = signed("X-Hub-Signature-256")
	github1   = signed("X-Hub-Signature")
)

// github checks the SHA-256 signature if it is present, else the SHA-1 signature
// (https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries); Gitea sends the same headers.
func github(ctx context.Context, c *Checker, t Trust, r Request) (Delivery, error) {
	if r.Header.Get("X-Hub-Signature-256") != "" {
		return github256(ctx, c, t, r)
	}
	return github1(ctx, c, t, r)
}

// nexus checks an HMAC with SHA-1 without prefix: https://help.sonatype.com/en/working-with-hmac-payloads.html.
func nexus(_ context.Context, _ *Checker, t Trust, r Request) (Delivery, error) {
	const header = "X-Nexus-Webhook-Signature"
	if !matches(sha1.New, t.Token, r.Body, r.Header.Get(header)) {
		return Delivery{}, unauthorized("the signature in the %s header does not match the body and the token of "+
			"the receiver", header)
	}
	var p struct{ Action, RepositoryName string }
	return Delivery{}, decode(r.Body, &p, "a Nexus repository event", func() bool { return p.Action != "" })
}

// matches reports whether a signature in hex is the HMAC of the body, in constant time.
func matches(h func() hash.Hash, key string, body []byte, signature string) bool {
	got, err := hex.DecodeString(signature)
	if err != nil {
		return false
	}
	mac := hmac.New(h, []byte(key))
	mac.Write(body)
	return hmac.Equal(got, mac.Sum(nil))
}
