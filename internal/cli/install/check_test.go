package install

import (
	"errors"
	"slices"
	"testing"
)

func TestCheckSaysOnceToInstall(t *testing.T) {
	var got []string
	c := &checker{CheckRequest: CheckRequest{Fail: func(err error) { got = append(got, err.Error()) }}}
	for _, text := range []string{"a is missing. Run sluice install", "b failed. Raise --timeout",
		"c is missing. Run sluice install"} {
		c.problem(errors.New(text))
	}
	want := []string{"a is missing. Run sluice install", "b failed. Raise --timeout", "c is missing"}
	if !slices.Equal(got, want) || !c.failed {
		t.Errorf("reported %q, failed: %t", got, c.failed)
	}
}
