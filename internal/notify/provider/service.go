package provider

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/sluice-gitops/sluice/api/meta"
	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// fingerprint identifies an event: it is the same for each attempt. Services that deduplicate by it accept an
// event once.
func fingerprint(e event.Event) [sha256.Size]byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and times can always be encoded
	}
	return sha256.Sum256(b)
}

// objectKey identifies the object of an event across clusters: its UID, or a hash of its name for events without
// one. It has up to 64 characters.
func objectKey(e event.Event) string {
	o := e.InvolvedObject
	if uid := string(o.UID); uid != "" && len(uid) <= 2*sha256.Size {
		return uid
	}
	sum := sha256.Sum256([]byte(o.Kind + "/" + o.Namespace + "/" + o.Name + "/" + string(o.UID)))
	return hex.EncodeToString(sum[:])
}

// inconclusiveReasons are the reasons of info events that do not mean that the object is ready.
var inconclusiveReasons = []string{meta.ProgressingReason, "ProgressingWithRetry", meta.DependencyNotReadyReason,
	meta.GateClosedReason, meta.GateNotEvaluatedReason, meta.GateNotFoundReason, meta.GateOpenReason}

// reportsSuccess reports whether an event means that the object is ready, so that earlier failures are resolved.
func reportsSuccess(e event.Event) bool {
	return e.Severity == event.Info && !slices.Contains(inconclusiveReasons, e.Reason)
}

// login returns the Authorization header for the token, or for username and password; nil if the Secret has neither.
func (o Options) login() (header []string, err error) {
	if o.secret("token") != "" {
		token, err := o.token("the token")
		return []string{"Authorization", "Bearer " + token}, err
	}
	user, password := cmp.Or(o.secret("username"), o.Username), o.secret("password")
	if user == "" || password == "" {
		return nil, nil
	}
	return []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}, nil
}

// service is an API with optional authentication.
type service struct {
	client *client
	login  []string // name and value of the header; may be empty
}

// newService returns the API at the address. The path is appended if the address has none.
func newService(o Options, path string) (service, error) {
	login, err := o.login()
	if err != nil {
		return service{}, err
	}
	c, err := newClient(o, "")
	if err != nil {
		return service{}, err
	}
	if strings.Trim(c.address.Path, "/") == "" {
		c.address = c.url(path)
	}
	return service{c, login}, nil
}
