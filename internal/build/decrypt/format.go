package decrypt

import (
	"bytes"
	"errors"
	"io"
	"path"
	"regexp"

	"github.com/getsops/sops/v3"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/stores/dotenv"
	"github.com/getsops/sops/v3/stores/ini"
	"github.com/getsops/sops/v3/stores/json"
	sopsyaml "github.com/getsops/sops/v3/stores/yaml"
	yaml "go.yaml.in/yaml/v3"

	"github.com/sluice-gitops/sluice/internal/limits/yamlsize"
)

// encryptedValue is the prefix of every value encrypted with SOPS.
const encryptedValue = "ENC[AES256_GCM,"

// format reads and writes one of the formats of SOPS.
type format interface {
	LoadEncryptedFile(in []byte) (sops.Tree, error)
	EmitPlainFile(branches sops.TreeBranches) ([]byte, error)
}

// part is a unit that SOPS encrypted: a file, or a document of a YAML file with several documents.
type part struct {
	content   []byte
	format    format
	encrypted bool
}

func join(parts []part) []byte {
	texts := make([][]byte, len(parts))
	for i, p := range parts {
		texts[i] = p.content
	}
	return bytes.Join(texts, []byte("---\n"))
}

func one(f format, content []byte) []part {
	return []part{{content: content, format: f, encrypted: true}}
}

// split splits content into encrypted and plain parts. It returns no parts if nothing is encrypted.
func split(name string, content []byte) ([]part, error) {
	if !bytes.Contains(content, []byte("sops")) || !bytes.Contains(content, []byte(encryptedValue)) {
		return nil, nil
	}
	stores := config.NewStoresConfig()
	switch {
	case dotenvMark.Match(content):
		return one(dotenv.NewStore(&stores.Dotenv), content), nil
	case iniMark.Match(content) && !bytes.HasPrefix(bytes.TrimSpace(content), []byte("{")):
		return one(ini.NewStore(&stores.INI), content), nil
	}
	docs, err := documents(content)
	if err != nil || !anyEncrypted(docs) {
		return nil, nil // not encrypted with SOPS; the parser of the file reports syntax errors
	}
	for _, d := range docs {
		// SOPS writes neither aliases, which could expand exponentially, nor equal keys
		if hasAlias(d.node) || yamlsize.CheckKeys(d.node) != nil {
			return nil, damaged(name)
		}
	}
	if bytes.HasPrefix(bytes.TrimSpace(content), []byte("{")) && !isYAML(name) {
		if path.Ext(name) != ".json" && onlyData(docs[0].node) {
			return one(json.NewBinaryStore(&stores.JSONBinary), content), nil
		}
		return one(json.NewStore(&stores.JSON), content), nil
	}
	store := sopsyaml.NewStore(&stores.YAML)
	if together(docs) {
		return one(store, content), nil
	}
	var parts []part
	for _, d := range docs {
		b, err := yaml.Marshal(d.node)
		if err != nil {
			return nil, damaged(name)
		}
		parts = append(parts, part{content: b, format: store, encrypted: d.mac != ""})
	}
	return parts, nil
}

var (
	dotenvMark = regexp.MustCompile(`(?m)^sops_mac=ENC\[`)
	iniMark    = regexp.MustCompile(`(?m)^\[sops\]\s*$`)
)

func isYAML(name string) bool { return path.Ext(name) == ".yaml" || path.Ext(name) == ".yml" }

// document is a document of a YAML or JSON file.
type document struct {
	node *yaml.Node
	mac  string // the MAC in the metadata of SOPS; empty if the document is not encrypted
}

func documents(content []byte) ([]document, error) {
	if err := yamlsize.CheckDirectives(content); err != nil {
		return nil, err
	}
	var out []document
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		if len(node.Content) == 0 || node.Content[0].ShortTag() == "!!null" {
			continue
		}
		d := document{node: node.Content[0]}
		if m := member(d.node, "sops"); m != nil {
			if mac := member(m, "mac"); mac != nil {
				d.mac = mac.Value
			}
		}
		out = append(out, d)
	}
}

func member(n *yaml.Node, key string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func anyEncrypted(docs []document) bool {
	for _, d := range docs {
		if d.mac != "" {
			return true
		}
	}
	return false
}

// together reports whether SOPS encrypted all documents as one file.
func together(docs []document) bool {
	for _, d := range docs {
		if d.mac != docs[0].mac {
			return false
		}
	}
	return true
}

// onlyData reports whether an object is the output of SOPS for a binary file.
func onlyData(n *yaml.Node) bool {
	return len(n.Content) == 4 && member(n, "data") != nil && member(n, "data").Kind == yaml.ScalarNode
}

func hasAlias(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		return true
	}
	for _, c := range n.Content {
		if hasAlias(c) {
			return true
		}
	}
	return false
}
