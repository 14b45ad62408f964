package install

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-gitops/sluice/internal/process/options"
)

// UI says how the web UI is served in the cluster. Without a URL it is not. The pages of a hub have the same logins.
type UI struct {
	URL           string `json:"url,omitempty"` // by which browsers reach it
	Issuer        string `json:"issuer,omitempty"`
	ClientID      string `json:"clientID,omitempty"`
	ClientSecret  string `json:"clientSecret,omitempty"` // name of a Secret, see uiSecretKey
	UsernameClaim string `json:"usernameClaim,omitempty"`

	UsernamePrefix string `json:"usernamePrefix,omitempty"`
	GroupsClaim    string `json:"groupsClaim,omitempty"`
	GroupsPrefix   string `json:"groupsPrefix,omitempty"`
	NoTokenLogin   bool   `json:"noTokenLogin,omitempty"` // people cannot log in with the token of a ServiceAccount
	// ReviewSecret is the name of a Secret with the configuration of reviews and its files, see reviewFile. Without it,
	// no pull requests are reviewed.
	ReviewSecret string `json:"reviewSecret,omitempty"`
	MCPURL       string `json:"mcpURL,omitempty"` // by which agents reach the MCP server; without it, there is none
}

const (
	uiName      = "sluice-ui" // of the Service, the NetworkPolicy and the ClusterRole
	uiPort      = 9095
	uiDir       = "/etc/sluice-ui"
	uiSecretKey = "client-secret" // of the Secret with the OIDC client's secret
	mcpPort     = 9096
	reviewPort  = 9097
	reviewDir   = "/etc/sluice-review"
	reviewFile  = "review.yaml" // key of the Secret with the configuration of reviews
)

// validate reports the flag that is wrong. The pages of a hub have the same logins.
func (u UI) validate(hasHub bool) error {
	if u == (UI{}) {
		return nil
	}
	if u.URL == "" && (!hasHub || u.MCPURL != "" || u.ReviewSecret != "") {
		return errors.New("--ui-oidc-issuer and other flags of the web UI need --ui-url, the URL by which browsers " +
			"reach it")
	}
	if problems := validation.IsDNS1123Subdomain(u.ClientSecret); u.ClientSecret != "" && len(problems) > 0 {
		return fmt.Errorf("invalid --ui-oidc-client-secret %q: %s", u.ClientSecret, problems[0])
	}
	if problems := validation.IsDNS1123Subdomain(u.ReviewSecret); u.ReviewSecret != "" && len(problems) > 0 {
		return fmt.Errorf("invalid --review-secret %q: %s", u.ReviewSecret, problems[0])
	}
	if err := u.needIssuer(); err != nil {
		return err
	}
	if u.Issuer == "" && u.NoTokenLogin {
		return errors.New("--ui-token-login=false needs --ui-oidc-issuer, as a way to log in")
	}
	login := u.login()
	if u.URL == "" {
		return login.Check() // its flags have the same names here
	}
	o := options.UIOptions{Addr: fmt.Sprintf(":%d", uiPort), ExternalURL: u.URL, LoginOptions: login}
	if _, err := o.External(); err != nil {
		return fmt.Errorf("--ui-url: %w", err)
	}
	if o.MCPExternalURL = u.MCPURL; u.MCPURL != "" {
		o.MCPAddr = fmt.Sprintf(":%d", mcpPort)
		if _, err := o.MCPExternal(); err != nil {
			return fmt.Errorf("--mcp-url: %w", err)
		}
	}
	return o.Check() // its other flags have the same names here
}

// login returns the flags of logins, which have the same names in all commands.
func (u UI) login() options.LoginOptions {
	return options.LoginOptions{Session: time.Hour, TokenLogin: !u.NoTokenLogin, Issuer: u.Issuer, ClientID: u.ClientID,
		UsernameClaim: cmp.Or(u.UsernameClaim, "sub"), UsernamePrefix: u.UsernamePrefix,
		GroupsClaim: cmp.Or(u.GroupsClaim, "groups"), GroupsPrefix: u.GroupsPrefix}
}

