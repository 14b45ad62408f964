package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/model/kind"
	"github.com/sluice-gitops/sluice/internal/ui"
	"github.com/sluice-gitops/sluice/internal/ui/state"
)

// objectPath is the path of an object in the API of the web UI.
const objectPath = "objects/{kind}/{namespace}/{name}"

// reference names an object of Sluice.
type reference struct {
	Kind      string `json:"kind" jsonschema:"of Sluice, such as Kustomization, HelmRelease or Gate"`
	Namespace string `json:"namespace" jsonschema:"namespace of the object"`
	Name      string `json:"name" jsonschema:"name of the object"`
}

func (r reference) object() ui.Object {
	if k := kind.ByWord(r.Kind); k != nil {
		r.Kind = k.Name()
	}
	return ui.Object{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

func (s *Server) addReads() {
	add(s, tool{name: "why_not_live", title: "Why is a change not live?",
		text: "Say why a change is or is not live: the chain from the commit to healthy objects with the step that " +
			"blocks it, its cause in the cluster now, and what to do. Start here for one commit, image or object.",
		output: fields(map[string]*jsonschema.Schema{
			"chains": list("the way of the change to each object that deploys it", fields(
				map[string]*jsonschema.Schema{"target": item(), "live": boolean("the change runs"),
					"blocking": fields(nil), "steps": list("name, state, text and what to do", fields(nil))})),
			"object":   fields(nil),
			"problems": list("why the controllers may not work, so that the answer is old", text("")),
			"omitted":  number("chains that are not included"), "note": text("what is not known")}),
	}, s.whyNotLive)
	add(s, tool{name: "list_objects", title: "List objects",
		text: "List objects of Sluice with their state, reason and revision.",
		output: fields(map[string]*jsonschema.Schema{"items": list("objects by kind, namespace and name", item()),
			"total":    number("of all pages"),
			"problems": fields(nil)}),
	}, s.listObjects)
	add(s, tool{name: "get_object", title: "Get an object",
		text: "Get an object of Sluice: state, conditions, events, history, what waits at gates, spec and status. " +
			"Secrets are masked.",
		output: fields(map[string]*jsonschema.Schema{"item": item(), "conditions": list("", fields(nil)),
			"events": list("newest first", fields(nil)), "history": list("what was applied before", fields(nil)),
			"pending": fields(nil), "object": fields(nil), "why": text("which gates hold the change, and why")}),
	}, s.getObject)
	add(s, tool{name: "tree", title: "What an object made",
		text: "List what a Kustomization, HelmRelease or source made, down to pods, each with its health and depth.",
		output: fields(map[string]*jsonschema.Schema{
			"nodes": list("parents before their children", fields(map[string]*jsonschema.Schema{
				"depth": number("0 for the object itself"), "kind": text(""), "namespace": text(""), "name": text(""),
				"status": text("Current, InProgress, Failed, NotFound, Unknown, Terminating or Hidden"),
				"images": list("of a Pod", text("")), "containers": list("of a Pod", text(""))})),
			"total": number("of all pages"), "omitted": number("objects that are not included")}),
	}, s.tree)
	add(s, tool{name: "events", title: "Events of an object",
		text: "List the last Kubernetes Events of any object, newest first.",
		output: fields(map[string]*jsonschema.Schema{"events": list("", fields(map[string]*jsonschema.Schema{
			"at": text("time"), "type": text("Normal or Warning"), "reason": text(""), "message": text("")}))}),
	}, s.events)
	add(s, logsTool("logs"), s.logs)
	add(s, tool{name: "history", title: "Who changed what, when",
		text: "List revisions with their authors, newest first, and what waits at or runs them. With an object, list " +
			"what it applied or released before.",
		output: fields(map[string]*jsonschema.Schema{
			"changes": list("revisions with subject, author, time and objects", fields(nil)),
			"history": list("versions of the object", fields(nil)), "total": number("of all pages")}),
	}, s.history)
	add(s, tool{name: "compare_revisions", title: "Compare versions of an object",
		text: "Compare two versions of an object that history lists: what differs between two versions of a " +
			"HelmRelease, or the versions of another object between two revisions with links to the host.",
		output: fields(map[string]*jsonschema.Schema{"changes": list("differences by object", fields(nil)),
			"history": list("versions between the revisions", fields(nil)), "omitted": number("changed objects")}),
	}, s.compareRevisions)
}

func (s *Server) whyNotLive(ctx context.Context, u *ui.User, in struct {
	Query string `json:"query" jsonschema:"commit, revision, pull request, image, or object as Kind/namespace/name"`
}) (found, error) {
	if err := required("query", strings.TrimSpace(in.Query)); err != nil {
		return found{}, err
	}
	read, err := s.UI.Read(ctx, u, "why", ui.Object{}, url.Values{"q": {in.Query}})
	if err != nil {
		return found{}, err
	}
	out, err := object(read)
	if err != nil {
		return found{}, err
	}
	if problems := state.Problems(ctx, u.Client, s.UI.Namespace, s.UI.Now()); len(problems) > 0 {
		out["problems"] = problems
	}
	return found{value: out}, nil
}

type listIn struct {
	Kinds     []string `json:"kinds,omitempty" jsonschema:"only these kinds, such as Kustomization"`
	Namespace string   `json:"namespace,omitempty" jsonschema:"only this namespace"`
	States    []string `json:"states,omitempty" jsonschema:"only these: failed, waiting, progressing, suspended, ready"`
	Search    string   `json:"search,omitempty" jsonschema:"words that names, messages or revisions contain"`
	page
}

func (s *Server) listObjects(ctx context.Context, u *ui.User, in listIn) (found, error) {
	out, next, err := s.readPage(ctx, u, "items", in.query(), in.page)
	if err != nil {
		return found{}, err
	}
	if _, problems := s.UI.Model.Status(); len(problems) > 0 {
		out["problems"] = problems
	}
	return found{value: out, next: next}, nil
}

func (in listIn) query() url.Values {
	q := url.Values{"namespace": {in.Namespace}, "q": {in.Search}}
	for _, state := range in.States {
		q.Add("state", strings.ToLower(state))
	}
	for _, word := range in.Kinds {
		q.Add("kind", reference{Kind: word}.object().Kind)
	}
	return q
}

// readPage reads a page of the API of the web UI.
func (s *Server) readPage(ctx context.Context, u *ui.User, path string, q url.Values,
	p page) (out map[string]any, next string, err error) {

	size, after, err := p.bounds()
	if err != nil {
		return nil, "", err
	}
	q.Set("limit", strconv.Itoa(size))
	q.Set("after", after)
	read, err := s.UI.Read(ctx, u, path, ui.Object{}, q)
	if err != nil {
		return nil, "", err
	}
	if out, err = object(read); err != nil {
		return nil, "", err
	}
	last, _ := out["next"].(string)
	delete(out, "next")
	return out, cursorOf(last), nil
}

func (s *Server) getObject(ctx context.Context, u *ui.User, in reference) (found, error) {
	out, err := s.readObject(ctx, u, in)
	if err != nil {
		return found{}, err
	}
	return found{value: out}, nil
}

// readObject returns the page of an object with its YAML as fields, so that secrets are found by the names of fields.
func (s *Server) readObject(ctx context.Context, u *ui.User, in reference) (map[string]any, error) {
	read, err := s.UI.Read(ctx, u, objectPath, in.object(), nil)
	if err != nil {
		return nil, err
	}
	out, err := object(read)
	if err != nil {
		return nil, err
	}
	full, _ := out["yaml"].(string)
	parsed := map[string]any{}
	if err := yaml.Unmarshal([]byte(full), &parsed); err == nil {
		out["object"] = parsed
	}
	delete(out, "yaml")
	delete(out, "actions") // of people
	if gate, ok := out["gate"].(map[string]any); ok {
		delete(gate, "seen")
		delete(gate, "mayNot")
	}
	return out, nil
}

// node is an object in a flat tree.
type node struct {
	Depth int `json:"depth"`
	*state.Node
	Below any `json:"below,omitempty"` // hides that of the node
}

func (s *Server) tree(ctx context.Context, u *ui.User, in struct {
	reference
	page
}) (found, error) {
	read, err := s.UI.Read(ctx, u, objectPath+"/tree", in.object(), nil)
	if err != nil {
		return found{}, err
	}
	tree, ok := read.(*state.Tree)
	if !ok {
		return found{}, errors.New("the tree cannot be read")
	}
	nodes, next, err := pageOf(flat(tree.Top, 0, nil), in.page)
	return found{value: map[string]any{"nodes": nodes, "total": tree.Total, "omitted": tree.Omitted}, next: next}, err
}

func flat(n *state.Node, depth int, to []node) []node {
	if n == nil {
		return to
	}
	to = append(to, node{Depth: depth, Node: n})
	for _, b := range n.Below {
		to = flat(b, depth+1, to)
	}
	return to
}

func (s *Server) events(ctx context.Context, u *ui.User, in struct {
	Kind      string `json:"kind" jsonschema:"kind of any object, such as Kustomization or Deployment"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}) (found, error) {
	events, err := s.UI.Events(ctx, u, reference{Kind: in.Kind, Namespace: in.Namespace, Name: in.Name}.object())
	return found{value: map[string]any{"events": events}}, err
}

// maxLines bounds the lines of a log that a tool returns.
const maxLines = 1000

func logsTool(name string) tool {
	return tool{name: name, title: "Logs of a container",
		text:   "Get the last lines of a container. Credentials that look like such are masked.",
		output: fields(map[string]*jsonschema.Schema{"lines": list("oldest first", text(""))})}
}

type logsIn struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty" jsonschema:"needed if the pod has several"`
	Lines     int    `json:"lines,omitempty" jsonschema:"at most 1000; 100 by default"`
	Previous  bool   `json:"previous,omitempty" jsonschema:"of the container before its last restart"`
}

func (s *Server) logs(ctx context.Context, u *ui.User, in logsIn) (found, error) {
	lines := in.Lines
	if lines == 0 {
		lines = 100
	}
	if lines < 0 || lines > maxLines {
		return found{}, fmt.Errorf("the number of lines must be between 1 and %d", maxLines)
	}
	read, err := s.UI.Read(ctx, u, "logs", ui.Object{}, url.Values{"namespace": {in.Namespace}, "pod": {in.Pod},
		"container": {in.Container}, "lines": {strconv.Itoa(lines)}, "previous": {strconv.FormatBool(in.Previous)}})
	if err != nil {
		return found{}, err
	}
	out, err := object(read)
	if err != nil {
		return found{}, err
	}
	full, _ := out["text"].(string)
	all := []string{}
	if full != "" {
		all = strings.Split(strings.TrimSuffix(full, "\n"), "\n")
	}
	size := 0
	first := len(all) // the newest lines are kept
	for first > 0 && size+len(all[first-1]) < maxAnswer/2 && len(all)-first < maxItems {
		first--
		size += len(all[first])
	}
	return found{value: map[string]any{"lines": all[first:], "omitted": first}}, nil
}

func (s *Server) history(ctx context.Context, u *ui.User, in struct {
	Kind      string `json:"kind,omitempty" jsonschema:"with namespace and name: the history of this object"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	Search    string `json:"search,omitempty" jsonschema:"words of commits, authors and objects"`
	page
}) (found, error) {
	if in.Name == "" {
		out, next, err := s.readPage(ctx, u, "changes", url.Values{"q": {in.Search}, "namespace": {in.Namespace}},
			in.page)
		return found{value: out, next: next}, err
	}
	out, err := s.readObject(ctx, u, reference{Kind: in.Kind, Namespace: in.Namespace, Name: in.Name})
	if err != nil {
		return found{}, err
	}
	versions, _ := out["history"].([]any)
	part, next, err := pageOf(versions, in.page)
	return found{value: map[string]any{"history": part, "total": len(versions)}, next: next}, err
}

func (s *Server) compareRevisions(ctx context.Context, u *ui.User, in struct {
	reference
	From string `json:"from" jsonschema:"version of a HelmRelease, or a part of a revision"`
	To   string `json:"to" jsonschema:"version of a HelmRelease, or a part of a revision"`
}) (found, error) {
	if err := errors.Join(required("from", in.From), required("to", in.To)); err != nil {
		return found{}, err
	}
	if in.object().Kind == "HelmRelease" {
		read, err := s.UI.Read(ctx, u, objectPath+"/diff", in.object(), url.Values{"from": {in.From}, "to": {in.To}})
		return found{value: read}, err
	}
	out, err := s.readObject(ctx, u, in.reference)
	if err != nil {
		return found{}, err
	}
	versions, _ := out["history"].([]any)
	between, err := versionsBetween(versions, in.From, in.To)
	return found{value: map[string]any{"history": between}}, err
}

// versionsBetween returns the versions after the one that contains from, up to the one that contains to, newest first.
func versionsBetween(versions []any, from, to string) ([]any, error) {
	first, last := -1, -1
	for n, v := range versions {
		fields, _ := v.(map[string]any)
		name, _ := fields["name"].(string)
		if first < 0 && strings.Contains(name, to) {
			first = n
		}
		if last < 0 && strings.Contains(name, from) {
			last = n
		}
	}
	if first < 0 || last < 0 {
		return nil, errors.New("the history does not contain both revisions: the tool history lists them")
	}
	if first > last {
		first, last = last, first
	}
	return versions[first:last], nil
}
