package term

import (
	"io"
	"strings"
	"testing"
)

// TestTablesFitTerminalsOnly checks that columns are left out from the right on a terminal of 80 columns, and that a
// pipe gets every column.
func TestTablesFitTerminalsOnly(t *testing.T) {
	long := strings.Repeat("m", 200)
	rows := [][]Cell{
		Row("NAMESPACE", "NAME", "REVISION", "SUSPENDED", "READY", "MESSAGE"),
		Row("apps", strings.Repeat("n", 20), strings.Repeat("r", 20), "False", "True", long),
	}
	fitted, room := (&Screen{Writer: io.Discard, terminal: true}).FitScreen(rows, 2)
	var header []string
	for _, c := range fitted[0] {
		header = append(header, c.Text)
	}
	got := strings.Join(header, " ")
	if got != "NAMESPACE NAME READY MESSAGE" || (&Table{}).widthBefore(fitted)+room != defaultWidth {
		t.Errorf("a terminal gets %s, and %d cells for messages", got, room)
	}
	if fitted[1][3].Text != long || len(rows[1]) != 6 {
		t.Error("the rows of the caller are changed")
	}
	if piped, room := (&Screen{Writer: io.Discard}).FitScreen(rows, 2); room != 0 || len(piped[0]) != 6 {
		t.Errorf("a pipe gets %d columns, and %d cells for messages", len(piped[0]), room)
	}
	narrow := [][]Cell{Row("NAME", "READY", "MESSAGE"), Row(strings.Repeat("n", 200), "True", long)}
	if fitted, room := (&Screen{Writer: io.Discard, terminal: true}).FitScreen(narrow, 1); len(fitted[0]) != 3 ||
		room != minLast {
		t.Errorf("a long name leaves %d columns and %d cells", len(fitted[0]), room)
	}
}

// TestRowsThatFollowKeepTheColumns prints a table in two parts, as a watch does.
func TestRowsThatFollowKeepTheColumns(t *testing.T) {
	var out strings.Builder
	table := NewTable(&Screen{Writer: &out, terminal: true})
	for _, rows := range [][][]Cell{
		{Row("NAME", "REVISION", "SUSPENDED", "READY", "MESSAGE"),
			Row("web", strings.Repeat("r", 50), "False", "True", "applied")},
		{Row("api", "main@sha1:1", "False", "False", "failed")},
		{Row("a-longer-name", strings.Repeat("r", 90), "True", "False", "failed again")},
	} {
		fitted, _ := table.FitScreen(rows, 1)
		if err := table.Print(fitted...); err != nil {
			t.Fatal(err)
		}
	}
	want := "NAME   READY   MESSAGE\n" +
		"web    True    applied\n" +
		"api    False   failed\n" +
		"a-longer-name   False   failed again\n"
	if out.String() != want {
		t.Errorf("a terminal gets\n%s", out.String())
	}
}

func TestMessagesOfSeveralLines(t *testing.T) {
	rows := func() [][]Cell {
		return [][]Cell{Row("OBJECT", "MESSAGE"), Row("Kustomization/app", "short"),
			Row("Kustomization/app", "1 created, 1 configured\nConfigMap/a configured:\n  ~ data.x: 1 → 2\n"),
			Row("Kustomization/app", strings.Repeat("word ", 20))}
	}
	print := func(terminal bool) string {
		var out strings.Builder
		if err := NewTable(&Screen{Writer: &out, terminal: terminal}).PrintMessages(rows()...); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := "OBJECT              MESSAGE\n" +
		"Kustomization/app   short\n" +
		"Kustomization/app\n" +
		"    1 created, 1 configured\n" +
		"    ConfigMap/a configured:\n" +
		"      ~ data.x: 1 → 2\n" +
		"Kustomization/app\n" +
		"    " + strings.TrimSpace(strings.Repeat("word ", 15)) + "\n" +
		"    " + strings.TrimSpace(strings.Repeat("word ", 5)) + "\n"
	if got := print(true); got != want {
		t.Errorf("a terminal gets\n%s", got)
	}
	got := print(false)
	if strings.Count(got, "\n") != 4 || !strings.Contains(got, "1 configured; ConfigMap/a configured: ~ data.x") {
		t.Errorf("a pipe gets\n%s", got)
	}
}
