package risk

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
)

const (
	maxPodDepth = 12   // maps and lists around the containers of an object
	maxFacts    = 1000 // containers, images, rights and privileges of an object
)

var containerLists = []string{"containers", "initContainers", "ephemeralContainers"}

// pod is the specification of pods within an object.
type pod struct {
	path string
	spec map[string]any
}

// pods returns the specifications of pods in an object of any kind, by the lists of containers.
func pods(object map[string]any) []pod {
	var out []pod
	var walk func(at string, v any, depth int)
	walk = func(at string, v any, depth int) {
		if depth > maxPodDepth || len(out) >= maxFacts {
			return
		}
		switch v := v.(type) {
		case map[string]any:
			if slices.ContainsFunc(containerLists, func(k string) bool { return isList(v[k]) }) {
				out = append(out, pod{path: at, spec: v})
				return
			}
			for _, k := range slices.Sorted(maps.Keys(v)) {
				walk(at+"."+k, v[k], depth+1)
			}
		case []any:
			for n, item := range v {
				walk(fmt.Sprintf("%s[%d]", at, n), item, depth+1)
			}
		}
	}
	walk("", object["spec"], 0)
	walk("template", object["template"], 0) // of a PodTemplate
	return out
}

func isList(v any) bool {
	_, ok := v.([]any)
	return ok
}

// container is a container by its path and name.
type container struct {
	name   string
	fields map[string]any
}

// containers returns the containers of an object by path, list and name.
func containers(object map[string]any) map[string]container {
	out := map[string]container{}
	for _, p := range pods(object) {
		for _, list := range containerLists {
			items, _ := p.spec[list].([]any)
			for n, item := range items {
				c, ok := item.(map[string]any)
				if !ok || len(out) >= maxFacts {
					continue
				}
				name, _ := c["name"].(string)
				if name == "" {
					name = fmt.Sprintf("%s[%d]", list, n)
				}
				out[p.path+"/"+list+"/"+name] = container{name: name, fields: c}
			}
		}
	}
	return out
}

// changedImages returns the images that differ.
func changedImages(before, after map[string]any) []Image {
	old, now := containers(before), containers(after)
	keys := maps.Clone(old)
	maps.Copy(keys, now)
	var out []Image
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		o, _ := old[k].fields["image"].(string)
		n, _ := now[k].fields["image"].(string)
		if o != n {
			out = append(out, Image{Container: keys[k].name, Old: o, New: n, Downgrade: isDowngrade(o, n)})
		}
	}
	return out
}

// isDowngrade reports whether both images have the same name and versions as tags, and the new version is lower.
func isDowngrade(before, after string) bool {
	oldName, oldTag := splitImage(before)
	newName, newTag := splitImage(after)
	if oldName != newName || oldTag == "" || newTag == "" {
		return false
	}
	o, err1 := semver.NewVersion(oldTag)
	n, err2 := semver.NewVersion(newTag)
	return err1 == nil && err2 == nil && n.LessThan(o)
}

// splitImage splits an image into its name and tag. The tag is empty if there is none.
func splitImage(image string) (name, tag string) {
	image, _, _ = strings.Cut(image, "@")
	if at := strings.LastIndexByte(image, ':'); at > strings.LastIndexByte(image, '/') {
		return image[:at], image[at+1:]
	}
	return image, ""
}

// addedPrivileges returns what makes pods more powerful on their node after the change than before, in words.
func addedPrivileges(before, after map[string]any) []string {
	return without(privileges(after), privileges(before))
}

// privileges returns what gives the pods of an object power over their node.
func privileges(object map[string]any) []string {
	var out []string
	for _, p := range pods(object) {
		for _, k := range []string{"hostNetwork", "hostPID", "hostIPC"} {
			if p.spec[k] == true {
				out = append(out, "the pod uses "+k)
			}
		}
		volumes, _ := p.spec["volumes"].([]any)
		for _, v := range volumes {
			if host := child(v, "hostPath"); host != nil {
				out = append(out, fmt.Sprintf("the pod mounts %v of the node", host["path"]))
			}
		}
	}
	all := containers(object)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		c := all[k]
		security := child(c.fields, "securityContext")
		if security["privileged"] == true {
			out = append(out, fmt.Sprintf("container '%s' is privileged", c.name))
		}
		added, _ := child(security, "capabilities")["add"].([]any)
		for _, capability := range added {
			if capability != "NET_BIND_SERVICE" { // which the restricted profile allows
				out = append(out, fmt.Sprintf("container '%s' has capability %v", c.name, capability))
			}
		}
	}
	return out[:min(len(out), maxFacts)]
}

// child returns a field that is an object; nil if it is not one.
func child(v any, key string) map[string]any {
	m, _ := v.(map[string]any)
	out, _ := m[key].(map[string]any)
	return out
}

// without returns the texts of a list that another one does not contain, each once.
func without(list, other []string) []string {
	seen := map[string]bool{}
	for _, s := range other {
		seen[s] = true
	}
	var out []string
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
