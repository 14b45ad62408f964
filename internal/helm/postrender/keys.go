package postrender

import (
	"fmt"
	"regexp"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// switches are words that YAML 1.1 reads as true or false, also as a key.
const switches = "y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF"

var (
	hasSwitch = regexp.MustCompile(`(?m)(^|[\s{,-])(` + switches + `)[ \t]*:([ \t]|$)`)
	isSwitch  = regexp.MustCompile(`^(` + switches + `)$`)
)

// warn warns of a key without quotes that is read as true or false, and so gets another name.
func (d *document) warn(warn func(string)) {
	if !hasSwitch.MatchString(d.text) {
		return
	}
	var root yaml.Node
	if yaml.Unmarshal([]byte(d.text), &root) != nil {
		return
	}
	if key := switchKey(&root); key != "" {
		o := unstructured.Unstructured{Object: d.object}
		warn(fmt.Sprintf("%s '%s' in %s has the key %s without quotes, which YAML reads as true or false: write "+
			"\"%s\" in the template of the chart", o.GetKind(), o.GetName(), d.file, key, key))
	}
}

// switchKey returns a key without quotes that is a switch; empty if there is none.
func switchKey(n *yaml.Node) string {
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode && child.Style == 0 &&
			isSwitch.MatchString(child.Value) {
			return child.Value
		}
		if key := switchKey(child); key != "" {
			return key
		}
	}
	return ""
}
