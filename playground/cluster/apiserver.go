package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/wait"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

const (
	serviceRange = "10.96.0.0/16"
	firstService = "10.96.0.1" // the API server's own
)

// auditPolicy counts requests without their bodies: a watch as it starts, the others as they end.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// apiServer is the real kube-apiserver with its aggregator and custom resources.
type apiServer struct {
	config *rest.Config
	done   chan struct{} // closed when it has stopped
}

// startAPIServer serves until the context ends. An unexpected end is sent to failed.
func startAPIServer(ctx context.Context, c certs, etcd string, o Options, failed chan<- error) (_ *apiServer,
	err error) {
	listener, err := loopback(o.Port)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, listener.Close())
		}
	}()
	args, err := apiServerArgs(c, etcd, o)
	if err != nil {
		return nil, err
	}
	config, err := apiServerConfig(ctx, args, listener)
	if err != nil {
		return nil, err
	}
	completed, err := config.Complete()
	if err != nil {
		return nil, err
	}
	chain, err := app.CreateServerChain(completed)
	if err != nil {
		return nil, err
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return nil, err
	}
	server := &apiServer{
		done: make(chan struct{}),
		config: &rest.Config{
			Host:            "https://" + listener.Addr().String(),
			TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
			BearerToken:     c.admin,
			QPS:             -1, // unthrottled: it is on the same machine
		},
	}
	go func() {
		defer close(server.done)
		if err := prepared.Run(ctx); err != nil && ctx.Err() == nil {
			failed <- fmt.Errorf("the API server ended: %w", err)
		}
	}()
	return server, nil
}

func apiServerArgs(c certs, etcd string, o Options) ([]string, error) {
	args := []string{
		"--bind-address=127.0.0.1",
		"--etcd-servers=" + etcd,
		"--tls-cert-file=" + c.file("server.crt"), "--tls-private-key-file=" + c.file("server.key"),
		"--client-ca-file=" + c.file("ca.crt"), "--token-auth-file=" + c.file(tokens),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.file("service-account.crt"),
		"--service-account-signing-key-file=" + c.file("service-account.key"),
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=RBAC",
		"--endpoint-reconciler-type=none", // it is the only API server
		"--allow-privileged",
		"--kubelet-preferred-address-types=ExternalIP,InternalIP", // our nodes serve logs at the former
		"--profiling=false",
		// Queues for several clients take a tenth of the server's time; whoever is alone needs a limit only.
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
	}
	if o.AuditLog == "" {
		return args, nil
	}
	policy := c.file("audit-policy.yaml")
	// Blocking: what was answered is in the log. A size in MB that is not reached: it is never rotated away
	// from its readers.
	return append(args, "--audit-policy-file="+policy, "--audit-log-path="+o.AuditLog, "--audit-log-mode=blocking",
			"--audit-log-maxsize=100000"),
		os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

// apiServerConfig does what kube-apiserver does with its command line.
func apiServerConfig(ctx context.Context, args []string, listener net.Listener) (*app.Config, error) {
	s := options.NewServerRunOptions()
	flags := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range s.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	s.SecureServing.Listener, s.SecureServing.BindPort = listener, listener.Addr().(*net.TCPAddr).Port
	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, err
	}
	completed, err := s.Complete(ctx)
	if err != nil {
		return nil, err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return nil, err
	}
	for _, c := range []*genericserver.Config{
		&config.Aggregator.GenericConfig.Config, config.KubeAPIs.ControlPlane.Generic,
		&config.ApiExtensions.GenericConfig.Config,
	} {
		c.EffectiveVersion = stated{c.EffectiveVersion}
	}
	return config, nil
}

// waitReady returns once the server says that it is ready.
func (s *apiServer) waitReady(ctx context.Context, failed <-chan error) error {
	client, err := kubernetes.NewForConfig(named(s.config, "start"))
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startTime, true,
		func(ctx context.Context) (bool, error) {
			select {
			case err := <-failed:
				return false, err
			default:
			}
			var status int
			client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).StatusCode(&status)
			return status == http.StatusOK, nil
		})
}

// loopback listens on a port of the loopback address; 0 picks a free one.
func loopback(port int) (net.Listener, error) {
	return net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
}
