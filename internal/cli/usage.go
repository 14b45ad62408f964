package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// usageError is an error in the arguments or flags of a command.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// require returns a usage error if a flag has no value.
func require(flag, value string) error {
	if value == "" {
		return usagef("--%s is missing", flag)
	}
	return nil
}

// oneOf returns a usage error if the value of a flag is not one of the choices.
func oneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return usagef("invalid value %q for --%s: choose from %s", value, flag, strings.Join(choices, ", "))
}

// optionalOneOf is oneOf for flags that may be empty.
func optionalOneOf(flag, value string, choices ...string) error {
	if value == "" {
		return nil
	}
	return oneOf(flag, value, choices...)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

func exactlyOne(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("expected one name, got %d. See %s --help", len(args), cmd.CommandPath())
	}
	return nil
}

func atMostOne(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("expected at most one name, got %d. See %s --help", len(args), cmd.CommandPath())
	}
	return nil
}

// namesOrAll expects either names or --all.
func namesOrAll(all *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if (len(args) == 0) != *all {
			return usagef("expected either names or --all. See %s --help", cmd.CommandPath())
		}
		return nil
	}
}
