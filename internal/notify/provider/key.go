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

// fingerprint is the same for an event and each retry of it, and another for every other event: hosts that
// know it take an event once.
func fingerprint(e event.Event) [sha256.Size]byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // texts and times always are JSON
	}
	return sha256.Sum256(b)
}

// objectKey is the same for all events of an object, and in no two clusters for different ones: its UID, or
// what names it for third parties that post none. It has up to 64 characters.
func objectKey(e event.Event) string {
	o := e.InvolvedObject
	if uid := string(o.UID); uid != "" && len(uid) <= 2*sha256.Size {
		return uid
	}
	sum := sha256.Sum256([]byte(o.Kind + "/" + o.Namespace + "/" + o.Name + "/" + string(o.UID)))
	return hex.EncodeToString(sum[:])
}

// unsettled are the reasons of events of severity info that say nothing of how the object is.
var unsettled = []string{meta.ProgressingReason, "ProgressingWithRetry", meta.DependencyNotReadyReason,
	meta.GateClosedReason, meta.GateNotFoundReason, meta.GateOpenReason}

// settled tells whether an event says that the object is well, so that what failed before is over.
func settled(e event.Event) bool {
	return e.Severity == event.Info && !slices.Contains(unsettled, e.Reason)
}

// login returns the header of a token, or of a user and a password; empty if the Secret has neither.
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

// service is an API that is asked at one address, by a login if the Secret has one.
type service struct {
	client *client
	login  []string // the header
}

// newService returns that of the address, at the path of the API unless the address has a path of its own.
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
		c.address = c.at(path)
	}
	return service{c, login}, nil
}
