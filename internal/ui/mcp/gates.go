package mcp

import (
	"context"
	"net/url"
	"slices"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sluice-gitops/sluice/internal/ui"
)

// gateIn selects gates.
type gateIn struct {
	Namespace string `json:"namespace,omitempty" jsonschema:"only gates of this namespace"`
	Gate      string `json:"gate,omitempty" jsonschema:"only the gate of this name"`
	page
}

func (s *Server) addGates() {
	add(s, tool{name: "gate_status", title: "Gates, and what waits",
		text: "List gates, those where something waits first: whether each is open and why, its rules, whose " +
			"approvals they require, and the objects that wait. Only people decide about gates.",
		output: fields(map[string]*jsonschema.Schema{"gates": list("", fields(map[string]*jsonschema.Schema{
			"item": item(), "waiting": list("objects that wait", fields(nil)),
			"omitted": number("objects that wait and are not listed")}))}),
	}, s.gateStatus)
	add(s, tool{name: "pending_changes", title: "Changes that wait",
		text: "List the objects that wait at gates: revision, risk, what holds the change, and what it would change, " +
			"with secrets masked.",
		output: fields(map[string]*jsonschema.Schema{"changes": list("", fields(map[string]*jsonschema.Schema{
			"id": text("Kind/namespace/name"), "gates": list("IDs of the gates", text("")),
			"why": text("what holds the change"), "pending": fields(nil)})), "total": number("of all pages")}),
	}, s.pendingChanges)
	add(s, tool{name: "simulate_gates", title: "What gates will decide",
		text: "Without a change: when each gate will be open in the next days. With a branch or files: what each " +
			"gate would decide about that change, by which rule, and whose approvals it would take.",
		output: fields(map[string]*jsonschema.Schema{"gates": list("periods in which each gate is open", fields(nil)),
			"objects": list("decisions about the change, by object", fields(nil)),
			"notes":   list("what is not known", text("")), "now": text("time"), "omitted": number("gates")}),
		timeout: previewTimeout}, s.simulateGates)
}

// readGates returns the gates of the inbox of the UI, without what only people who decide need.
func (s *Server) readGates(ctx context.Context, u *ui.User, in gateIn) ([]any, error) {
	read, err := s.UI.Read(ctx, u, "gates", ui.Object{}, nil)
	if err != nil {
		return nil, err
	}
	out, err := object(read)
	if err != nil {
		return nil, err
	}
	gates, _ := out["gates"].([]any)
	return slices.DeleteFunc(gates, func(v any) bool {
		gate, _ := v.(map[string]any)
		delete(gate, "seen")
		delete(gate, "mayNot")
		item, _ := gate["item"].(map[string]any)
		return in.Namespace != "" && item["namespace"] != in.Namespace || in.Gate != "" && item["name"] != in.Gate
	}), nil
}

func (s *Server) gateStatus(ctx context.Context, u *ui.User, in gateIn) (found, error) {
	gates, err := s.readGates(ctx, u, in)
	if err != nil {
		return found{}, err
	}
	part, next, err := pageOf(gates, in.page)
	return found{value: map[string]any{"gates": part}, next: next}, err
}

func (s *Server) pendingChanges(ctx context.Context, u *ui.User, in gateIn) (found, error) {
	gates, err := s.readGates(ctx, u, in)
	if err != nil {
		return found{}, err
	}
	var all []map[string]any
	for _, v := range gates {
		gate, _ := v.(map[string]any)
		item, _ := gate["item"].(map[string]any)
		waiting, _ := gate["waiting"].([]any)
		for _, w := range waiting {
			change, _ := w.(map[string]any)
			known := slices.IndexFunc(all, func(c map[string]any) bool { return c["id"] == change["id"] })
			if known < 0 {
				change["gates"] = []any{item["id"]}
				all = append(all, change)
				continue
			}
			at, _ := all[known]["gates"].([]any)
			all[known]["gates"] = append(at, item["id"])
		}
	}
	part, next, err := pageOf(all, in.page)
	return found{value: map[string]any{"changes": part, "total": len(all)}, next: next}, err
}

const defaultDays = 14

func (s *Server) simulateGates(ctx context.Context, u *ui.User, in struct {
	Days int `json:"days,omitempty" jsonschema:"how many days ahead, at most 60; 14 by default"`
	Change
}) (found, error) {
	if in.isGiven() {
		if s.Changes == nil {
			return found{}, errNoClone
		}
		c, err := in.check()
		if err != nil {
			return found{}, err
		}
		decisions, err := s.Changes.SimulateGates(ctx, u, c)
		return found{value: decisions}, err
	}
	days := in.Days
	if days == 0 {
		days = defaultDays
	}
	read, err := s.UI.Read(ctx, u, "calendar", ui.Object{}, url.Values{"days": {strconv.Itoa(days)}, "back": {"1"}})
	return found{value: read}, err
}
