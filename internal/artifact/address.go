package artifact

import (
	"path"
	"strings"
	"time"
)

// latest is the name, without the extension, under which the newest artifact of an object is served.
const latest = "latest"

// address is the parsed path of a URL.
type address struct {
	key   Key    // zero if only a digest is given
	by    string // "file", "digest", "revision" or "at"
	value string
	at    time.Time
}

// parseAddress parses the path of a URL. It returns nil if the path is not one of an artifact.
func parseAddress(urlPath string) *address {
	parts := strings.SplitN(strings.TrimPrefix(urlPath, "/"), "/", 5)
	if len(parts) == 2 && parts[0] == "digest" {
		return &address{by: parts[0], value: parts[1]}
	}
	if len(parts) < 4 {
		return nil
	}
	a := &address{key: Key{Kind: parts[0], Namespace: parts[1], Name: parts[2]}, by: "file", value: parts[3]}
	if a.key.check() != nil || a.key.Kind != strings.ToLower(a.key.Kind) {
		return nil
	}
	if len(parts) == 4 {
		return a
	}
	a.by, a.value = parts[3], parts[4]
	switch a.by {
	case "digest", "revision":
		return a
	case "at":
		at, err := time.Parse(time.RFC3339, a.value)
		if err != nil {
			return nil
		}
		a.at = at
		return a
	default:
		return nil
	}
}

// isFile reports whether the address is the path of one artifact.
func (a *address) isFile() bool {
	return a.by == "file" && !strings.HasPrefix(a.value, latest+".")
}

// find returns the paths of the files that match an address. There is at most one, unless the address is a digest
// without a key.
func (s *Store) find(a *address) []string {
	if a.key == (Key{}) {
		return s.withDigest(a.value)
	}
	if a.by == "file" {
		relative := path.Join(a.key.dir(), a.value)
		if ext, ok := strings.CutPrefix(a.value, latest); ok && extensions[ext] != "" {
			relative = s.newest(a.key, ext)
		}
		if relative == "" || path.Dir(relative) != a.key.dir() {
			return nil
		}
		return []string{relative}
	}
	for _, f := range s.everywhere(a.key.dir()) {
		if a.by == "at" {
			if f.modified.After(a.at) {
				continue // stored after that time
			}
			return []string{f.path}
		}
		st, err := s.check(f.path)
		if err == nil && (a.by == "digest" && st.digest == a.value ||
			a.by == "revision" && isRevision(st.revision, a.value)) {
			return []string{f.path}
		}
	}
	return nil
}

// isRevision reports whether given identifies the revision. It is either the whole revision or the part after its
// last ':' or '@', such as a commit.
func isRevision(revision, given string) bool {
	return given != "" && (given == revision || given == revision[strings.LastIndexAny(revision, ":@")+1:])
}

// withDigest returns the paths of the verified files that have the digest.
func (s *Store) withDigest(digest string) (found []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for relative, st := range s.sound {
		if st.digest == digest {
			found = append(found, relative)
		}
	}
	return found
}

// keyOf returns the key of a file. Its kind is in lower case.
func keyOf(relative string) Key {
	parts := strings.Split(relative, "/")
	return Key{Kind: parts[0], Namespace: parts[1], Name: parts[2]}
}
