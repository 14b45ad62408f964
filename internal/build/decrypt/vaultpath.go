package decrypt

import (
	"errors"
	"net/url"
	"slices"
	"strings"
)

// reserved are the mounts of Vault that hold no keys for encryption, but the administration and the logins of Vault.
// They exist in each namespace of Vault, which a path may begin with.
var reserved = []string{"sys", "auth", "identity", "cubbyhole"}

// decryptPath returns the path of the API that decrypts with a key of a transit engine. Files name the engine and the
// key, so a path that would mean something else to the server is refused.
func decryptPath(engine, key string) (string, error) {
	mounts := strings.Split(strings.Trim(engine, "/"), "/")
	if slices.ContainsFunc(mounts, func(m string) bool { return slices.Contains(reserved, m) }) {
		return "", errors.New("engine_path names no transit engine")
	}
	path, err := escapeSegments(mounts)
	if err != nil {
		return "", errors.New("engine_path is not the path of a transit engine")
	}
	name, err := escapeSegments([]string{key})
	if err != nil {
		return "", errors.New("key_name is not the name of a key")
	}
	return path + "/decrypt/" + name, nil
}

var errSegment = errors.New("a segment of the path is invalid")

// escapeSegments joins the segments of a path. Only characters that servers and proxies read in one way are accepted.
func escapeSegments(segments []string) (string, error) {
	for i, s := range segments {
		if s == "" || strings.Trim(s, ".") == "" || strings.ContainsFunc(s, isUnsafe) {
			return "", errSegment
		}
		segments[i] = url.PathEscape(s)
	}
	return strings.Join(segments, "/"), nil
}

func isUnsafe(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune(`/\?#%;"<>^{}|`+"`", r)
}

// SameServer reports whether two addresses of Vault name the same server: scheme, host, port and path.
func SameServer(a, b string) bool {
	left, right := canonicalServer(a), canonicalServer(b)
	return left != "" && left == right
}

// canonicalServer returns an address in one form, empty if it is not the URL of a server.
func canonicalServer(address string) string {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || u.RawPath != "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	path := strings.TrimRight(u.Path, "/")
	if path != "" {
		if _, err := escapeSegments(strings.Split(path[1:], "/")); err != nil {
			return ""
		}
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port + path
}
