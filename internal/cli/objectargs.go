package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-gitops/sluice/internal/model/kind"
)

// kindAnnotation marks the commands that take names of objects of one kind. Its value is the name of the kind.
const kindAnnotation = "kind"

// acceptObjects lets a command for objects of a kind accept KIND/NAME beside NAME.
func acceptObjects(c *cobra.Command, k *kind.Kind) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[kindAnnotation] = k.Name()
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		names := make([]string, len(args))
		for i, arg := range args {
			word, name, isObject := strings.Cut(arg, "/")
			switch of := kind.ByWord(word); {
			case !isObject:
				name = arg
			case of == nil:
				return usagef("unknown kind %q in %q: use NAME or %s/NAME", word, arg, k.Words[0])
			case of != k:
				return usagef("%q is not %s: run the command once for each kind", arg, k.WithArticle())
			case name == "":
				return usagef("the name is missing in %q", arg)
			}
			names[i] = name
		}
		return run(cmd, names)
	}
}

// commandOf returns the subcommand of a verb for objects of a kind, or nil.
func commandOf(verb *cobra.Command, k *kind.Kind) *cobra.Command {
	for _, sub := range verb.Commands() {
		if sub.Annotations[kindAnnotation] == k.Name() {
			return sub
		}
		if sub.Name() == k.Parent {
			return commandOf(sub, k)
		}
	}
	return nil
}

// areKinds reports whether an argument is a list of several kinds, such as ks,hr.
func areKinds(arg string) bool {
	words := strings.Split(arg, ",")
	return len(words) > 1 && !slices.ContainsFunc(words, func(w string) bool { return kind.ByWord(w) == nil })
}

// expandObject rewrites `VERB KIND/NAME` to `VERB KIND NAME`, such as `get ks/app` to `get kustomization app`, and
// `VERB KIND` to `VERB PARENT KIND`, such as `get gitrepos` to `get source git`. `get ks,hr` becomes `get all --kind
// ks,hr`.
func expandObject(root *cobra.Command, args []string) []string {
	verb, _, err := root.Find(args)
	if err != nil || !verb.HasSubCommands() {
		return args // an unknown command is reported when it is executed
	}
	for i, arg := range args {
		if verb.Name() == "get" && areKinds(arg) {
			return slices.Concat(args[:i], []string{"all", "--kind", arg}, args[i+1:])
		}
		word, name, isObject := strings.Cut(arg, "/")
		k := kind.ByWord(word)
		if k == nil || strings.Contains(name, "/") {
			continue
		}
		to := commandOf(verb, k)
		if to == nil {
			continue
		}
		words := strings.Fields(strings.TrimPrefix(to.CommandPath(), verb.CommandPath()))
		rest := args[i:]
		if !isObject {
			rest = args[i+1:]
		}
		expanded := slices.Concat(args[:i], words, rest)
		if found, _, err := root.Find(expanded); err == nil && found == to { // else it is the value of a flag
			return expanded
		}
	}
	return args
}
