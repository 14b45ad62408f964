package decrypt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/getsops/sops/v3/keys"
)

const (
	secret = "apiVersion: v1\nkind: Secret\nmetadata:\n    name: s\nstringData:\n    # why\n    password: hunter2\n" +
		"    port: 8080\n    enabled: true\n"
	second = "apiVersion: v1\nkind: Secret\nmetadata:\n    name: t\nstringData:\n    password: hunter22\n"
)

func fromSecret(t testing.TB, data map[string]string) *Keys {
	t.Helper()
	raw := map[string][]byte{}
	for k, v := range data {
		raw[k] = []byte(v)
	}
	k, err := FromSecret(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestEveryFormatDecrypts(t *testing.T) {
	private, master := newAge(t)
	k := fromSecret(t, map[string]string{"identity.agekey": private, "unrelated": "x"})
	for _, c := range []struct{ name, format, plain, redacted string }{
		{name: "secret.yaml", format: "yaml", plain: secret,
			redacted: strings.NewReplacer("hunter2", "'***'", "8080", "0", "true", "false", "# why",
				"# ENC").Replace(secret)},
		{name: "two.yml", format: "yaml", plain: second + "---\n" + secret},
		{name: "config.json", format: "json",
			plain:    "{\n\t\"a\": {\n\t\t\"b\": [\n\t\t\t\"hunter2\",\n\t\t\t1\n\t\t]\n\t}\n}",
			redacted: "{\n\t\"a\": {\n\t\t\"b\": [\n\t\t\t\"***\",\n\t\t\t0\n\t\t]\n\t}\n}"},
		{name: "data.json", format: "json", plain: "{\n\t\"data\": \"hunter2\"\n}",
			redacted: "{\n\t\"data\": \"***\"\n}"},
		{name: "config.json.encrypted", format: "json", plain: "{\n\t\"a\": \"hunter2\"\n}"},
		{name: "token.encrypted", format: "binary", plain: "hunter2\x00\xff\n", redacted: "***"},
		{name: "config.env", format: "dotenv", plain: "PASSWORD=hunter2\nUSER=hunter2\n",
			redacted: "PASSWORD=***\nUSER=***\n"},
		{name: "config.env.encrypted", format: "dotenv", plain: "PASSWORD=hunter2\n"},
		{name: "app.ini", format: "ini", plain: "[db]\npassword = hunter2\n\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			content := encrypt(t, c.format, c.plain, nil, master)
			plain, decrypted, err := file(t, k, c.name, content)
			if err != nil || !decrypted {
				t.Fatalf("%v, %v", decrypted, err)
			}
			if strings.TrimSpace(string(plain)) != strings.TrimSpace(c.plain) {
				t.Errorf("got %q, want %q", plain, c.plain)
			}
			redacted, err := Redact(c.name, content, nil)
			if err != nil || bytes.Contains(redacted, []byte("hunter")) {
				t.Errorf("%s, %v", redacted, err)
			}
			if c.redacted != "" && !strings.HasPrefix(strings.TrimSpace(firstLines(redacted)),
				strings.TrimSpace(firstLines([]byte(c.redacted)))) {
				t.Errorf("redacted to %q, want %q", redacted, c.redacted)
			}
		})
	}
}

// file returns the decrypted content, and whether it was encrypted with SOPS.
func file(t *testing.T, k *Keys, name string, content []byte) (plain []byte, decrypted bool, err error) {
	t.Helper()
	p, err := k.File(t.Context(), name, content)
	if p == nil {
		return content, false, err
	}
	return p.Content, true, err
}

// firstLines returns a text without its comments. SOPS encrypts comments differently each time.
func firstLines(b []byte) string {
	var out []string
	for _, l := range strings.Split(string(b), "\n") {
		if !strings.Contains(l, "#") {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n")
}

func TestDocumentsEncryptedOneByOneDecryptInOneFile(t *testing.T) {
	private, master := newAge(t)
	k := fromSecret(t, map[string]string{"a.agekey": private})
	content := "kind: ConfigMap\napiVersion: v1\n---\n" + string(encrypt(t, "yaml", secret, nil, master)) + "---\n" +
		string(encrypt(t, "yaml", second, nil, master))
	plain, decrypted, err := file(t, k, "all.yaml", []byte(content))
	if err != nil || !decrypted {
		t.Fatal(decrypted, err)
	}
	for _, want := range []string{"kind: ConfigMap", "password: hunter2\n", "password: hunter22\n"} {
		if !strings.Contains(string(plain), want) {
			t.Errorf("%q is not in %s", want, plain)
		}
	}
	if strings.Contains(string(plain), "sops:") || strings.Contains(string(plain), "ENC[") {
		t.Errorf("the result still contains encrypted values: %s", plain)
	}
}

func TestWhatWasEncryptedIsListed(t *testing.T) {
	private, master := newAge(t)
	k := fromSecret(t, map[string]string{"a.agekey": private})
	for format, c := range map[string]struct{ content, want string }{
		"yaml":   {content: secret, want: "hunter2 8080 true"},
		"json":   {content: `{"a": {"b": ["hunter2", 12]}, "c": "open sesame"}`, want: "hunter2 12 open sesame"},
		"dotenv": {content: "A=hunter2\nB=x\n", want: "hunter2 x"},
		"binary": {content: "hunter2", want: "hunter2"},
	} {
		p, err := k.File(t.Context(), "f."+format, encrypt(t, format, c.content, nil, master))
		if err != nil {
			t.Fatal(format, err)
		}
		if got := strings.Join(p.Secrets, " "); got != c.want {
			t.Errorf("%s: %q, want %q", format, got, c.want)
		}
	}
}

func TestEveryLocalKeyDecrypts(t *testing.T) {
	dataKey := newDataKey(t)
	private := map[string]string{}
	masters := map[string]keys.MasterKey{}
	private["x.agekey"], masters["x.agekey"] = newAge(t)
	private["pq.agekey"], masters["pq.agekey"] = newHybrid(t)
	private["gpg.asc"], masters["gpg.asc"] = newOpenPGP(t, dataKey)
	other, _ := newAge(t)
	for entry := range private {
		content := encrypt(t, "yaml", secret, dataKey, masters[entry])
		plain, _, err := file(t, fromSecret(t, map[string]string{entry: private[entry], "other.agekey": other}),
			"s.yaml", content)
		if err != nil || !strings.Contains(string(plain), "hunter2") {
			t.Errorf("%s: %s, %v", entry, plain, err)
		}
		_, _, err = file(t, fromSecret(t, map[string]string{"other.agekey": other}), "s.yaml", content)
		if err == nil || !strings.Contains(err.Error(), masters[entry].ToString()) || errors.Is(err, ErrService) {
			t.Errorf("%s: with the key of another: %v", entry, err)
		}
	}
	content := encrypt(t, "yaml", secret, dataKey, masters["x.agekey"])
	if _, _, err := file(t, fromSecret(t, map[string]string{"age.key": private["x.agekey"]}), "s.yaml",
		content); err == nil || !strings.Contains(err.Error(), "The entries of the Secret must be named "+
		"*.agekey, *.asc or sops.*, but it has 'age.key'. Rename them, or add one of these keys") {
		t.Errorf("an entry with another name: %v", err)
	}
	t.Log("any one of the keys is enough")
	content = encrypt(t, "yaml", secret, dataKey, masters["gpg.asc"], masters["x.agekey"])
	if _, _, err := file(t, fromSecret(t, map[string]string{"x.agekey": private["x.agekey"]}), "s.yaml",
		content); err != nil {
		t.Error(err)
	}
}

func TestWhatIsNotEncryptedStaysAsItIs(t *testing.T) {
	k := &Keys{}
	for _, content := range []string{"", "plain", secret, "sops: {mac: x}\n", "text about sops and ENC[AES256_GCM,data",
		"a: [\nsops ENC[AES256_GCM,", "\x00\x01sops ENC[AES256_GCM,"} {
		got, decrypted, err := file(t, k, "f.yaml", []byte(content))
		if err != nil || decrypted || string(got) != content {
			t.Errorf("%q became %q, %v", content, got, err)
		}
	}
}

func TestChangedFilesAreRefused(t *testing.T) {
	private, master := newAge(t)
	k := fromSecret(t, map[string]string{"a.agekey": private})
	content := string(encrypt(t, "yaml", secret, nil, master))
	const (
		isDamaged = "Check it with 'sops decrypt', and encrypt it again if that fails as well"
		isChanged = "Make changes with 'sops edit', or encrypt the file again; with --mac-only-encrypted, plain " +
			"values may be changed afterwards. The controller flag --insecure-sops-ignore-mac disables this check"
	)
	hints := map[string]string{"a plain value": isChanged, "an encrypted value": isChanged,
		"a value that is gone": isChanged, "the authenticity code": isChanged, "the metadata": isDamaged,
		"an alias": isDamaged}
	for what, broken := range map[string]string{
		"a plain value": strings.Replace(content, "name: s", "name: evil", 1),
		"an encrypted value": strings.Replace(content, "password: ENC[AES256_GCM,data:",
			"password: ENC[AES256_GCM,data:AA", 1),
		"a value that is gone": content[:strings.Index(content, "    port:")] + content[strings.Index(content,
			"    enabled:"):],
		"the authenticity code": strings.Replace(content, "mac: ENC[AES256_GCM,data:",
			"mac: ENC[AES256_GCM,data:AA", 1),
		"the metadata": strings.Replace(content, "lastmodified: \"", "lastmodified: \"x", 1),
		"an alias":     strings.Replace(content, "name: s", "name: &a s\n    labels: *a", 1),
		"a key that is not age's": strings.Replace(content, "-----BEGIN AGE ENCRYPTED FILE-----",
			"-----BEGIN NOTHING-----", 1),
	} {
		if broken == content {
			t.Errorf("%s: the test changed nothing", what)
		}
		got, _, err := file(t, k, "s.yaml", []byte(broken))
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "s.yaml") ||
			!strings.HasSuffix(err.Error(), hints[what]) {
			t.Errorf("%s: %s, %v", what, got, err)
		}
	}
}

func TestChangesOfPlainPartsCanBeLetPass(t *testing.T) {
	private, master := newAge(t)
	k := fromSecret(t, map[string]string{"a.agekey": private})
	k.IgnoreMAC = true
	content := string(encrypt(t, "yaml", secret, nil, master))
	got, decrypted, err := file(t, k, "s.yaml", []byte(strings.Replace(content, "name: s", "name: other", 1)))
	if err != nil || !decrypted || !strings.Contains(string(got), "name: other") ||
		!strings.Contains(string(got), "hunter2") {
		t.Errorf("%s, %v", got, err)
	}
	broken := strings.Replace(content, "password: ENC[AES256_GCM,data:", "password: ENC[AES256_GCM,data:AA", 1)
	if got, _, err := file(t, k, "s.yaml", []byte(broken)); err == nil {
		t.Errorf("an encrypted value was changed: %s", got)
	}
}

func TestKeysThatCannotBeReadAreRefusedInSilence(t *testing.T) {
	locked := "AGE-PLUGIN-EVIL-1QQQQ"
	for entry, value := range map[string]string{
		"a.agekey": "hunter2", "b.agekey": locked, "c.agekey": "AGE-SECRET-KEY-1HUNTER2", "d.asc": "hunter2",
		"e.asc":  "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\naHVudGVyMg==\n-----END PGP PRIVATE KEY BLOCK-----\n",
		awsEntry: "aws_access_key_id: hunter2", azureEntry: "tenantId: hunter2",
		gcpEntry: `{"type": "external_account", "credential_source": {"file": "/hunter2"}}`,
	} {
		_, err := FromSecret(map[string][]byte{entry: []byte(value)}, nil)
		if err == nil || !strings.Contains(err.Error(), entry) ||
			strings.Contains(strings.ToLower(err.Error()), "hunter2") || strings.Contains(err.Error(), locked) {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

func TestNothingIsLogged(t *testing.T) {
	private, master := newAge(t)
	k := fromSecret(t, map[string]string{"a.agekey": private})
	content := strings.Replace(string(encrypt(t, "yaml", secret, nil, master)), "#ENC[", "# hunter3 ENC[", 1)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = w
	_, _, decryptErr := file(t, k, "s.yaml", []byte(content))
	os.Stderr = stderr
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(r)
	if err != nil || len(said) > 0 {
		t.Errorf("said %q, %v (decrypting: %v)", said, err, decryptErr)
	}
}

func TestTooManyKeysAreRefused(t *testing.T) {
	_, master := newAge(t)
	masters := make([]keys.MasterKey, maxKeys+1)
	for i := range masters {
		masters[i] = master
	}
	_, err := (&Keys{}).File(t.Context(), "s.yaml", encrypt(t, "yaml", secret, nil, masters...))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxKeys+1, " keys")) {
		t.Error(err)
	}
}

func FuzzFile(f *testing.F) {
	private, master := newAge(f)
	k := fromSecret(f, map[string]string{"a.agekey": private})
	for _, format := range []string{"yaml", "json", "dotenv", "ini", "binary"} {
		plain := map[string]string{"yaml": secret, "json": `{"a":"hunter2"}`, "dotenv": "A=hunter2\n",
			"ini": "[a]\nb = hunter2\n", "binary": "hunter2"}[format]
		f.Add("x."+format, encrypt(f, format, plain, nil, master))
	}
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if plain, err := k.File(ctx, name, content); err != nil && plain != nil {
			t.Error("got a plain text together with an error")
		}
		if _, err := Redact(name, content, nil); err != nil && !strings.Contains(err.Error(), "SOPS") {
			t.Error(err)
		}
	})
}

func FuzzFromSecret(f *testing.F) {
	private, _ := newAge(f)
	f.Add("a.agekey", []byte(private))
	f.Add("a.asc", []byte("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\naHVudGVyMg==\n"+
		"-----END PGP PRIVATE KEY BLOCK-----\n"))
	f.Add(awsEntry, []byte("aws_access_key_id: a\naws_secret_access_key: b\n"))
	f.Add(azureEntry, []byte(`{"tenantId": "a", "clientId": "b", "clientSecret": "c"}`))
	f.Add(gcpEntry, []byte(`{"type": "service_account", "client_email": "a@b.c"}`))
	f.Fuzz(func(t *testing.T, entry string, value []byte) {
		k, err := FromSecret(map[string][]byte{entry: value}, nil)
		if err == nil && k == nil {
			t.Error("got no keys and no error")
		}
		if err != nil && !strings.Contains(err.Error(), entry) {
			t.Errorf("the error does not name the entry: %v", err)
		}
	})
}

func FuzzParseVaultLogins(f *testing.F) {
	f.Add([]byte("instances:\n- address: https://vault.example.com\n  loginPath: auth/kubernetes/login\n"))
	f.Add([]byte("instances: [{address: 'http://x'}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if logins, err := ParseVaultLogins(text); err == nil && logins == nil {
			t.Error("got no logins and no error")
		}
	})
}
