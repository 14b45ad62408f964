package options

import (
	"strings"

	"github.com/spf13/pflag"
)

// Description describes a flag or a feature gate of the controllers.
type Description struct {
	Known   bool
	Ignored string // why it has no effect; "" if it has
	Default string
}

// DescribeFlag describes a flag of the controllers.
func DescribeFlag(name string) Description {
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	new(Options).BindFlags(set)
	f := set.Lookup(name)
	if f == nil {
		return Description{}
	}
	return Description{Known: true, Ignored: ignoredFlags[name], Default: strings.Trim(f.DefValue, "[]")}
}

// DescribeGate describes a feature gate.
func DescribeGate(name string) Description {
	meaning, known := featureGates[name]
	d := Description{Known: known}
	if strings.HasPrefix(meaning, "no effect: ") {
		d.Ignored = meaning
	}
	return d
}
