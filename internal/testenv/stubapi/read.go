package stubapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

func (q *query) key() types.NamespacedName {
	return types.NamespacedName{Namespace: q.namespace, Name: q.name}
}

func (s *Server) get(q *query) ([]byte, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := q.items[q.key()]; i != nil {
		return i.json, nil
	}
	return nil, apierrors.NewNotFound(q.gvr().GroupResource(), q.name)
}

// wantsMetadata reports whether a client asks for the metadata of objects only.
func wantsMetadata(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// metadataOnly returns the metadata of an object.
func metadataOnly(object []byte) []byte {
	var o struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if err := json.Unmarshal(object, &o); err != nil {
		panic(fmt.Sprintf("stored object: %v", err)) // it was encoded here
	}
	return fmt.Appendf(nil, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%s}`, o.Metadata)
}

// filterOf returns the filter of a list or watch.
func (q *query) filterOf(r *http.Request) (filter, error) {
	f := filter{namespace: q.namespace, name: q.name}
	var err error
	if f.labels, err = labels.Parse(r.URL.Query().Get("labelSelector")); err != nil {
		return f, apierrors.NewBadRequest(err.Error())
	}
	selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector"))
	if err != nil {
		return f, apierrors.NewBadRequest(err.Error())
	}
	for _, need := range selector.Requirements() {
		switch need.Field {
		case "metadata.name":
			f.name = need.Value
		case "metadata.namespace":
			f.namespace = need.Value
		default:
			return f, apierrors.NewBadRequest("field label not supported: " + need.Field)
		}
	}
	return f, nil
}

// list answers with the objects from a name on. Continue tokens are names, so that a page is of the state at its time.
func (s *Server) list(r *http.Request, q *query) ([]byte, error) {
	f, err := q.filterOf(r)
	if err != nil {
		return nil, err
	}
	options := r.URL.Query()
	limit, _ := strconv.Atoi(options.Get("limit")) // 0 for all
	if options.Get("resourceVersion") == "0" {
		limit = 0 // as from the watch cache of kube-apiserver
	}
	q.mu.Lock()
	all, version := q.all(), s.version.Load()
	q.mu.Unlock()
	from, partial := options.Get("continue"), wantsMetadata(r)
	next, n := "", 0
	var items bytes.Buffer
	for _, i := range all {
		if from != "" && i.String() < from || !f.matches(i) {
			continue
		}
		if limit > 0 && n == limit {
			next = i.String()
			break
		}
		if n++; n > 1 {
			items.WriteByte(',')
		}
		if partial {
			items.Write(metadataOnly(i.json))
		} else {
			items.Write(i.json)
		}
	}
	kind, apiVersion := q.Kind+"List", q.GroupVersion().String()
	if partial {
		kind, apiVersion = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	metadata := encode(metav1.ListMeta{ResourceVersion: fmt.Sprint(version), Continue: next})
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[%s]}`, kind, apiVersion, metadata,
		items.Bytes()), nil
}

// watching is a watch that a client has open.
type watching struct {
	*query
	filter   filter
	partial  bool
	bookmark bool
	out      http.ResponseWriter
	position int
}

// watch sends events until the client ends the watch, or its time is over.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, q *query) {
	f, err := q.filterOf(r)
	if err != nil {
		respondError(w, err)
		return
	}
	options := r.URL.Query()
	v := &watching{query: q, filter: f, partial: wantsMetadata(r), out: w,
		bookmark: options.Get("allowWatchBookmarks") == "true"}
	initial, version, err := s.begin(v, options.Get("resourceVersion"), options.Get("sendInitialEvents") == "true")
	if err != nil {
		respondError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	for _, i := range initial {
		if f.matches(i) {
			v.send(watch.Added, i.json)
		}
	}
	if options.Get("sendInitialEvents") == "true" {
		v.sendBookmark(version, `,"annotations":{"k8s.io/initial-events-end":"true"}`)
	}
	seconds, _ := strconv.Atoi(options.Get("timeoutSeconds"))
	if seconds == 0 {
		seconds = 3600
	}
	s.follow(r, v, time.After(time.Duration(seconds)*time.Second))
}

// begin sets the position of a watch, and returns the objects that it sends first.
func (s *Server) begin(v *watching, from string, initial bool) (all []*item, version uint64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if from == "" || from == "0" || initial {
		v.position = v.dropped + len(v.events)
		return v.all(), s.version.Load(), nil
	}
	since, err := strconv.ParseUint(from, 10, 64)
	if err != nil {
		return nil, 0, apierrors.NewBadRequest(err.Error())
	}
	position, known := v.after(since)
	if !known {
		return nil, 0, apierrors.NewResourceExpired("too old resource version: " + from)
	}
	v.position = position
	return nil, since, nil
}

// follow sends what happens.
func (s *Server) follow(r *http.Request, v *watching, end <-chan time.Time) {
	flush := http.NewResponseController(v.out)
	bookmarks := time.NewTicker(s.BookmarkInterval)
	defer bookmarks.Stop()
	for {
		events, next, changed, known := v.since(v.position)
		if !known {
			v.send(watch.Error, encode(apierrors.NewResourceExpired("the watch is too slow").Status()))
			return
		}
		for _, e := range events {
			if what, i := v.filter.see(e); i != nil {
				v.send(what, i.json)
			}
		}
		v.position = next
		if err := flush.Flush(); err != nil {
			return
		}
		select {
		case <-changed:
		case <-bookmarks.C:
			v.mu.Lock()
			version, newest := s.version.Load(), v.dropped+len(v.events) == v.position
			v.mu.Unlock()
			if newest && v.bookmark {
				v.sendBookmark(version, "")
			}
		case <-r.Context().Done():
			return
		case <-end:
			return
		}
	}
}

// send sends an event. Errors are seen when the watch is flushed.
func (v *watching) send(what watch.EventType, object []byte) {
	if v.partial && what != watch.Error {
		object = metadataOnly(object)
	}
	_, _ = fmt.Fprintf(v.out, "{\"type\":%q,\"object\":%s}\n", what, object)
}

func (v *watching) sendBookmark(version uint64, annotations string) {
	v.send(watch.Bookmark, fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"%s}}`, v.Kind,
		v.GroupVersion(), version, annotations))
}