// needIssuer reports the flag that makes no sense without a login provider.
func (u UI) needIssuer() error {
	if u.Issuer != "" {
		return nil
	}
	for _, f := range []struct{ flag, value string }{
		{flag: "--ui-oidc-client-secret", value: u.ClientSecret},
		{flag: "--ui-oidc-username-claim", value: u.UsernameClaim},
		{flag: "--ui-oidc-username-prefix", value: u.UsernamePrefix},
		{flag: "--ui-oidc-groups-claim", value: u.GroupsClaim},
		{flag: "--ui-oidc-groups-prefix", value: u.GroupsPrefix},
	} {
		if f.value != "" {
			return fmt.Errorf("%s needs --ui-oidc-issuer", f.flag)
		}
	}
	return nil
}

// runsUI reports whether a process that runs the components serves the web UI. Of several, it is the one whose account
// may do everything already.
func (o Options) runsUI(components []string) bool {
	host := options.KustomizeController
	if !o.Runs(host) {
		host = o.Components[0]
	}
	return o.UI.URL != "" && slices.Contains(components, host)
}

// uiDeployment returns the name of the Deployment that serves the web UI.
func (o Options) uiDeployment() string {
	if !o.Split {
		return ownName
	}
	for _, c := range o.Components {
		if o.runsUI([]string{c}) {
			return c
		}
	}
	return ""
}

// loginArgs returns the arguments of logins.
func (u UI) loginArgs() (args []string) {
	if u.Issuer != "" {
		args = append(args, "--ui-oidc-issuer="+u.Issuer, "--ui-oidc-client-id="+u.ClientID)
	}
	if u.ClientSecret != "" {
		args = append(args, "--ui-oidc-client-secret-file="+path.Join(uiDir, uiSecretKey))
	}
	for _, f := range []struct{ flag, value string }{
		{flag: "--ui-oidc-username-claim=", value: u.UsernameClaim},
		{flag: "--ui-oidc-username-prefix=", value: u.UsernamePrefix},
		{flag: "--ui-oidc-groups-claim=", value: u.GroupsClaim},
		{flag: "--ui-oidc-groups-prefix=", value: u.GroupsPrefix},
	} {
		if f.value != "" {
			args = append(args, f.flag+f.value)
		}
	}
	if u.NoTokenLogin {
		args = append(args, "--ui-token-login=false")
	}
	return args
}

// uiArgs returns the arguments of the process that serves the web UI.
func (o Options) uiArgs() []string {
	args := append([]string{fmt.Sprintf("--ui-addr=:%d", uiPort), "--ui-external-url=" + o.UI.URL}, o.UI.loginArgs()...)
	if o.UI.MCPURL != "" {
		args = append(args, fmt.Sprintf("--mcp-addr=:%d", mcpPort), "--mcp-external-url="+o.UI.MCPURL)
	}
	if o.UI.ReviewSecret != "" {
		args = append(args, fmt.Sprintf("--review-addr=:%d", reviewPort),
			"--review-config="+path.Join(reviewDir, reviewFile))
	}
	return args
}

// addUI lets a pod serve the web UI.
func (o Options) addUI(pod *corev1.PodSpec) {
	c := &pod.Containers[0]
	c.Args = append(c.Args, o.uiArgs()...)
	c.Ports = append(c.Ports, corev1.ContainerPort{Name: "ui", ContainerPort: uiPort})
	o.UI.mountClientSecret(pod)
	if o.UI.MCPURL != "" {
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "mcp", ContainerPort: mcpPort})
	}
	if o.UI.ReviewSecret != "" {
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "review", ContainerPort: reviewPort})
		mountSecret(pod, "review", o.UI.ReviewSecret, reviewDir)
	}
}

// mountClientSecret mounts the secret of the OIDC client, if there is one.
func (u UI) mountClientSecret(pod *corev1.PodSpec) {
	if u.ClientSecret != "" {
		mountSecret(pod, "ui", u.ClientSecret, uiDir)
	}
}

// mountSecret mounts a Secret at a directory of the first container.
func mountSecret(pod *corev1.PodSpec, volume, secret, dir string) {
	c := &pod.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: dir, ReadOnly: true})
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret}}})
}
