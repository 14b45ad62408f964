package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

func exactlyOne(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("expected one name, got %d", len(args))
	}
	return nil
}

func atMostOne(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usagef("expected at most one name, got %d", len(args))
	}
	return nil
}

// namesOrAll expects either names or --all.
func namesOrAll(all *bool) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if (len(args) == 0) != *all {
			return usagef("expected either names or --all")
		}
		return nil
	}
}

// refuseAsUsage makes every error in the arguments of a command and its subcommands a usage error, also those that
// cobra finds: unknown subcommands of completion, and required flags that are not set.
func refuseAsUsage(c *cobra.Command) {
	check := c.Args
	if check == nil {
		check = cobra.ArbitraryArgs
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		var usage usageError
		if err != nil && !errors.As(err, &usage) {
			return usageError{err}
		}
		if err != nil {
			return err
		}
		return requiredFlags(cmd)
	}
	if !c.Runnable() { // cobra shows the help without a look at the arguments
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	for _, sub := range c.Commands() {
		refuseAsUsage(sub)
	}
}

// requiredFlags returns usage errors for required flags that are not set.
func requiredFlags(c *cobra.Command) error {
	var missing []error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil && !f.Changed {
			missing = append(missing, require(f.Name, ""))
		}
	})
	return errors.Join(missing...)
}
