package testenv

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// Request is a request that the API server answered. In a filter, empty fields match anything.
type Request struct {
	Verb        string // get, list, watch, create, update, patch, delete, deletecollection
	Group       string
	Resource    string // plural, such as "deployments"; empty for other paths, such as /version
	Subresource string
	Namespace   string
	Name        string
	User        string // the user, or the impersonated one
	UserAgent   string // a filter matches a part of it
	URI         string // a filter matches a part of it, such as "dryRun=All"
	Code        int    // HTTP status

	Received time.Time // ignored in a filter
	Answered time.Time // when the response began or ended; ignored in a filter
}

// AuditLog holds the requests to the API server since its creation, without those of the playground itself.
type AuditLog struct {
	file  *os.File
	since time.Time // requests that were received before may be logged later

	mu   sync.Mutex
	from int64     // the offset of what is not read yet
	read []Request // all before
}

// NewAuditLog returns a log of the further requests to the cluster of [Cluster].
func NewAuditLog(tb testing.TB) *AuditLog {
	tb.Helper()
	file := use(tb).audit
	if file == nil {
		tb.Fatalf("the cluster of %s has no audit log: set %s to its file", kubeconfigEnv, auditLogEnv)
	}
	return newAuditLog(tb, file)
}

// OpenAuditLog returns a log of the further requests to a cluster with the audit log in a file.
func OpenAuditLog(tb testing.TB, name string) *AuditLog {
	tb.Helper()
	file, err := os.Open(name)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = file.Close() }) // it was only read
	return newAuditLog(tb, file)
}

func newAuditLog(tb testing.TB, file *os.File) *AuditLog {
	tb.Helper()
	log := &AuditLog{file: file, since: time.Now().Truncate(time.Microsecond)} // the precision of the log
	log.from = log.end(tb)
	return log
}

// Count returns the number of requests that match the filter.
func (a *AuditLog) Count(tb testing.TB, filter Request) int {
	tb.Helper()
	return len(a.Requests(tb, filter))
}

// Requests returns the requests that match the filter, in the order of their responses. A watch counts when it starts.
func (a *AuditLog) Requests(tb testing.TB, filter Request) []Request {
	tb.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readOn(tb)
	var found []Request
	for _, r := range a.read {
		if filter.matches(r) {
			found = append(found, r)
		}
	}
	return found
}

// readOn reads the lines that were written since it was called.
func (a *AuditLog) readOn(tb testing.TB) {
	tb.Helper()
	lines := bufio.NewReader(io.NewSectionReader(a.file, a.from, math.MaxInt64-a.from))
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return // an incomplete line is still being written
		}
		if err != nil {
			tb.Fatal(err)
		}
		a.from += int64(len(line))
		r, counted, err := parse(line)
		if err != nil {
			tb.Fatalf("audit log: %v: %s", err, line)
		}
		if counted && !r.Received.Before(a.since) {
			a.read = append(a.read, r)
		}
	}
}

// end returns the offset after the last complete line.
func (a *AuditLog) end(tb testing.TB) int64 {
	tb.Helper()
	size, err := a.file.Seek(0, io.SeekEnd)
	if err != nil {
		tb.Fatal(err)
	}
	const block = 64 << 10
	for buf := make([]byte, block); size > 0; size -= min(size, block) {
		at := max(0, size-block)
		n, err := a.file.ReadAt(buf[:size-at], at)
		if err != nil {
			tb.Fatal(err)
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return at + int64(i) + 1
		}
	}
	return 0
}

// entry holds the fields that are read of an audit.k8s.io Event.
type entry struct {
	Stage            string
	Verb             string
	RequestURI       string
	UserAgent        string
	User             struct{ Username string }
	ImpersonatedUser *struct{ Username string }
	ObjectRef        struct{ APIGroup, Resource, Subresource, Namespace, Name string }
	ResponseStatus   struct{ Code int }

	RequestReceivedTimestamp, StageTimestamp time.Time
}

// parse reads a line and reports whether the request is counted. Watches are counted when they start, other requests
// when they end.
func parse(line []byte) (Request, bool, error) {
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return Request{}, false, err
	}
	r := Request{
		Verb: e.Verb, URI: e.RequestURI, UserAgent: e.UserAgent, User: e.User.Username, Code: e.ResponseStatus.Code,
		Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
		Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name,
		Received: e.RequestReceivedTimestamp, Answered: e.StageTimestamp,
	}
	if e.ImpersonatedUser != nil {
		r.User = e.ImpersonatedUser.Username
	}
	started := e.Stage == "ResponseStarted"
	own := r.User == "system:apiserver" || strings.HasPrefix(r.UserAgent, "playground-")
	return r, !own && started == (r.Verb == "watch") &&
		(started || e.Stage == "ResponseComplete" || e.Stage == "Panic"), nil
}

func (f Request) matches(r Request) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(f.Verb, r.Verb) && is(f.Group, r.Group) && is(f.Resource, r.Resource) &&
		is(f.Subresource, r.Subresource) &&
		is(f.Namespace, r.Namespace) && is(f.Name, r.Name) && is(f.User, r.User) && (f.Code == 0 || f.Code == r.Code) &&
		strings.Contains(r.UserAgent, f.UserAgent) && strings.Contains(r.URI, f.URI)
}
