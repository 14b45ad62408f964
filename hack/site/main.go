// Command site builds the documentation as a static site with navigation, search and a switch between versions. It
// reads only files of the repository. Usage: site -root DIRECTORY -out DIRECTORY -version NAME
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", ".", "directory of the repository")
	out := flag.String("out", "bin/site", "directory of the site; versions that it contains are kept")
	version := flag.String("version", "", "name of this version, which is a directory of the site; by default the "+
		"newest tag, or main")
	flag.Parse()
	if *version == "" {
		*version = newestVersion(*root)
	}
	pages, err := build(*root, *out, *version)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d pages in %s/%s: open %[2]s/index.html\n", pages, *out, *version)
}
