package review

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-gitops/sluice/internal/cluster/risk"
	"github.com/sluice-gitops/sluice/internal/review/preview"
	"github.com/sluice-gitops/sluice/internal/text/diff"
	"github.com/sluice-gitops/sluice/internal/text/excerpt"
)

// State is how far the review of a pull request is.
type State string

// States.
const (
	Waiting State = "waiting"
	Running State = "running" // the last result is of an older commit or cluster
	Done    State = "done"
	Failed  State = "failed"
)

// Summary is the review of a pull request in short.
type Summary struct {
	Repository string     `json:"repository"`
	Number     int        `json:"number"`
	Title      string     `json:"title"`
	Author     string     `json:"author"`
	URL        string     `json:"url"`
	Branch     string     `json:"branch"`
	Base       string     `json:"base"`
	Commit     string     `json:"commit"`
	State      State      `json:"state"`
	At         *time.Time `json:"at,omitempty"`      // of the review
	Seconds    float64    `json:"seconds,omitempty"` // that the review took
	Error      string     `json:"error,omitempty"`
	Sandboxed  bool       `json:"sandboxed,omitempty"` // the author is a stranger
	Offline    bool       `json:"offline,omitempty"`   // not compared with a cluster

	Risk          risk.Level     `json:"risk"`
	Passes        bool           `json:"passes"` // the check
	Text          string         `json:"text,omitempty"`
	Counts        preview.Counts `json:"counts,omitempty"`
	Files         int            `json:"files"`
	Applications  int            `json:"applications"`
	Clusters      int            `json:"clusters"`
	Namespaces    int            `json:"namespaces"`
	Held          int            `json:"held"` // objects that gates would hold
	MissingImages int            `json:"missingImages"`
	SchemaErrors  int            `json:"schemaErrors"`
}

// Detail is the whole review of a pull request.
type Detail struct {
	Summary
	Preview *preview.Result         `json:"preview,omitempty"`
	Gates   []*preview.AskingObject `json:"gates,omitempty"`
	Images  []Image                 `json:"images,omitempty"`
	Blast   Blast                   `json:"blast"`
	Schema  []Problem               `json:"schema,omitempty"`
	Places  map[string]string       `json:"places,omitempty"` // web pages of what declares objects, by Kind/name
	Pages   map[string]string       `json:"pages,omitempty"`  // web pages of changed files
}

// Blast is what a change reaches.
type Blast struct {
	Applications []string `json:"applications"`
	Clusters     []string `json:"clusters"`
	Namespaces   []string `json:"namespaces"`
}

// OwnCluster is the name of the cluster that the service runs for.
const OwnCluster = "this cluster"

// Problem is a part of an object that its kind does not accept.
type Problem struct {
	Object  string `json:"object"`
	Message string `json:"message"`
}

const (
	maxDiff    = 64 << 10 // bytes of an object's diff on the page
	maxObjects = 5000     // of a review, that have a diff
	maxJSON    = 8 << 20  // bytes of all diffs of a review
	maxNamed   = 1000     // files, places and problems of a review
)

// blastOf returns what a previewed change reaches.
func blastOf(r *preview.Result) Blast {
	b := Blast{Applications: []string{}, Clusters: []string{}, Namespaces: []string{}}
	for _, o := range r.Owners {
		b.Applications = append(b.Applications, o.Owner.String())
		b.Clusters = append(b.Clusters, cmp.Or(o.Cluster, OwnCluster))
		for _, object := range o.Objects {
			switch {
			case object.Namespace != "":
				b.Namespaces = append(b.Namespaces, object.Namespace)
			case object.Kind == "Namespace" && object.Group == "":
				b.Namespaces = append(b.Namespaces, object.Name)
			}
		}
	}
	for _, list := range []*[]string{&b.Applications, &b.Clusters, &b.Namespaces} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return b
}

// rejection finds errors of the API server, and of builds, about objects that their kind does not accept.
var rejection = regexp.MustCompile(`is invalid|typed patch|strict decoding error|unknown field|no matches for kind|` +
	`not installed in the cluster`)

// problemsOf returns the schema errors of a previewed change.
func problemsOf(r *preview.Result) []Problem {
	var out []Problem
	for _, o := range r.Owners {
		for _, object := range o.Objects {
			for _, field := range object.UnknownFields {
				out = append(out, Problem{Object: object.String(), Message: "the kind has no field " + field})
			}
		}
		if rejection.MatchString(o.Error) {
			out = append(out, Problem{Object: o.Owner.String(), Message: o.Error})
		}
	}
	return out[:min(len(out), maxNamed)]
}

// bound cuts what would make a result too large to keep.
func bound(r *preview.Result) {
	left, kept := maxJSON, 0
	for _, o := range r.Owners {
		o.Error, o.Note = excerpt.Bytes(o.Error, maxDiff), excerpt.Bytes(o.Note, maxDiff)
		for n := range o.Objects {
			object := &o.Objects[n]
			object.Diff = diff.Cut(object.Diff, min(maxDiff, left))
			left -= len(object.Diff)
			if kept++; kept > maxObjects {
				object.Diff, object.Fields = "", nil
			}
		}
	}
	if len(r.Files) > maxNamed {
		r.Notes = append(r.Notes, fmt.Sprintf("%d changed files are not listed", len(r.Files)-maxNamed))
		r.Files = r.Files[:maxNamed]
	}
	r.Notes = r.Notes[:min(len(r.Notes), maxNamed)]
}

var (
	kindLine = regexp.MustCompile(`^kind:\s*["']?([A-Za-z0-9]+)`)
	nameLine = regexp.MustCompile(`^\s+name:\s*["']?([A-Za-z0-9.:_-]+)`)
	topLine  = regexp.MustCompile(`^[A-Za-z]`)
)

// placesOf returns the lines at which a YAML file declares objects, by Kind/name.
func placesOf(content string) map[string]int {
	out := map[string]int{}
	kind, line, inMetadata, named := "", 0, false, ""
	flush := func() {
		if key := kind + "/" + named; kind != "" && named != "" && out[key] == 0 {
			out[key] = line
		}
		kind, line, named = "", 0, ""
	}
	for n, text := range strings.Split(content, "\n") {
		switch {
		case strings.HasPrefix(text, "---"):
			flush()
			inMetadata = false
		case topLine.MatchString(text):
			inMetadata = strings.HasPrefix(text, "metadata:")
			if m := kindLine.FindStringSubmatch(text); m != nil {
				kind, line = m[1], n+1
			}
		case inMetadata && named == "":
			if m := nameLine.FindStringSubmatch(text); m != nil {
				named = m[1]
			}
		}
	}
	flush()
	return out
}

// pack compresses a detail.
func pack(d *Detail) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(d); err != nil {
		return nil, err
	}
	err := z.Close()
	return bytes.Clone(b.Bytes()), err
}

// unpack returns a compressed detail as JSON.
func unpack(packed []byte) (json.RawMessage, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
