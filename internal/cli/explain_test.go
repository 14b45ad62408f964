package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestExplain(t *testing.T) {
	want := run(t, "explain", "SLU-1108").wants(t, exitOK).out
	if want != "SLU-1108 InvalidSemver\n\n"+
		"Cause: the range of versions or the filter in 'spec.ref' cannot be parsed.\n\n"+
		"Check: the message quotes it.\n\n"+
		"Cure: write a range such as '>=1.0.0 <2.0.0', in quotes.\n" {
		t.Errorf("prints %q", want)
	}
	if got := run(t, "explain", "InvalidSemver").wants(t, exitOK).out; got != want {
		t.Errorf("the reason prints %q", got)
	}
	for line := range strings.Lines(run(t, "explain", "SLU-1009").wants(t, exitOK).out) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > helpWidth {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
	if list := run(t, "explain").wants(t, exitOK).out; !strings.Contains(list, "SLU-1202   BuildFailed") {
		t.Errorf("the list is %s", list)
	}
	run(t, "explain", "SLU-9999").wants(t, exitUsage, `nothing is known about "SLU-9999"`)
	completed := run(t, cobra.ShellCompNoDescRequestCmd, "explain", "slu-120").wants(t, exitOK).out
	if !strings.Contains(completed, "SLU-1202\n") || strings.Contains(completed, "SLU-1301") {
		t.Errorf("completes %s", completed)
	}
}
