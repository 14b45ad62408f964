// Command dashboards writes the dashboards for Grafana.
//
// usage: dashboards DIR, where DIR is the directory to write them to
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	for _, d := range dashboards {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(d.model()); err != nil {
			return err
		}
		name := filepath.Join(dir, d.name+".json")
		if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil { //nolint:gosec // public
			return err
		}
	}
	return nil
}

// Layout of a dashboard: rows of panels of one height, on a grid of 24 columns.
const (
	columns   = 24
	rowHeight = 8
)

// dashboard is a page of panels.
type dashboard struct {
	name, title string
	variables   []variable
	rows        [][]panel // the panels of a row share its width
}

// variable is a choice at the top of a dashboard: the values of a label of a metric.
type variable struct{ name, metric, label string }

// panel shows the results of queries.
type panel struct {
	title, about string
	kind         string // stat, timeseries or table
	unit         string
	queries      []query
}

// query is an expression in PromQL, and what its series are called.
type query struct{ expr, legend string }

func (d dashboard) model() map[string]any {
	variables := []any{map[string]any{"name": "datasource", "type": "datasource", "query": "prometheus"}}
	for _, v := range d.variables {
		variables = append(variables, map[string]any{
			"name": v.name, "type": "query", "datasource": source(), "refresh": 2, "includeAll": true, "multi": true,
			"allValue": ".*", "current": map[string]any{"text": "All", "value": "$__all"},
			"query": map[string]any{"query": fmt.Sprintf("label_values(%s, %s)", v.metric, v.label), "refId": v.name},
		})
	}
	var panels []any
	for y, row := range d.rows {
		width := columns / len(row)
		for x, p := range row {
			position := map[string]any{"x": x * width, "y": y * rowHeight, "w": width, "h": rowHeight}
			panels = append(panels, p.model(len(panels)+1, position))
		}
	}
	return map[string]any{
		"uid": "sluice-" + d.name, "title": "Sluice / " + d.title, "tags": []string{"sluice", "gitops"},
		"schemaVersion": 39, "editable": true, "refresh": "30s", "timezone": "browser",
		"time":       map[string]any{"from": "now-6h", "to": "now"},
		"templating": map[string]any{"list": variables}, "panels": panels,
	}
}

func (p panel) model(id int, position map[string]any) map[string]any {
	var targets []any
	for n, q := range p.queries {
		t := map[string]any{"refId": string(rune('A' + n)), "datasource": source(), "expr": q.expr,
			"legendFormat": q.legend}
		if p.kind != "timeseries" {
			t["instant"] = true
		}
		if p.kind == "table" {
			t["format"] = "table"
		}
		targets = append(targets, t)
	}
	return map[string]any{
		"id": id, "type": p.kind, "title": p.title, "description": p.about, "datasource": source(),
		"gridPos":     position,
		"targets":     targets,
		"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.unit}, "overrides": []any{}},
	}
}

func source() map[string]any { return map[string]any{"type": "prometheus", "uid": "${datasource}"} }
