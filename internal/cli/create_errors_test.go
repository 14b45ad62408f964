package cli

import (
	"strings"
	"testing"
)

// invalidCreateLines are arguments of create. Names in braces stand for files.
var invalidCreateLines = map[string]struct {
	line string
	code int
	want string
}{
	"missing name": {
		line: "source git --url https://example.com/app",
		code: exitUsage,
		want: "expected one name, got 0",
	},
	"invalid name": {
		line: "source git App --url https://example.com/app",
		code: exitUsage,
		want: `invalid name "App"`,
	},
	"missing URL": {line: "source git app", code: exitUsage, want: "--url is missing"},
	"scp-like URL": {
		line: "source git app --url git@example.com:org/app",
		code: exitUsage,
		want: "ssh://git@HOST/PATH",
	},
	"password in the URL": {
		line: "source git app --url https://me:secret@example.com/app",
		code: exitUsage,
		want: "--username and --password",
	},
	"unknown git provider": {
		line: "source git app --url https://example.com/app --provider gcp",
		code: exitUsage,
		want: "choose from generic, aws, azure, github",
	},
	"username without password": {
		line: "source git app --url https://example.com/app --username me",
		code: exitUsage,
		want: "set both",
	},
	"username with SSH": {
		line: "source git app --url ssh://git@example.com/app --username me --export",
		code: exitUsage,
		want: "ssh uses keys",
	},
	"passphrase without key": {
		line: "source git app --url ssh://git@example.com/app --password x --export",
		code: exitUsage,
		want: "--private-key-file is missing",
	},
	"key with HTTPS": {
		line: "secret git login --url https://example.com/app --username me --password x --private-key-file k",
		code: exitUsage,
		want: "begins with ssh://",
	},
	"token and password": {
		line: "secret git login --url https://example.com/app --username me --password x --bearer-token y",
		code: exitUsage,
		want: "exclude each other",
	},
	"no credentials for a git server": {
		line: "secret git login --url https://example.com/app",
		code: exitUsage,
		want: "nothing to store",
	},
	"unknown key algorithm": {
		line: "secret git login --url ssh://git@127.0.0.1:1/app --ssh-key-algorithm dsa",
		code: exitUsage,
		want: "choose from ecdsa, ed25519, rsa",
	},
	"unreachable host": {
		line: "secret git login --url ssh://git@127.0.0.1:1/app --export",
		code: exitFailed,
		want: "--known-hosts-file",
	},
	"invalid key": {
		line: "secret git login --url ssh://git@127.0.0.1:1/app --private-key-file {cert}",
		code: exitFailed,
		want: "cannot parse the private key",
	},
	"missing file": {
		line: "secret git login --url ssh://git@127.0.0.1:1/app --private-key-file /none",
		code: exitFailed,
		want: "--private-key-file: open /none",
	},
	"empty standard input": {
		line: "secret proxy out --address http://proxy --username me --password -",
		code: exitFailed,
		want: "cannot read --password from standard input",
	},
	"registry with an HTTPS URL": {
		line: "source oci app --url https://example.com/app",
		code: exitUsage,
		want: "oci://HOST/PATH",
	},
	"unknown OCI provider": {
		line: "source oci app --url oci://example.com/app --provider github",
		code: exitUsage,
		want: "choose from generic, aws, azure, gcp",
	},
	"unknown layer operation": {
		line: "source oci app --url oci://example.com/app --layer-selector a/b:burn",
		code: exitUsage,
		want: "choose from extract, copy",
	},
	"signer without verification": {
		line: "source oci app --url oci://example.com/app --verify-secret-ref keys",
		code: exitUsage,
		want: "--verify-provider is missing",
	},
	"issuer without subject": {
		line: "source oci app --url oci://example.com/app --verify-provider cosign --verify-issuer x",
		code: exitUsage,
		want: "set both",
	},
	"unknown verification": {
		line: "source oci app --url oci://example.com/app --verify-provider pgp",
		code: exitUsage,
		want: "choose from cosign, notation",
	},
	"chart repository with SSH": {
		line: "source helm charts --url ssh://example.com",
		code: exitUsage,
		want: "choose from http, https, oci",
	},
	"OCI provider with HTTPS": {
		line: "source helm charts --url https://example.com --oci-provider aws",
		code: exitUsage,
		want: "begins with oci://",
	},
	"chart without source": {line: "source chart app --chart app", code: exitUsage, want: "KIND/NAME"},
	"unsupported chart source": {
		line: "source chart app --chart app --source OCIRepository/app",
		code: exitUsage,
		want: "choose from HelmRepository",
	},
	"unknown strategy": {
		line: "source chart app --chart app --source Bucket/app --reconcile-strategy Never",
		code: exitUsage,
		want: "choose from ChartVersion, Revision",
	},
	"missing bucket and endpoint": {line: "source bucket app", code: exitUsage, want: "--endpoint is missing"},
	"access key without secret key": {
		line: "source bucket app --bucket-name a --endpoint b --access-key c",
		code: exitUsage,
		want: "set both",
	},
	"unknown bucket provider": {
		line: "source bucket app --bucket-name a --endpoint b --provider tape",
		code: exitUsage,
		want: "choose from generic, aws, gcp, azure",
	},
	"registry without host": {
		line: "secret oci login --url oci:///app --username me --password x",
		code: exitUsage,
		want: "address of a registry",
	},
	"no credentials for a Helm repository": {line: "secret helm login", code: exitUsage, want: "nothing to store"},
	"no certificates":                      {line: "secret tls certs", code: exitUsage, want: "nothing to store"},
	"certificate without key": {line: "secret tls certs --tls-crt-file {cert}", code: exitUsage,
		want: "set both"},
	"certificate with another key": {
		line: "secret tls certs --tls-crt-file {cert} --tls-key-file {other}",
		code: exitFailed,
		want: "do not match",
	},
	"key instead of CA certificate": {
		line: "secret tls certs --ca-crt-file {key}",
		code: exitFailed,
		want: "contains no certificate",
	},
	"proxy without scheme": {
		line: "secret proxy out --address proxy:3128",
		code: exitFailed,
		want: "http://HOST:PORT",
	},
	"credentials in the proxy address": {
		line: "secret proxy out --address http://me:x@proxy:3128",
		code: exitUsage,
		want: "--username and --password",
	},
	"app ID that is not a number": {
		line: "secret githubapp app --app-id one --app-installation-id 2 " +
			"--app-private-key {key}",
		code: exitFailed,
		want: "no number in the key githubAppID",
	},
	"app without installation": {
		line: "secret githubapp app --app-id 1 --app-private-key {key}",
		code: exitFailed,
		want: "githubAppInstallationOwner",
	},
	"app with an unsupported key": {
		line: "secret githubapp app --app-id 1 --app-installation-id 2 --app-private-key {key}",
		code: exitFailed,
		want: "no RSA key in PEM",
	},
	"invalid trust policy": {
		line: "secret notation p --trust-policy-file {cert} --ca-cert-file {cert}",
		code: exitFailed,
		want: "cannot parse trustpolicy.json",
	},
	"root certificate with another extension": {
		line: "secret notation p --trust-policy-file {policy} --ca-cert-file {key}",
		code: exitUsage,
		want: ".crt or .pem",
	},
	"root certificates with equal names": {
		line: "secret notation p --trust-policy-file {policy} --ca-cert-file {cert},{cert}",
		code: exitUsage,
		want: "two files are named",
	},
	"invalid label": {
		line: "source git app --url https://example.com/app --label team",
		code: exitUsage,
		want: "--label",
	},
	"read-only kind": {line: "source external app", code: exitUsage, want: "unknown command"},
}

// TestCreateRejectsInvalidFlags checks that invalid flags are rejected before anything is stored.
func TestCreateRejectsInvalidFlags(t *testing.T) {
	cert, key := certificate(t)
	_, other := certificate(t)
	replacements := strings.NewReplacer("{cert}", cert, "{key}", key, "{other}", other, "{policy}", file(t, "p", "{}"))
	for name, c := range invalidCreateLines {
		t.Run(name, func(t *testing.T) {
			r := run(t, append([]string{"create"}, strings.Fields(replacements.Replace(c.line))...)...).
				wants(t, c.code, c.want)
			if strings.Contains(r.err, "secret@") || strings.Contains(r.err, "me:x") {
				t.Errorf("the error contains the password: %s", r.err)
			}
			if r.out != "" {
				t.Errorf("unexpected output %q", r.out)
			}
		})
	}
}
