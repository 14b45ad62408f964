package kustomization

import (
	"fmt"
	"strings"
	"testing"
)

const kubeConfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://10.0.0.1"%s}}]
users: [{name: u, user: {%s}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

func TestKubeConfigsThatReachBeyondThemselvesAreRefused(t *testing.T) {
	for says, c := range map[string]string{
		"runs a program": fmt.Sprintf(kubeConfig, "",
			`exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [-c, "touch /tmp/pwned"], interactiveMode: Never}`),
		"auth-provider": fmt.Sprintf(kubeConfig, "",
			`auth-provider: {name: gcp, config: {cmd-path: /bin/sh}}`),
		"names a file: tokenFile": fmt.Sprintf(kubeConfig, "",
			`tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token`),
		"client-certificate": fmt.Sprintf(kubeConfig, "",
			`client-certificate: /etc/kubernetes/admin.crt, client-key: /etc/kubernetes/admin.key`),
		"impersonates": fmt.Sprintf(kubeConfig, "", `token: secret-token, as: system:admin`),
		"certificate-authority": fmt.Sprintf(kubeConfig, ", certificate-authority: /etc/passwd",
			`token: secret-token`),
		"--insecure-kubeconfig-tls": fmt.Sprintf(kubeConfig, ", insecure-skip-tls-verify: true",
			`token: secret-token`),
		"no kubeconfig": "secret-token: [",
		"does not lead to a cluster": strings.Replace(fmt.Sprintf(kubeConfig, "", "token: secret-token"),
			"current-context: x", "current-context: other", 1),
	} {
		_, err := (&Remote{}).parse([]byte(c))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret-token") {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
	cfg, err := (&Remote{}).parse([]byte(fmt.Sprintf(kubeConfig, "", "token: secret-token")))
	if err != nil || cfg.Host != "https://10.0.0.1" || cfg.BearerToken != "secret-token" {
		t.Errorf("a kubeconfig of a token: %v, %v", cfg, err)
	}
	if _, err := (&Remote{AllowExec: true}).parse([]byte(fmt.Sprintf(kubeConfig, "",
		`exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}`))); err != nil {
		t.Errorf("a program that is allowed: %v", err)
	}
}

func FuzzKubeConfig(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(kubeConfig, "", "token: t")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		cfg, err := (&Remote{}).parse(raw)
		if err == nil && (cfg.ExecProvider != nil || cfg.BearerTokenFile != "" || cfg.CAFile != "" ||
			cfg.CertFile != "" || cfg.KeyFile != "" || cfg.Insecure) {
			t.Errorf("let through: %+v", cfg)
		}
	})
}
