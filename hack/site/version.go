package main

import (
	"os/exec"
	"slices"
	"strings"
)

// unreleased is the version of a repository without tags.
const unreleased = "main"

// newestVersion returns the newest tag of a repository that is a release, or "main" if it has none.
func newestVersion(root string) string {
	out, err := exec.Command("git", "-C", root, "tag", "--list", "v[0-9]*").Output()
	if err != nil {
		return unreleased // not a repository, such as an unpacked archive
	}
	tags := strings.Fields(string(out))
	tags = slices.DeleteFunc(tags, func(tag string) bool { return !validVersion.MatchString(tag) })
	if len(tags) == 0 {
		return unreleased
	}
	return slices.MaxFunc(tags, compareVersions)
}
