package storage

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sluice-gitops/sluice/internal/testenv"
)

// stored returns the data of a Secret that holds a text as a release.
func stored(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return []byte(base64.StdEncoding.EncodeToString(b.Bytes()))
}

// TestSecretsOfTenants has Secrets that look like releases: one is far larger than it seems, and others are incomplete.
// They are left out, and a release can be stored instead of one.
func TestSecretsOfTenants(t *testing.T) {
	typed, err := kubernetes.NewForConfig(testenv.Cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	secrets := typed.CoreV1().Secrets(testenv.Namespace(t))
	bomb := `{"name":"app","version":9,"info":{"description":"` + strings.Repeat("x", maxRelease) + `"}}`
	for version, text := range map[int]string{
		9: bomb, 8: "{}", 7: `{"name":"app","version":7}`, 6: "null",
		5: `{"name":"app","version":5,"info":{"status":"deployed"},"hooks":[null]}`,
		4: `{"name":"app","version":4,"info":{"status":"deployed"}}`,
	} {
		if _, err := secrets.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("sh.helm.release.v1.app.v%d", version),
				Labels: map[string]string{"owner": "helm", "name": "app", "version": fmt.Sprint(version)}},
			Data: map[string][]byte{"release": stored(t, text)},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d := New(secrets)
	history, err := d.History(t.Context(), "app")
	if err != nil || len(history) != 1 || history[0].Version != 4 {
		t.Fatalf("the history has %d releases, %v", len(history), err)
	}
	for version := 5; version <= 9; version++ {
		if rel, err := d.Storage(0).Get("app", version); err == nil {
			t.Errorf("release %d is %+v", version, rel)
		}
	}
	next := &release.Release{Name: "app", Version: 9, Info: &release.Info{Status: common.StatusDeployed}}
	if err := d.Storage(0).Create(next); err != nil {
		t.Fatal(err)
	}
	if history, err = d.History(t.Context(), "app"); err != nil || len(history) != 2 {
		t.Fatalf("the history has %d releases, %v", len(history), err)
	}
}
