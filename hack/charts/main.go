// Command charts writes the Helm chart and the kustomize base of Sluice, from the manifests that `sluice install`
// applies. Chart.yaml, values.yaml, its schema and _helpers.tpl of the chart are written by hand.
//
// usage: charts DIR, where DIR is the checkout
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// chartDir is the directory of the chart in a checkout.
const chartDir = "charts/sluice"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: charts DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "charts:", err)
		os.Exit(1)
	}
}

// run writes all generated files of a checkout, and removes those that are no longer generated.
func run(dir string) error {
	files, err := templates()
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, chartDir, "templates", "*.yaml"))
	for _, name := range old {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		return err
	}
	if err := write(filepath.Join(dir, chartDir, "templates"), files); err != nil {
		return err
	}
	if files, err = bases(); err != nil {
		return err
	}
	return write(filepath.Join(dir, "config"), files)
}

// write writes files, given by their names below a directory.
func write(dir string, files map[string]string) error {
	for name, content := range files {
		name = filepath.Join(dir, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644))
		if err != nil {
			return err
		}
	}
	return nil
}
