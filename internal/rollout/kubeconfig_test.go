package rollout

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

const execUser = `exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, ` +
	`args: [-c, "touch /tmp/pwned"], interactiveMode: Never}`

func TestKubeConfigRejectsProgramsFilesAndImpersonation(t *testing.T) {
	withToken := fmt.Sprintf(kubeConfig, "", "token: secret-token")
	for name, c := range map[string]struct{ config, want string }{
		"exec": {config: fmt.Sprintf(kubeConfig, "", execUser), want: "runs a program"},
		"auth provider": {
			config: fmt.Sprintf(kubeConfig, "", `auth-provider: {name: gcp, config: {cmd-path: /bin/sh}}`),
			want:   "auth-provider",
		},
		"token file": {
			config: fmt.Sprintf(kubeConfig, "", `tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token`),
			want:   "tokenFile",
		},
		"client certificate file": {
			config: fmt.Sprintf(kubeConfig, "",
				`client-certificate: /etc/kubernetes/admin.crt, client-key: /etc/kubernetes/admin.key`),
			want: "client-certificate",
		},
		"impersonation": {
			config: fmt.Sprintf(kubeConfig, "", `token: secret-token, as: system:admin`),
			want:   "impersonates",
		},
		"certificate authority file": {
			config: fmt.Sprintf(kubeConfig, ", certificate-authority: /etc/passwd", `token: secret-token`),
			want:   "certificate-authority",
		},
		"insecure TLS": {
			config: fmt.Sprintf(kubeConfig, ", insecure-skip-tls-verify: true", `token: secret-token`),
			want:   "--insecure-kubeconfig-tls",
		},
		"invalid YAML": {config: "secret-token: [", want: "not a valid kubeconfig"},
		"unknown context": {
			config: strings.Replace(withToken, "current-context: x", "current-context: other", 1),
			want:   "current-context does not name",
		},
	} {
		_, _, err := (&RemoteClusters{}).parse(t.Context(), []byte(c.config))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret-token") {
			t.Errorf("%s: the error contains the secret: %v", name, err)
		}
	}
	cfg, namespace, err := (&RemoteClusters{}).parse(t.Context(), []byte(withToken))
	if err != nil || cfg.Host != "https://10.0.0.1" || cfg.BearerToken != "secret-token" || namespace != "" {
		t.Errorf("kubeconfig with a token: got %v, namespace %q, %v", cfg, namespace, err)
	}
	inShop := strings.Replace(withToken, "user: u}", "user: u, namespace: shop}", 1)
	if _, namespace, err := (&RemoteClusters{}).parse(t.Context(), []byte(inShop)); err != nil || namespace != "shop" {
		t.Errorf("context with a namespace: got %q, %v", namespace, err)
	}
	withExec := []byte(fmt.Sprintf(kubeConfig, "", execUser))
	if _, _, err := (&RemoteClusters{AllowExec: true}).parse(t.Context(), withExec); err != nil {
		t.Errorf("exec with AllowExec: %v", err)
	}
}

func FuzzKubeConfig(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(kubeConfig, "", "token: t")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		cfg, _, err := (&RemoteClusters{}).parse(t.Context(), raw)
		if err == nil && (cfg.ExecProvider != nil || cfg.BearerTokenFile != "" || cfg.CAFile != "" ||
			cfg.CertFile != "" || cfg.KeyFile != "" || cfg.Insecure) {
			t.Errorf("accepted: %+v", cfg)
		}
	})
}
