package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-gitops/sluice/internal/cli/migrate"
	"github.com/sluice-gitops/sluice/internal/cli/term"
)

// print writes the report of a migration.
func (o *migrateFlux) print(p *migrate.Plan) error {
	if o.output != "" {
		return o.printAs(o.output, p)
	}
	for _, section := range []struct {
		title string
		rows  [][]term.Cell
	}{
		{title: "controllers", rows: controllerRows(p)},
		{title: "settings", rows: settingRows(p)},
		{title: "definitions", rows: definitionRows(p)},
		{title: "objects", rows: objectRows(p)},
		{title: "applied objects", rows: comparisonRows(p)},
	} {
		if len(section.rows) < 2 {
			continue
		}
		fmt.Fprintf(o.Out, "%s\n", section.title)
		if err := term.NewTable(o.Out).Print(section.rows...); err != nil {
			return err
		}
		fmt.Fprintln(o.Out)
	}
	if p.IsInstance {
		fmt.Fprintf(o.Out, "as an installation\n%s\n\n", p.Starts.Install(p.Namespace))
	}
	fmt.Fprintln(o.Out, "steps")
	for i, step := range p.Steps {
		fmt.Fprintf(o.Out, "%d. %s\n", i+1, step)
	}
	switch s := p.Resumes; {
	case s != nil && s.Done:
		o.Step("an earlier migration is complete; this one extends it")
	case s != nil:
		o.Step("a migration was interrupted in step '%s'; with --yes it continues, with --rollback "+
			"it goes back", s.Step)
	}
	for _, warning := range p.Warnings {
		o.Warn("%s", warning)
	}
	for _, blocker := range p.Blockers {
		o.Fail(fmt.Errorf("%s", blocker))
	}
	return nil
}

func controllerRows(p *migrate.Plan) [][]term.Cell {
	rows := [][]term.Cell{term.Row("DEPLOYMENT", "VERSION", "REPLICAS", "MOVES")}
	for _, c := range p.Controllers {
		rows = append(rows, term.Row(c.Deployment, c.Version, strconv.Itoa(int(c.Replicas)), yesNo(c.Moves)))
	}
	return rows
}

func settingRows(p *migrate.Plan) [][]term.Cell {
	rows := [][]term.Cell{term.Row("DEPLOYMENT", "SETTING", "VALUE", "IN SLUICE")}
	for _, s := range p.Settings {
		if s.IsUsual {
			continue
		}
		becomes := s.Becomes
		if s.Note != "" {
			becomes = strings.TrimSpace(becomes + " (" + s.Note + ")")
		}
		rows = append(rows, term.Row(s.Controller, s.Name, s.Value, becomes))
	}
	return rows
}

func definitionRows(p *migrate.Plan) [][]term.Cell {
	rows := [][]term.Cell{term.Row("DEFINITION", "VERSIONS", "STORED")}
	for _, d := range p.Definitions {
		rows = append(rows, term.Row(d.Name, strings.Join(d.Versions, ","), strings.Join(d.StoredVersions, ",")))
	}
	return rows
}

// objectRows counts the objects by kind.
func objectRows(p *migrate.Plan) [][]term.Cell {
	type counts struct{ all, ready, suspended, moves int }
	byKind := map[string]*counts{}
	var kinds []string
	for _, obj := range p.Objects {
		c := byKind[obj.Kind]
		if c == nil {
			c = &counts{}
			byKind[obj.Kind], kinds = c, append(kinds, obj.Kind)
		}
		c.all++
		if obj.Ready == "True" {
			c.ready++
		}
		if obj.Suspended {
			c.suspended++
		}
		if obj.Moves {
			c.moves++
		}
	}
	rows := [][]term.Cell{term.Row("KIND", "OBJECTS", "READY", "SUSPENDED", "MOVE")}
	for _, k := range kinds {
		c := byKind[k]
		rows = append(rows, term.Row(k, strconv.Itoa(c.all), strconv.Itoa(c.ready), strconv.Itoa(c.suspended),
			strconv.Itoa(c.moves)))
	}
	return rows
}

func comparisonRows(p *migrate.Plan) [][]term.Cell {
	rows := [][]term.Cell{term.Row("APPLIED BY", "UNCHANGED", "CHANGES")}
	for _, c := range p.Comparisons {
		changes := "none"
		switch {
		case c.Failed != "":
			changes = "cannot be applied: " + term.OneLine(c.Failed)
		case c.Skipped != "":
			changes = "not compared: " + term.OneLine(c.Skipped)
		case len(c.Changes) > 0:
			changes = strings.Join(c.Changes, ", ")
		}
		rows = append(rows, term.Row(c.Kind+"/"+c.Namespace+"/"+c.Name, strconv.Itoa(c.Unchanged), changes))
	}
	return rows
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}
