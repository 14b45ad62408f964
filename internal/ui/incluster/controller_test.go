package incluster_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gatingv1 "github.com/sluice-gitops/sluice/api/gating/v1alpha1"
	"github.com/sluice-gitops/sluice/internal/process/options"
	"github.com/sluice-gitops/sluice/internal/testenv"
	"github.com/sluice-gitops/sluice/internal/testenv/system"
)

func TestControllersServeTheUI(t *testing.T) {
	addr := testenv.FreeAddress(t)
	s := system.New(t, func(o *options.Options) {
		o.UI = options.UIOptions{Addr: addr, ExternalURL: "http://" + addr,
			LoginOptions: options.LoginOptions{Session: time.Hour, TokenLogin: true}}
	})
	s.GrantAll("viewer")
	token := s.ServiceAccountToken("viewer")
	s.Create(&gatingv1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "release"}})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: time.Minute}
	testenv.Eventually(t, "login by token", func() error {
		resp, err := browser.Post("http://"+addr+"/login/token", "application/json",
			strings.NewReader(`{"token":"`+token+`"}`))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		return nil
	})
	testenv.Eventually(t, "the gate is listed", func() error {
		resp, err := browser.Get("http://" + addr + "/api/v1/items?kind=Gate")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(body), "Gate/"+s.Namespace+"/release") {
			return fmt.Errorf("%s (%w)", body, err)
		}
		return nil
	})
	key := client.ObjectKey{Namespace: s.Namespace, Name: "sluice-ui-session"}
	if err := s.Client.Get(t.Context(), key, &corev1.Secret{}); err != nil {
		t.Errorf("the key of sessions is not in a Secret: %v", err)
	}
}
