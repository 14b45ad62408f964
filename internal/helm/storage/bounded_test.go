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

// TestManyReleasesOfAName has more Secrets than are read at a time, most of them large.
func TestManyReleasesOfAName(t *testing.T) {
	typed, err := kubernetes.NewForConfig(testenv.Cluster(t))
	if err != nil {
		t.Fatal(err)
	}
	secrets := typed.CoreV1().Secrets(testenv.Namespace(t))
	noise := make([]byte, 700_000)
	for version := 1; version <= 50; version++ {
		data := append([]byte("x"), noise...)
		if version == 50 {
			data = stored(t, `{"name":"app","version":50,"info":{"status":"deployed"}}`)
		}
		if _, err := secrets.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("sh.helm.release.v1.app.v%d", version),
				Annotations: map[string]string{"noise": "x"},
				Labels:      map[string]string{"owner": "helm", "name": "app", "version": fmt.Sprint(version)}},
			Data: map[string][]byte{"release": data, "other": []byte("x")},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := bounded{secrets}.List(t.Context(), metav1.ListOptions{LabelSelector: "owner=helm,name=app"})
	if err != nil || len(list.Items) != 50 {
		t.Fatalf("%d Secrets, %v", len(list.Items), err)
	}
	size := 0
	for _, s := range list.Items {
		size += len(s.Data[dataKey])
		if s.Data["other"] != nil || s.Annotations != nil {
			t.Errorf("Secret %s has what Helm does not read", s.Name)
		}
	}
	if size > maxStored {
		t.Errorf("the Secrets have %d bytes", size)
	}
	history, err := New(secrets).History(t.Context(), "app")
	if err != nil || len(history) != 1 || history[0].Version != 50 {
		t.Errorf("the history has %d releases, %v", len(history), err)
	}
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
	dense := `{"name":"app","version":10,"info":{"status":"deployed"},"config":{"a":[0` +
		strings.Repeat(",0", 2_000_000) + `]}}`
	if _, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "sh.helm.release.v1.app.v10",
			Labels: map[string]string{"owner": "helm", "name": "app", "version": "10"}},
		Data: map[string][]byte{"release": stored(t, dense)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if history, err = d.History(t.Context(), "app"); err != nil || len(history) != 1 || history[0].Version != 4 {
		t.Errorf("with a release of many values, the history has %d releases, %v", len(history), err)
	}
	next := &release.Release{Name: "app", Version: 9, Info: &release.Info{Status: common.StatusDeployed}}
	if err := d.Storage(0).Create(next); err != nil {
		t.Fatal(err)
	}
	if history, err = d.History(t.Context(), "app"); err != nil || len(history) != 2 {
		t.Fatalf("the history has %d releases, %v", len(history), err)
	}
}
