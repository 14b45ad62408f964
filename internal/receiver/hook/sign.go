package hook

import (
	"crypto/hmac"
	"crypto/sha1" // what Nexus signs with
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
)

// signatures set the headers with which senders prove that they know the token. Requests of other types cannot be
// created by us.
var signatures = map[string]func(h http.Header, token string, body []byte){
	"generic":      func(http.Header, string, []byte) {}, // the path is the secret
	"dockerhub":    func(http.Header, string, []byte) {},
	"quay":         func(http.Header, string, []byte) {},
	"acr":          func(http.Header, string, []byte) {},
	"cdevents":     func(http.Header, string, []byte) {},
	"generic-hmac": func(h http.Header, t string, b []byte) { h.Set("X-Signature", "sha256="+mac(sha256.New, t, b)) },
	"github": func(h http.Header, t string, b []byte) {
		h.Set("X-Hub-Signature-256", "sha256="+mac(sha256.New, t, b))
	},
	"bitbucket": func(h http.Header, t string, b []byte) {
		h.Set("X-Hub-Signature", "sha256="+mac(sha256.New, t, b))
	},
	"nexus":        func(h http.Header, t string, b []byte) { h.Set("X-Nexus-Webhook-Signature", mac(sha1.New, t, b)) },
	"gitlab":       func(h http.Header, t string, _ []byte) { h.Set("X-Gitlab-Token", t) },
	"harbor":       func(h http.Header, t string, _ []byte) { h.Set("Authorization", t) },
	"generic-oidc": func(h http.Header, t string, _ []byte) { h.Set("Authorization", "Bearer "+t) },
}

// Sign returns the headers for a request of a type that [Checker.Verify] accepts. The event may be empty. For
// generic-oidc, token is the token of the caller.
func Sign(kind, event, token string, body []byte) (http.Header, error) {
	sign, known := signatures[kind]
	if !known {
		return nil, fmt.Errorf("requests of type %.20q can only be created by the original sender", kind)
	}
	h := http.Header{}
	sign(h, token, body)
	if names := events[kind]; len(names) > 0 && event != "" {
		h.Set(names[0], event)
	}
	return h, nil
}

func mac(h func() hash.Hash, key string, body []byte) string {
	m := hmac.New(h, []byte(key))
	m.Write(body)
	return hex.EncodeToString(m.Sum(nil))
}
