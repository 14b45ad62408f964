package decrypt

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/getsops/sops/v3/config"
	"github.com/getsops/sops/v3/keys"
	"sigs.k8s.io/yaml"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// rules returns the keys that SOPS reads from a .sops.yaml for a file of the pages.
func rules(t *testing.T, content string) []keys.MasterKey {
	t.Helper()
	file := filepath.Join(t.TempDir(), ".sops.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	rule, err := config.LoadCreationRuleForFile(file, filepath.Join(filepath.Dir(file), "production/web/database.yaml"),
		nil)
	if err != nil || rule == nil || rule.EncryptedRegex != "^(data|stringData)$" {
		t.Fatalf("%s: %+v, %v", content, rule, err)
	}
	return slices.Concat(rule.KeyGroups...)
}

// TestSecretsPage encrypts a Secret by the rules of docs/secrets.md, with keys of the test in place of those of the
// page. The cluster can read it before, during and after the rotation.
func TestSecretsPage(t *testing.T) {
	blocks := testenv.Blocks(t, "secrets.md", "yml")
	if len(blocks) != 2 {
		t.Fatalf("the page has %d files", len(blocks))
	}
	const (
		oldKey = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
		newKey = "age1lggyhqrw2nlhcxprm67z43rta597azn8gknawjehu9d9dl0jq3yqqvfafg"
	)
	private, public := map[string]string{}, []string{}
	for entry, shown := range map[string]string{"identity.agekey": oldKey, "new.agekey": newKey} {
		identity, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		private[entry] = identity.String()
		public = append(public, shown, identity.Recipient().String())
	}
	replaced := strings.NewReplacer(public...)
	before := encrypt(t, "yaml", secret, nil, rules(t, replaced.Replace(blocks[0]))...)
	during := encrypt(t, "yaml", secret, nil, rules(t, replaced.Replace(blocks[1]))...)
	after := encrypt(t, "yaml", secret, nil, rules(t, replaced.Replace(
		strings.ReplaceAll(blocks[0], oldKey, newKey)))...)
	both := fromSecret(t, private)
	delete(private, "identity.agekey")
	onlyNew := fromSecret(t, private)
	for name, try := range map[string]struct {
		keys    *Keys
		content []byte
	}{
		"the old file with both entries":       {keys: both, content: before},
		"a file for both keys with both":       {keys: both, content: during},
		"a file for both keys with the new":    {keys: onlyNew, content: during},
		"the rotated file with the new entry":  {keys: onlyNew, content: after},
		"the rotated file before step 5 ended": {keys: both, content: after},
	} {
		plain, _, err := file(t, try.keys, "database.yaml", try.content)
		if err != nil || !strings.Contains(string(plain), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := file(t, onlyNew, "database.yaml", before); err == nil {
		t.Error("the new key reads a file that was encrypted for the old one")
	}
}

// TestKeyServicesPage reads the rules of docs/secrets-kms.md as SOPS does, and the entries of its Secrets and its list
// of servers as the controller does.
func TestKeyServicesPage(t *testing.T) {
	const page = "secrets-kms.md"
	var services []string
	for _, block := range testenv.Blocks(t, page, "yml") {
		for _, key := range rules(t, block) {
			services = append(services, key.TypeToIdentifier())
		}
	}
	if got := strings.Join(services, " "); got != "kms azure_kv gcp_kms hc_vault" {
		t.Errorf("the rules name keys of %s", got)
	}
	all := &Keys{}
	servers := 0
	for _, block := range testenv.Blocks(t, page, "yaml") {
		var o struct {
			Kind       string            `json:"kind"`
			Data       map[string]string `json:"data"`
			StringData map[string]string `json:"stringData"`
		}
		if err := yaml.Unmarshal([]byte(block), &o); err != nil {
			t.Fatal(err)
		}
		switch o.Kind {
		case "Secret":
			k := fromSecret(t, o.StringData)
			if len(k.Ignored) > 0 {
				t.Errorf("the Secret has entries without a key: %v", k.Ignored)
			}
			all.Fallback(k)
		case "ConfigMap":
			logins, err := ParseVaultLogins([]byte(o.Data["config.yaml"]))
			if err != nil {
				t.Fatal(err)
			}
			servers += len(logins.Instances)
		}
	}
	if all.AWS == nil || all.Azure == nil || all.GCP == nil || all.Vault == nil || servers != 1 {
		t.Errorf("the Secrets of the page lack a service, or %d servers", servers)
	}
}
